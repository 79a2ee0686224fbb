"""What a search tells while it runs. The command line draws it; nothing here prints."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tileforge.measure.result import Measurement
from tileforge.problem import GroupedGemm
from tileforge.tactic import Tactic


@dataclass(frozen=True)
class Event:
    """``kind``: ``start``, ``build`` (a batch begins), ``built`` (one kernel), ``trial`` (one tactic measured),
    ``more`` (samples added to one), ``finals`` (one round), ``done``; of a job also ``problem`` (the next one)
    and ``note`` (something to know).

    ``done`` of ``total`` count the kind's own unit (kernels, tactics, rounds); ``eta_s`` is seconds, None when
    nothing is known yet; ``best`` is the fastest right result so far.
    """

    kind: str
    problem: GroupedGemm
    done: int = 0
    total: int = 0
    eta_s: float | None = None
    tactic: Tactic | None = None
    measurement: Measurement | None = None
    best: Measurement | None = None
    message: str = ""


OnEvent = Callable[[Event], None]


def silent(_: Event) -> None:
    """Listens to nothing."""
