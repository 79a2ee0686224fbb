"""Whether a kernel computed what it should, wrote all of it, and wrote nothing else. Imports torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tileforge.measure.inputs import GUARD_ROWS, POISON, Output
from tileforge.problem import GroupedGemm

#: Unit roundoff of the output types: half the spacing at 1. Rounding moves no element by more than this part of it.
ROUNDOFF = {"bf16": 2.0**-8, "fp16": 2.0**-11, "fp32": 2.0**-24}

#: Depth of one tensor core instruction along K (elements), and a bound on the relative error that it adds to the
#: sum. bf16 products are summed in float32 and cut rather than rounded: one unit of its 24 bits, times two. The
#: 8-bit and narrower formats are given what is known of Hopper's fp8 tensor cores, which keep about 14 bits of the
#: sum (DeepSeek-V3 technical report, section 3.3.2: errors near 2 % of single elements at K = 4096): no other
#: figure has been measured for SM120 here, and theirs can only be smaller.
_STEP = {"bf16": (16, 2.0**-22), "fp8": (32, 2.0**-14), "mxfp8_mxfp4": (32, 2.0**-14)}
_STEP_FP4 = (64, 2.0**-14)

_CHUNK = 2**25  # elements compared at a time


@dataclass(frozen=True)
class Tolerance:
    """How far right results may lie from the fp32 reference.

    ``group``, ``row``: relative error in the 2-norm over a group's and over one row's elements. ``rounding`` and
    ``sum`` bound one element: ``|d - ref| <= rounding * |ref| + sum * (the row's root mean square)``.

    Rounding to the output type is bounded element by element by its unit roundoff u, hence also in any norm (it
    comes to about 0.4 u in practice: 1.7e-3 for bf16). The error of the sum grows at worst linearly with the
    number of instructions along K, is of the size of partial sums rather than of the result, and concentrates
    over many elements: once for a group, three times for a row, eight times for a single element. What it must
    still tell apart is far away: one wrong element in a row of 4096 is an error of 2 % of its row and of over
    100 % of the row's mean; a neighbouring group's B or alpha, a zero band or a wrong scale are tens of percent.
    """

    group: float
    row: float
    rounding: float
    sum: float


def tolerance(problem: GroupedGemm) -> Tolerance:
    depth, each = _STEP.get(problem.format, _STEP_FP4)
    u, summing = ROUNDOFF[problem.out], -(-problem.k // depth) * each
    return Tolerance(u + summing, u + 3 * summing, u, 8 * summing)


@dataclass(frozen=True)
class Checked:
    """``error``: worst relative error (2-norm) of a group, None when it is not a number or nothing was compared.

    ``message``: "" when everything is right, else the first thing that is not, with group and rows.
    """

    message: str = ""
    error: float | None = None

    @property
    def ok(self) -> bool:
        return not self.message


def check(output: Output, reference: Tensor, sizes: Sequence[int], allowed: Tolerance) -> Checked:
    """Compares what a kernel left in a poisoned ``output`` with ``reference`` [M, N] float32.

    In this order, and says the first that is wrong: guard rows written; elements not written; NaN or infinite;
    rows all zero where the reference is not; relative error per group; per row; per element. With M = 0 only the
    guards are looked at.
    """
    guards = _guards(output)
    if guards:
        return Checked(guards)
    if not output.m:
        return Checked()
    rows = _row_figures(output, reference, allowed)
    where = _Where(sizes)
    for flagged, what in ((rows.unwritten, "not written"), (rows.odd, "NaN or infinite"), (rows.zero, "zero")):
        if flagged.any():
            return Checked(where.describe(flagged, what), None if flagged is not rows.zero else where.error(rows))
    error = where.error(rows)
    groups = where.group_errors(rows)
    if error > allowed.group:
        worst = int(groups.argmax())
        return Checked(f"group {worst}: relative error {error:.2e}, allowed {allowed.group:.2e}", error)
    by_row = (rows.error2 / rows.norm2.clamp(min=1e-300)).sqrt()
    by_row = torch.where(rows.norm2 > 0, by_row, (rows.error2 > 0).double() * float("inf"))
    for flagged, what in (
        (by_row > allowed.row, f"off by {float(by_row.max()):.2e} of the row, allowed {allowed.row:.2e}"),
        (rows.outlier, "wrong in single elements"),
    ):
        if flagged.any():
            return Checked(where.describe(flagged, what), error)
    return Checked("", error)


def _guards(output: Output) -> str:
    poison = POISON[output.out]
    for name, part in (("before", output.bits[:GUARD_ROWS]), ("after", output.bits[GUARD_ROWS + output.m :])):
        touched = int((part != poison).any(dim=1).sum())
        if touched:
            return f"wrote outside the output: {touched} rows {name} it"
    return ""


@dataclass(frozen=True)
class _Rows:
    """Figures of each row [M], on the CPU; squares in float64."""

    error2: Tensor
    norm2: Tensor
    unwritten: Tensor
    odd: Tensor
    zero: Tensor
    outlier: Tensor


def _row_figures(output: Output, reference: Tensor, allowed: Tolerance) -> _Rows:
    m, n = reference.shape
    bits, found, step = output.bits[GUARD_ROWS : GUARD_ROWS + m], output.rows, max(1, _CHUNK // n)
    parts = []
    for first in range(0, m, step):
        rows = slice(first, first + step)
        d, right = found[rows].float(), reference[rows]
        unwritten = (bits[rows] == POISON[output.out]).any(dim=1)
        odd = ~torch.isfinite(d).all(dim=1)
        norm2 = right.square().sum(dim=1)
        off = (d - right).abs_()
        error2 = off.square().sum(dim=1)
        bound = right.abs().mul_(allowed.rounding * (1 + 2**-10)) + allowed.sum * (norm2 / n).sqrt()[:, None]
        outlier = (off > bound).any(dim=1)
        zero = (d == 0).all(dim=1) & (norm2 > 0)
        parts.append(torch.stack([figure.double() for figure in (error2, norm2, unwritten, odd, zero, outlier)]))
    error2, norm2, unwritten, odd, zero, outlier = torch.cat(parts, dim=1).cpu()
    return _Rows(error2, norm2, unwritten > 0, odd > 0, zero > 0, outlier > 0)


class _Where:
    """Rows to groups and back."""

    def __init__(self, sizes: Sequence[int]) -> None:
        self.sizes = sizes
        self.group_of = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(list(sizes)))

    def group_errors(self, rows: _Rows) -> Tensor:
        sums = torch.zeros(2, len(self.sizes), dtype=torch.float64)
        sums.index_add_(1, self.group_of, torch.stack((rows.error2, rows.norm2)))
        return (sums[0] / sums[1].clamp(min=1e-300)).sqrt()

    def error(self, rows: _Rows) -> float:
        return float(self.group_errors(rows).max())

    def describe(self, flagged: Tensor, what: str) -> str:
        """``group 3: rows 64..127 of 130 zero (and in 2 more groups)``: the first unbroken band of the first group."""
        hit = flagged.nonzero().flatten()
        groups = self.group_of[hit]
        group = int(groups[0])
        inside = (hit[groups == group] - sum(self.sizes[:group])).tolist()
        first = inside[0]
        last = next((row for row, after in zip(inside, inside[1:], strict=False) if after != row + 1), inside[-1])
        rows = f"row {first}" if first == last else f"rows {first}..{last}"
        others = len(set(groups.tolist())) - 1
        more = f" (and in {others} more group{'s' if others > 1 else ''})" if others else ""
        return f"group {group}: {rows} of {self.sizes[group]} {what}{more}"
