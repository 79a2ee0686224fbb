"""M buckets: the sizes worth tuning between 1 row and the most that serving sends.

The best tile changes with the ratio of M, not with its difference, so buckets are geometric. A record made for a
bucket answers for every M up to it and above the bucket before: look-up rounds up, so that a tactic is never
asked to carry more rows than it was measured with.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from tileforge.errors import InputError


def buckets(largest: int, smallest: int = 1, per_octave: int = 1) -> tuple[int, ...]:
    """Powers of two that cover ``smallest`` to ``largest`` rows, the last one not below ``largest``.

    ``per_octave = 2`` adds the sizes half-way between (16, 24, 32, 48, ...), for kernels whose time jumps inside
    an octave. Raises InputError on an empty range.
    """
    if smallest < 1 or largest < smallest or per_octave not in (1, 2):
        raise InputError(f"no buckets from {smallest} to {largest} rows with {per_octave} per octave (1 or 2)")
    octaves = (1 << power for power in range(largest.bit_length() + 1))
    sizes = sorted({octave * part // 2 for octave in octaves for part in (2, 3)[:per_octave]})
    return tuple(sizes[bisect_left(sizes, smallest) : bisect_left(sizes, largest) + 1])


def bucket_of(m: int, sizes: Sequence[int]) -> int | None:
    """The smallest of the ascending ``sizes`` that is not below ``m`` (24 of 16 and 32: 32); None above the last."""
    place = bisect_left(sizes, m)
    return sizes[place] if place < len(sizes) else None
