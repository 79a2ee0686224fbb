"""What a tuning run answers for one problem: the tactic, what it stands on, and how to get better."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tileforge.problem import GroupedGemm
from tileforge.tactic import Tactic

if TYPE_CHECKING:
    from tileforge.arch.gpus import Gpu
    from tileforge.db.record import Record
    from tileforge.predict import Prediction
    from tileforge.search import SearchResult

MEASURED, PREDICTED, NOTHING, INTERRUPTED = "measured", "predicted", "nothing to launch", "interrupted"
#: Timed on a fake device: what a test or a rehearsal gives, never a measurement.
FAKE = "fake"


@dataclass(frozen=True)
class Confirmed:
    """What the compiler said of a predicted leader: ``stages`` and ``smem_bytes``, or ``error`` in one line."""

    tactic: Tactic
    stages: int = 0
    smem_bytes: int = 0
    error: str = ""

    def as_dict(self) -> dict[str, Any]:
        said = {"error": self.error} if self.error else {"stages": self.stages, "smem_bytes": self.smem_bytes}
        return {"tactic": self.tactic.id, **said}


@dataclass(frozen=True)
class TuneResult:
    """The answer for one problem.

    ``provenance``: ``measured``, ``fake`` (of a fake device), ``predicted``, ``nothing to launch`` (M = 0), or
    ``interrupted`` (measured, but stopped before its finals: not recorded). ``time_us``, ``default_us`` are measured
    medians, None otherwise; ``predicted_us``, ``default_predicted_us`` are the model's, there in any case, and never a
    time.
    ``fake``: times of a fake device. ``pruning``: the summary line of the space. ``confirmed``: leaders that the
    compiler was asked about. ``record``: what was put into the database, ``stored`` what became of it.
    ``command``: what would measure this problem.
    """

    problem: GroupedGemm
    provenance: str
    gpu: Gpu | None = None
    tactic: Tactic | None = None
    default: Tactic | None = None
    reason: str = ""
    time_us: float | None = None
    default_us: float | None = None
    predicted_us: float | None = None
    default_predicted_us: float | None = None
    fake: bool = False
    pruning: str = ""
    leaders: tuple[tuple[Tactic, Prediction], ...] = ()
    confirmed: tuple[Confirmed, ...] = ()
    search: SearchResult | None = field(default=None, repr=False)
    record: Record | None = field(default=None, repr=False)
    stored: str = ""
    command: str = ""
    notes: tuple[str, ...] = ()

    @property
    def speedup(self) -> float | None:
        """The default's time over this tactic's, both measured or, where nothing was, both predicted."""
        pair = (self.default_us, self.time_us)
        if self.provenance == PREDICTED:
            pair = (self.default_predicted_us, self.predicted_us)
        return pair[0] / pair[1] if pair[0] and pair[1] else None

    @property
    def failures(self) -> dict[str, list[str]]:
        """``tactic id: message`` of what failed, by class."""
        found = self.search.failures if self.search else {}
        return {status: [f"{each.tactic.id}: {each.message}" for each in failed] for status, failed in found.items()}

    def as_dict(self) -> dict[str, Any]:
        """Plain values for ``--json``."""
        values: dict[str, Any] = {
            "problem": self.problem.as_dict() | {"rows_per_group": self.problem.rows_per_group},
            "gpu": self.gpu.sku if self.gpu else None,
            "provenance": self.provenance,
            "tactic": self.tactic.as_dict() if self.tactic else None,
            "tactic_id": self.tactic.id if self.tactic else None,
            "default_id": self.default.id if self.default else None,
            "reason": self.reason,
        }
        for name in ("time_us", "default_us", "predicted_us", "default_predicted_us", "speedup"):
            values[name] = getattr(self, name)
        values |= {
            "fake": self.fake,
            "pruning": self.pruning,
            "confirmed": [each.as_dict() for each in self.confirmed],
            "ties": list(self.search.choice.ties) if self.search else [],
            "evaluated": self.search.evaluated if self.search else 0,
            "failures": self.failures,
            "stored": self.stored or None,
            "command": self.command or None,
            "notes": list(self.notes),
        }
        return values
