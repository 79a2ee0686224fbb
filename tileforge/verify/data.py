"""Operands of a case on a device, and what a right kernel makes of them. Imports torch.

Exact data is made so that no float32 sum of it is ever rounded, in whatever order the terms are added: elements and
scales are small multiples of a power of two that belongs to their row, and all of K = 4096 stays within 24 bits.
Rows have unequal powers, neighbouring groups unlike alphas of both signs: what is taken from a neighbour shows.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from tileforge.formats import round_up
from tileforge.measure.check import ROUNDOFF
from tileforge.measure.inputs import OUT_TYPES, Output, activations, offsets_of, weights
from tileforge.measure.quantize import (
    KINDS,
    VECTORS,
    Quantized,
    dequantize,
    pack_nibbles,
    quantize,
    swizzle_groups,
    swizzle_rows,
)
from tileforge.verify.cases import EXACT, Operands

#: Both scale types read it as NaN: what lies in padding rows of the scale factors, which no kernel may use.
NAN_SCALE = 0xFF
#: Deepest K for which exact data is exact: 4096 elements of at most 2304 units fit in 24 bits.
DEEPEST_EXACT = 4096
_SEED = 20260711
_ALPHA = (1.0, -2.0, 0.5, -1.0, 2.0, -0.5)
#: How far the float32 steps may be off together, in units of 2^-24 of the sum of magnitudes: one unit a scale block,
#: and one each for alpha, for the product with it, and to spare. The dot products of mxfp8 are not exact either.
_STEPS, _STEPS_MXFP8 = 3, 4
#: Depth of one instruction and its error where the tensor cores round as they like (measure/check.py).
_NATIVE = {"bf16": (16, 2.0**-22), "fp8": (32, 2.0**-14)}
_SMALLEST = {"bf16": 2.0**-134, "fp16": 2.0**-25, "fp32": 2.0**-150}  # half a subnormal


@dataclass(frozen=True)
class Tensors:
    """What a kernel reads. Plain scales are kept in ``a`` and ``b``; ``sfa`` and ``sfb`` are laid out, None without."""

    what: Operands
    a: Quantized
    b: Quantized
    sfa: Tensor | None
    sfb: Tensor | None
    alpha: Tensor
    offsets: Tensor

    def read(self) -> list[Tensor]:
        """Everything that a kernel reads, as bytes."""
        found = (self.a.values, self.b.values, self.sfa, self.sfb, self.alpha, self.offsets)
        return [each.view(torch.uint8) for each in found if each is not None]


@dataclass(frozen=True)
class Expected:
    """For the whole buffer, guards included. ``bits`` holds the poison where nobody may write.

    ``reference`` and ``bound`` [M, N] float64 (None for exact data): how far each element may lie from it.
    """

    bits: Tensor
    reference: Tensor | None = None
    bound: Tensor | None = None


def make(what: Operands, format: str, out: str, device: torch.device) -> Tensors:
    """The same tensors for the same arguments on the same kind of device."""
    generator = torch.Generator(device).manual_seed(_SEED + 1000 * what.k + what.n + len(what.sizes))
    groups = len(what.sizes)
    maker = _exact if what.data == EXACT else _random
    kind_a, kind_b = KINDS[format]
    a = maker(what.m, what.k, kind_a, out, generator, weight=False)
    b = maker(groups * what.n, what.k, kind_b, out, generator, weight=True)
    if what.data == EXACT:
        alpha = torch.tensor([_ALPHA[group % len(_ALPHA)] for group in range(groups)], device=device)
    else:
        alpha = torch.exp2(2 * torch.rand(groups, generator=generator, device=device) - 1) * a.scale * b.scale
    sfa = sfb = None
    rows = sum(what.sizes)
    if a.scales is not None and b.scales is not None:
        sfa = _padded(swizzle_rows(a.scales[:rows], what.sizes), _used_rows(a.scales[:rows], what.sizes))
        sfb = _padded(swizzle_groups(b.scales, groups), swizzle_groups(_all(b.scales), groups))
    return Tensors(what, a, b, sfa, sfb, alpha.float().contiguous(), offsets_of(what.sizes, device))


def _all(scales: Tensor) -> Tensor:
    """Ones where a kernel reads scales: also in the columns that pad K, which hold zeros and must not hold NaN."""
    return scales.new_ones(scales.shape[0], round_up(scales.shape[1], 4))


def _used_rows(scales: Tensor, sizes: tuple[int, ...]) -> Tensor:
    return swizzle_rows(_all(scales), sizes)


def _padded(laid: Tensor, used: Tensor) -> Tensor:
    return torch.where(used == 0, torch.full_like(laid, NAN_SCALE), laid)


def _integers(low: int, high: int, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Whole numbers from ``low`` to ``high``, both included."""
    return torch.randint(low, high + 1, shape, generator=generator, device=generator.device)


