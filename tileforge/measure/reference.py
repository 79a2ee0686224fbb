"""The right answer: an fp32 product of the same quantised values. Imports torch."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch import Tensor

from tileforge.measure.inputs import Inputs
from tileforge.measure.quantize import dequantize

#: Elements of B that are float32 at a time: 256 MB, so that a large group costs no memory worth mentioning.
_CHUNK = 2**26


@contextlib.contextmanager
def _full_precision() -> Iterator[None]:
    """TF32 off: it keeps 10 bits of the operands, less than what is being checked."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = False
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def reference(inputs: Inputs) -> Tensor:
    """``alpha[g] * A[g] @ B[g].T`` [M, N] in float32, group by group, on the inputs' device.

    It reads the plain row-major scales, never the swizzled ones, so a wrong layout cannot cancel out.
    """
    problem = inputs.problem
    result = torch.empty(problem.m, problem.n, device=inputs.alpha.device)
    step = max(1, _CHUNK // problem.k)
    with _full_precision():
        first = 0
        for group, rows in enumerate(inputs.sizes):
            if not rows:
                continue
            a = dequantize(inputs.a, slice(first, first + rows)) * inputs.alpha[group]
            for column in range(0, problem.n, step):
                last = min(column + step, problem.n)
                base = group * problem.n
                b = dequantize(inputs.b, slice(base + column, base + last))
                result[first : first + rows, column:last] = a @ b.T
            first += rows
    return result
