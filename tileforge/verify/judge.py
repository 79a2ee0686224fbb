"""What a kernel left in its output, against what it should have left. Imports torch."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from tileforge.measure.inputs import GUARD_ROWS, POISON, Output
from tileforge.verify.cases import Case
from tileforge.verify.data import Expected


@dataclass(frozen=True)
class Found:
    """``message``: "" when everything is right, else what is wrong, with the first place.

    ``values``: elements compared. ``mismatches``: elements of exact data with other bits, and elements of any data
    that should not have been written, or were not. ``over_bound``: elements of random data too far off, NaN included.
    """

    values: int
    mismatches: int = 0
    signed_zeros: int = 0
    over_bound: int = 0
    worst_ratio: float = 0.0
    message: str = ""

    @property
    def ok(self) -> bool:
        return not self.mismatches and not self.over_bound and not self.message


def judge(case: Case, output: Output, expected: Expected) -> Found:
    """Looks at every element of the buffer, guards and spare rows included."""
    bits, poison = output.bits, POISON[output.out]
    used = slice(GUARD_ROWS, GUARD_ROWS + sum(case.sizes))
    differs = bits != expected.bits
    zeros = differs & (output.buffer == 0) & (expected.bits.view(output.buffer.dtype) == 0)
    outside = differs.clone()
    outside[used] = False
    unwritten = bits[used] == poison
    if expected.reference is None or expected.bound is None:
        wrong = differs & ~zeros
        mismatches = int(wrong.sum())
        message = _first(case, wrong, output, expected, outside, unwritten) if mismatches else ""
        return Found(bits.numel(), mismatches, int(zeros.sum()), message=message)
    rows = slice(0, sum(case.sizes))
    off = (output.rows[rows].double() - expected.reference[rows]).abs() / expected.bound[rows]
    too_far = ~(off <= 1)  # NaN is too far as well
    wrong = outside.clone()
    wrong[used] = too_far
    mismatches, over = int(outside.sum()) + int(unwritten.sum()), int(too_far.sum())
    worst = float(off.nan_to_num(float("inf")).max()) if off.numel() else 0.0
    message = _first(case, wrong, output, expected, outside, unwritten) if mismatches or over else ""
    return Found(bits.numel(), mismatches, 0, over, worst, message)


def _first(case: Case, wrong: Tensor, output: Output, expected: Expected, outside: Tensor, unwritten: Tensor) -> str:
    """``12 of 40,960 elements wrong, 3 not written; the first in group 1, row 4, column 17: 0.5 for 1.5``."""
    count, beyond, missing = int(wrong.sum()), int(outside.sum()), int(unwritten.sum())
    row, column = (int(x) for x in wrong.nonzero()[0])
    said = f"{count:,} of {wrong.numel():,} elements wrong"
    if beyond:
        said += f", {beyond:,} written where nothing belongs"
    if missing:
        said += f", {missing:,} not written"
    found = output.buffer[row, column].item()
    should = expected.bits.view(output.buffer.dtype)[row, column]
    if expected.reference is not None and 0 <= row - GUARD_ROWS < expected.reference.shape[0]:
        should = expected.reference[row - GUARD_ROWS, column]
    place = _place(case, row - GUARD_ROWS)
    wanted = f" for {should.item():g}" if place.startswith("group") else ""
    return f"{said}; the first in {place}, column {column}: {found:g}{wanted}"


def _place(case: Case, row: int) -> str:
    if row < 0:
        return f"guard row {row}"
    first = 0
    for group, size in enumerate(case.sizes):
        if row < first + size:
            return f"group {group}, row {row - first} of {size}"
        first += size
    return f"row {row - first} after the last group"


def changed(before: list[Tensor], after: list[Tensor]) -> bool:
    """Whether a kernel wrote into what it should only read."""
    return not all(torch.equal(old, new) for old, new in zip(before, after, strict=True))
