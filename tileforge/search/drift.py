"""Follows the clock through a search: one tactic is measured again and again, and says how fast time runs.

Used only to see which tactics are worth a place in the finals. Recorded times are never corrected.
"""

from __future__ import annotations

from bisect import bisect_left
from statistics import median

from tileforge.measure.result import Measurement

#: Anchors that agree this well say nothing about the clock but only about themselves.
_QUIET = 1.02


class Timeline:
    """Measurements in the order in which they were taken, and those of the anchor among them."""

    def __init__(self) -> None:
        self._taken: dict[str, list[tuple[int, Measurement]]] = {}
        self._anchors: list[tuple[int, float]] = []
        self._count = 0

    def add(self, measurement: Measurement, *, anchor: bool = False) -> None:
        """``anchor`` measurements count for the clock alone, unless the tactic has no others."""
        position = self._count
        self._count += 1
        if anchor and measurement.median_us is not None and measurement.ok:
            self._anchors.append((position, measurement.median_us))
        else:
            self._taken.setdefault(measurement.tactic.id, []).append((position, measurement))

    def start_anchor(self, measurement: Measurement) -> None:
        """The anchor's own trial, the newest one added, opens the line."""
        if measurement.median_us is not None:
            self._anchors.append((self._count - 1, measurement.median_us))

    def factor(self, position: int) -> float:
        """How much slower the clock ran at ``position`` than at the first anchor; 1.0 when it is steady."""
        times = [time for _, time in self._anchors]
        if len(times) < 2 or max(times) <= _QUIET * min(times):
            return 1.0
        after = bisect_left(self._anchors, (position, 0.0))
        if after == 0:
            time = times[0]
        elif after == len(times):
            time = times[-1]
        else:
            (x0, t0), (x1, t1) = self._anchors[after - 1], self._anchors[after]
            time = t0 + (t1 - t0) * (position - x0) / (x1 - x0)
        return time / times[0]

    def fair_us(self, tactic_id: str) -> float:
        """Median of the samples with the clock's drift taken out. KeyError when there are none."""
        return median(
            sample / self.factor(position)
            for position, measurement in self._taken[tactic_id]
            for sample in measurement.samples_us
        )
