"""What a search answers: every measurement, the choice with its reason, and what failed by class."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tileforge.measure.result import Measurement
from tileforge.problem import GroupedGemm
from tileforge.tactic import Tactic


@dataclass(frozen=True)
class Choice:
    """The tactic to use. ``tactic`` None: nothing gave a right result.

    ``reason`` is one line. ``ties`` are ids that cannot be told from the fastest, in the fixed order (the default,
    then least shared memory, then id). ``confidence`` is that of "faster than the default", None when the default
    was kept or no finals were held. ``final`` False: chosen from the search's own samples.
    """

    tactic: Tactic | None
    reason: str
    ties: tuple[str, ...] = ()
    confidence: float | None = None
    final: bool = False


@dataclass(frozen=True)
class Finals:
    """Interleaved rounds: ``rounds[i][tactic id]`` is a median in us, in the order in which it was measured."""

    rounds: tuple[Mapping[str, float], ...]
    measurements: Mapping[str, Measurement]
    failures: Mapping[str, Measurement] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        return {"rounds": [dict(each) for each in self.rounds]}


@dataclass(frozen=True)
class SearchResult:
    """``measurements``: by tactic id, failures included. ``best`` and ``default`` are times to compare: of the
    finals where these were held, of the search otherwise.

    ``evaluated`` counts tactics, ``survivors`` those that could have been; ``resumed`` were measured by an earlier
    run. ``interrupted``: stopped by Ctrl-C, and so without finals. ``confirmed``: whether finals in a fresh process
    agreed; None when they were not repeated.
    """

    problem: GroupedGemm
    measurements: Mapping[str, Measurement]
    choice: Choice
    best: Measurement | None
    default: Measurement | None
    survivors: int
    finals: Finals | None = None
    exhaustive: bool = False
    interrupted: bool = False
    confirmed: bool | None = None
    resumed: int = 0
    seconds: float = 0.0

    @property
    def evaluated(self) -> int:
        return len(self.measurements)

    @property
    def failures(self) -> dict[str, list[Measurement]]:
        """Failed measurements by class, in the order in which they happened."""
        found: dict[str, list[Measurement]] = {}
        for measurement in self.measurements.values():
            if not measurement.ok:
                found.setdefault(measurement.status, []).append(measurement)
        return found

    @property
    def speedup(self) -> float | None:
        """The default's time over the chosen tactic's; 1.0 when the default was kept."""
        if self.best is None or self.default is None or not self.best.median_us or not self.default.median_us:
            return None
        return self.default.median_us / self.best.median_us

    def summary(self) -> str:
        """``24 of 38 measured, 2 failed to compile, 1 wrong result``."""
        counts = Counter({status: len(failed) for status, failed in self.failures.items()})
        failed = "".join(f", {count} {status.replace('_', ' ')}" for status, count in counts.items())
        right = sum(1 for measurement in self.measurements.values() if measurement.ok)
        return f"{right} of {self.survivors} measured{failed}"