def _exact(rows: int, k: int, kind: str, out: str, generator: torch.Generator, *, weight: bool) -> Quantized:
    assert k <= DEEPEST_EXACT
    one = torch.ones((), device=generator.device)
    # fp16 ends at 65504: its rows differ by less.
    power = _integers(-1 if out == "fp16" else -2, 0 if out == "fp16" else 2, (rows, 1), generator)
    if kind == "bf16":
        return Quantized(kind, torch.ldexp(_integers(-8, 8, (rows, k), generator).float(), power).bfloat16(), None, one)
    if kind == "e4m3":  # Hopper's FP8 tensor cores keep about 14 bits of a sum (measure/check.py)
        values = torch.ldexp(_integers(-1, 1, (rows, k), generator).float(), power)
        return Quantized(kind, values.to(torch.float8_e4m3fn), None, one)
    columns = k // VECTORS[kind]
    if kind == "nvfp4":
        steps = torch.tensor((1.0, 1.5, 2.0), device=generator.device)[_integers(0, 2, (rows, columns), generator)]
        scales = torch.ldexp(steps, power).to(torch.float8_e4m3fn).view(torch.uint8)
    else:
        scales = (127 + _integers(0, 1, (rows, columns), generator) + power).to(torch.uint8)
    if kind == "mxfp8":
        sign = 2 * _integers(0, 1, (rows, k), generator) - 1
        eighths = sign * _integers(8, 15, (rows, k), generator) << _integers(0, 1, (rows, k), generator)
        return Quantized(kind, (eighths.float() / 8).to(torch.float8_e4m3fn), scales, one)
    return Quantized(kind, pack_nibbles(_integers(0, 15, (rows, k), generator).to(torch.uint8)), scales, one)


def _random(rows: int, k: int, kind: str, out: str, generator: torch.Generator, *, weight: bool) -> Quantized:
    make_rows = weights if weight else activations
    return quantize(make_rows(rows, k, generator), kind)


def expect(tensors: Tensors, format: str, out: str) -> Expected:
    """The product in float64, group by group, rounded once to float32, scaled by alpha, rounded to ``out``."""
    what, device = tensors.what, tensors.alpha.device
    exact = what.data == EXACT
    result = torch.zeros(what.m, what.n, dtype=torch.float64, device=device)
    bound = None if exact else torch.zeros_like(result)
    row = 0
    for group, size in enumerate(what.sizes):
        rows = slice(row, row + size)
        row += size
        if not size:
            continue
        a = dequantize(tensors.a, rows).double()
        b = dequantize(tensors.b, slice(group * what.n, (group + 1) * what.n)).double()
        alpha = tensors.alpha[group].double()
        total = a @ b.T + 0.0  # a sum that starts at +0 is never -0
        result[rows] = total * alpha
        if bound is not None:
            bound[rows] = _relative(format, what.k) * (a.abs() @ b.abs().T) * alpha.abs()
    if bound is not None:
        # What is rounded to `out` is the sum with its error: hence a little more than the two added.
        bound = (bound + result.abs() * ROUNDOFF[out]) * (1 + 2 * ROUNDOFF[out]) + _SMALLEST[out]
    output = Output.empty(what.m, what.n, out, device)
    used = sum(what.sizes)
    output.rows[:used] = result[:used].float().to(OUT_TYPES[out])
    return Expected(output.bits.clone(), None if exact else result, bound)


def _relative(format: str, k: int) -> float:
    """Error of the float32 sum in parts of the sum of magnitudes."""
    if format in _NATIVE:
        depth, each = _NATIVE[format]
        return -(-k // depth) * each + 2.0**-23
    blocks = -(-k // VECTORS[KINDS[format][1]])
    return (blocks + _STEPS + (_STEPS_MXFP8 if format == "mxfp8_mxfp4" else 0)) * 2.0**-24
