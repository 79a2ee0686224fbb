"""Planted faults: what the comparison must notice, for every kernel, or it proves nothing. Imports torch.

Two kinds. Operands that say something else than what is expected, run through the kernel itself: a kernel that passes
although its scales lie in another layout does not read them. And results that were spoilt after a right run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch

from tileforge.measure.inputs import GUARD_ROWS, POISON, Output
from tileforge.verify.data import NAN_SCALE, Tensors

OperandFault = Callable[[Tensors], Tensors]
#: Spoils an output of which the groups have so many rows.
ResultFault = Callable[[Output, int], None]


def _plain_layout(tensors: Tensors) -> Tensors:
    """A's scales in row-major order, where the kernel reads the swizzled layout; no NaN gives it away."""
    assert tensors.sfa is not None and tensors.a.scales is not None
    laid = torch.full_like(tensors.sfa, int(tensors.a.scales.flatten()[0]))
    plain = tensors.a.scales.flatten()[: laid.numel()]
    laid[: plain.numel()] = plain
    return replace(tensors, sfa=laid)


def _next_scale_block(tensors: Tensors) -> Tensors:
    """Every scale of B is its neighbour's along K."""
    assert tensors.sfb is not None
    rolled = tensors.sfb.view(-1, 4).roll(1, dims=1).reshape(-1)
    return replace(tensors, sfb=rolled)


def _next_row(tensors: Tensors) -> Tensors:
    return replace(tensors, a=replace(tensors.a, values=tensors.a.values.view(torch.uint8).roll(1, dims=0)))


def _next_group(tensors: Tensors) -> Tensors:
    values = tensors.b.values.view(torch.uint8).roll(tensors.what.n, dims=0)
    return replace(tensors, b=replace(tensors.b, values=values))


def _next_alpha(tensors: Tensors) -> Tensors:
    return replace(tensors, alpha=tensors.alpha.roll(1))


def _one_scale(tensors: Tensors) -> Tensors:
    """One scale of A, of the first row that there is, one step larger: the smallest fault that scales can have."""
    assert tensors.sfa is not None
    laid = tensors.sfa.clone()
    laid[int((laid != NAN_SCALE).nonzero()[0])] += 1
    return replace(tensors, sfa=laid)


def operand_faults(scaled: bool) -> dict[str, OperandFault]:
    """By name; ``scaled``: the format has scale factors."""
    found: dict[str, OperandFault] = {
        "A shifted by a row": _next_row,
        "B of the group before": _next_group,
        "alpha of the group before": _next_alpha,
    }
    if scaled:
        found |= {
            "A's scales not swizzled": _plain_layout,
            "B's scales one block along K": _next_scale_block,
            "one scale of A one step off": _one_scale,
        }
    return found


def _one_bit(output: Output, rows: int) -> None:
    output.bits[GUARD_ROWS + rows // 2, output.bits.shape[1] // 2] ^= 1


def _one_unwritten(output: Output, rows: int) -> None:
    output.bits[GUARD_ROWS + rows - 1, -1] = POISON[output.out]


def _after_written(output: Output, rows: int) -> None:
    output.bits[GUARD_ROWS + rows, 0] = 0


def _before_written(output: Output, rows: int) -> None:
    output.bits[GUARD_ROWS - 1, -1] = 0


RESULT_FAULTS: dict[str, ResultFault] = {
    "one bit of one element": _one_bit,
    "one element not written": _one_unwritten,
    "one element written after the last group": _after_written,
    "one element written before the output": _before_written,
}
