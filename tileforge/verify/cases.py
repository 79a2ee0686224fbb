"""The fixed cases that every kernel is put through. A case is sizes, how they are launched, and a kind of data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tileforge.formats import round_up

#: Counts up when cases, data or judgement change: rows of a table that an older set judged are judged again.
CASES_VERSION = 1

#: ``exact``: every sum is exact in float32 in any order, so right means equal bits. ``random``: quantised normal
#: values with scales as a model has them, so right means within a bound on rounding.
EXACT, RANDOM = "exact", "random"

#: Groups of all kinds: below, at and above the tiles' M, one row, none.
RAGGED = (5, 0, 64, 1, 128, 17, 33, 200)
#: More rows, over several tiles of every size.
TALL = (300, 0, 700, 129)


@dataclass(frozen=True)
class Case:
    """``sizes``: rows of each group. ``spare``: rows that A and D have beyond the last group's.

    ``sm_count``: blocks of the persistent grid, 0 for the device's own. ``raster`` and ``swizzle`` are the tactic's
    run-time fields.
    """

    name: str
    sizes: tuple[int, ...]
    n: int
    k: int
    data: str = EXACT
    spare: int = 0
    sm_count: int = 0
    raster: str = "heuristic"
    swizzle: int = 1

    @property
    def m(self) -> int:
        """Rows of A and D."""
        return sum(self.sizes) + self.spare

    @property
    def id(self) -> str:
        return f"{self.name}, {self.data} data"

    @property
    def operands(self) -> Operands:
        return Operands(self.sizes, self.n, self.k, self.data, self.spare)


@dataclass(frozen=True)
class Operands:
    """What of a case decides its tensors: cases that differ in launching only share them."""

    sizes: tuple[int, ...]
    n: int
    k: int
    data: str
    spare: int

    @property
    def m(self) -> int:
        return sum(self.sizes) + self.spare


def cases(k_multiple: int, n_multiple: int = 8) -> list[Case]:
    """All cases of a kernel whose K and N must be multiples of these: each once with exact, once with random data.

    K and N are rounded up to what the kernel takes; cases that become equal by that are there once.
    """
    plain: dict[object, Case] = {}
    for case in _cases():
        fitted = replace(case, n=round_up(case.n, n_multiple), k=round_up(case.k, k_multiple))
        plain.setdefault(replace(fitted, name=""), fitted)
    return [replace(case, data=data) for case in plain.values() for data in (EXACT, RANDOM)]


def _cases() -> Iterator[Case]:
    yield Case("ragged groups", RAGGED, 256, 512)
    yield Case("first group empty", (0, 70, 3), 256, 256)
    yield Case("last group empty", (3, 70, 0), 256, 256)
    yield Case("all groups empty", (0, 0, 0), 256, 256, spare=8)
    yield Case("no rows at all", (0, 0), 256, 256)
    yield Case("65 and 129 rows", (65, 129), 256, 256)
    yield Case("one row in each of 256 groups", (1,) * 256, 256, 256)
    for n in (200, 136):
        yield Case(f"N {n}", (65, 7), n, 256)
    for k in (64, 96, 128, 1504, 4096):
        yield Case(f"K {k}", (33, 129, 0, 5), 136, k)
    for sms in (2, 188):
        yield Case(f"{sms} SMs", RAGGED, 256, 512, sm_count=sms)
    for raster in ("m", "n"):
        for swizzle in (1, 2, 4, 8):
            yield Case(f"raster {raster}, swizzle {swizzle}", TALL, 1024, 256, raster=raster, swizzle=swizzle)
    yield Case("several tiles a block", (300, 0, 700), 1032, 640, sm_count=3, spare=40)
