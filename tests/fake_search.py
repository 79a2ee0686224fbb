"""What the tests of the search share: tactics, devices with known times, a builder that only counts."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import optuna

from tileforge.measure import FakeBench, Measurement
from tileforge.predict import Prediction
from tileforge.problem import GroupedGemm
from tileforge.search import SearchResult, run
from tileforge.tactic import DEFAULT, Tactic
from tileforge.toolchain.spec import KernelSpec

PROBLEM = GroupedGemm(512, 4096, 6144, 32, "bf16")


def family(count: int = 20) -> list[Tactic]:
    """``count`` tactics, the default among them, as alike and as different as real ones."""
    found = [DEFAULT]
    for n in (16, 32, 64, 128, 256):
        for k in (64, 128):
            for swap in (True, False):
                for schedule in ("cooperative", "pingpong"):
                    found.append(Tactic((128, n, k), schedule=schedule, swap_ab=swap))
    return list(dict.fromkeys(found))[:count]


def by_index(tactics: Sequence[Tactic], times: Sequence[float]) -> Callable[[GroupedGemm, Tactic], float]:
    table = {tactic: us for tactic, us in zip(tactics, times, strict=True)}
    return lambda _, tactic: table[tactic]


def quiet(tactics: Sequence[Tactic], times: Sequence[float], **options: Any) -> FakeBench:
    return FakeBench(times=by_index(tactics, times), noise=0.0005, **options)


def search(tactics: Sequence[Tactic], bench: Any, budget: Any = "all", **options: Any) -> SearchResult:
    return run(PROBLEM, tactics, DEFAULT, bench=bench, budget=budget, **options)


def measured(tactic: Tactic, *samples: float) -> Measurement:
    return Measurement(tactic, samples_us=samples)


A, B, C = family(4)[1:4]


def ranking(tactics: Sequence[Tactic]) -> list[tuple[Tactic, Prediction]]:
    return [(tactic, Prediction(10.0 + i)) for i, tactic in enumerate(tactics)]


def landscape(tactic: Tactic) -> float:
    """Narrow swapped tiles are fast, whatever the rest: what a sampler can learn."""
    rows = tactic.tile[1] if tactic.swap_ab else tactic.tile[0]
    return 100.0 + 20.0 * math.log2(rows / 16) + (0.0 if tactic.tile[2] == 128 else 3.0) + 2.0 * tactic.swizzle


@dataclass
class Built:
    spec: KernelSpec
    kernel: Any
    failure: str = ""
    message: str = ""


class FakeBuilder:
    """Counts batches; kernels in ``broken`` do not compile."""

    def __init__(self, broken: Sequence[Tactic] = (), jobs: int = 3) -> None:
        self.batches: list[list[KernelSpec]] = []
        self.broken, self.jobs = set(broken), jobs

    def build(self, specs: Sequence[KernelSpec], on_done: Callable[[Any], None] | None = None) -> list[Built]:
        self.batches.append(list(specs))
        outcomes = [
            Built(spec, None, "compile_failed", f"{spec.tactic.kernel_id}: static assertion failed")
            if spec.tactic in self.broken
            else Built(spec, f"kernel of {spec.id}")
            for spec in specs
        ]
        for outcome in outcomes:
            if on_done:
                on_done(outcome)
        return outcomes


class Interrupted(FakeBench):
    """Ctrl-C during call number ``at``."""

    def __init__(self, at: int, **options: Any) -> None:
        super().__init__(**options)
        self.at = at

    def measure(self, problem: GroupedGemm, tactic: Tactic, kernel: Any = None, samples: int = 7) -> Measurement:
        if len(self.calls) + 1 == self.at:
            self.calls.append((problem, tactic.id, 0))
            raise KeyboardInterrupt
        return super().measure(problem, tactic, kernel, samples)


def load(journal: Path) -> optuna.Study:
    backend = optuna.storages.journal.JournalFileBackend(str(journal))
    storage = optuna.storages.JournalStorage(backend)
    (name,) = (summary.study_name for summary in storage.get_all_studies())
    return optuna.load_study(study_name=name, storage=storage)
