"""kill -9 of the worker at random moments: the search ends with what it would have found undisturbed."""

from __future__ import annotations

import os
import random
import signal
from pathlib import Path
from typing import Any

from fake_search import PROBLEM, family

from tileforge.measure import Measurement
from tileforge.measure.fake import FakeBackend
from tileforge.measure.worker import Timeouts, WorkerBench
from tileforge.search import SearchResult, run
from tileforge.tactic import DEFAULT, Tactic

KILLS = 30
MOMENTS = ("inputs", "check", "time", "idle")


class Mortal(FakeBackend):
    """Kills its own process, really, at a random moment of about every second request, but not twice in a row.

    What it has done is a file, because nothing else outlives it.
    """

    def __init__(self, *, deaths: str, **options: Any) -> None:
        super().__init__(**options)
        self.deaths = Path(deaths)

    def measure(self, problem: Any, tactic: Tactic, kernel: Any, samples: int, phase: Any) -> Measurement:
        lived = self.deaths.read_text().split()
        died = [word for word in lived if word in MOMENTS]
        moment = "none"
        if (not lived or lived[-1] == "none") and len(died) < KILLS:
            moment = random.Random(len(lived)).choice((*MOMENTS, "none", "none"))
        self.deaths.write_text(" ".join([*lived, moment]))

        def entered(name: str) -> None:
            phase(name)
            if name == moment:
                os.kill(os.getpid(), signal.SIGKILL)

        if moment == "idle":
            os.kill(os.getpid(), signal.SIGKILL)
        return super().measure(problem, tactic, kernel, samples, entered)


def _searched(bench: WorkerBench) -> SearchResult:
    with bench:
        return run(PROBLEM, family(), DEFAULT, bench=bench, budget="all", pairs=8)


def test_30_kills_change_neither_the_choice_nor_any_measurement(tmp_path: Path) -> None:
    deaths = tmp_path / "deaths"
    deaths.write_text("")
    timeouts = Timeouts(start=60, inputs=20, check=20, time=20, close=5)
    calm = _searched(WorkerBench("tileforge.measure.fake:FakeBackend", {"noise": 0.0}, timeouts=timeouts))
    bench = WorkerBench(f"{__name__}:Mortal", {"noise": 0.0, "deaths": str(deaths)}, timeouts=timeouts)
    killed = _searched(bench)
    died = [word for word in deaths.read_text().split() if word in MOMENTS]
    assert len(died) == KILLS and set(died) == set(MOMENTS) and bench.restarts >= KILLS
    assert killed.choice == calm.choice and calm.choice.final
    assert killed.measurements == calm.measurements and all(each.ok for each in calm.measurements.values())
