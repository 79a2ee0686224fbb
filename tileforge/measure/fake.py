"""A device without a GPU: times from arithmetic or from a recorded sweep, seeded noise, drift, planted faults.

:class:`FakeBench` answers in the calling process; :class:`FakeBackend` is the same device inside the real worker
process, where a planted crash is a real SIGKILL and a planted hang really hangs.
"""

from __future__ import annotations

import hashlib
import math
import os
import random
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tileforge.errors import InputError
from tileforge.formats import round_up
from tileforge.measure.protocol import Phase
from tileforge.measure.result import (
    CRASHED,
    LAUNCH_FAILED,
    NOT_MEASURED,
    OUT_OF_MEMORY,
    TIMEOUT,
    WRONG_RESULT,
    Measurement,
)
from tileforge.measure.sweep import Sweep, problem_text
from tileforge.problem import GroupedGemm
from tileforge.tactic import Tactic

if TYPE_CHECKING:
    from tileforge.toolchain import Kernel

FACTS: dict[str, Any] = {
    "name": "tileforge fake device", "sm": None, "sms": 132, "smem_per_block": 232448, "l2_bytes": 60 * 2**20,
    "memory_bytes": 141 * 10**9, "driver": None, "cuda": None, "torch": None, "fake": True,
}  # fmt: skip

#: What can be planted on a tactic, and the status that it must end as.
FAULTS = {
    "crash": CRASHED,
    "hang": TIMEOUT,
    "wrong": WRONG_RESULT,
    "nan": WRONG_RESULT,
    "launch": LAUNCH_FAILED,
    "poison": LAUNCH_FAILED,  # takes the context with it
    "memory": OUT_OF_MEMORY,
    "clock": NOT_MEASURED,  # reads -1, 0, NaN
}
#: Planted, it is right itself, and every tactic after it in the same process fails to launch.
SPOIL = "spoil"
_MESSAGES = {
    "crash": "the worker died (planted)",
    "hang": "hung (planted)",
    "wrong": "group 0: rows 64..127 are zero (planted)",
    "nan": "group 0: 1 value is NaN (planted)",
    "launch": "the GEMM did not launch (planted)",
    "poison": "an illegal memory access was encountered (planted)",
    "memory": "not enough device memory (planted)",
}

_BANDWIDTH = 4.3e12
_PEAK = {"bf16": 790e12, "fp8": 1400e12}


def model_us(problem: GroupedGemm, tactic: Tactic) -> float:
    """A made-up but plausible time: the roofline with rows padded to the tile, waves, and +-15 % by the tactic.

    Depends on nothing but its arguments, on every machine and Python version.
    """
    row_tile, column_tile = (tactic.tile[1], tactic.tile[0]) if tactic.swap_ab else tactic.tile[:2]
    sizes = [rows for rows in problem.sizes if rows]
    padded = sum(round_up(rows, row_tile) for rows in sizes)
    columns = round_up(problem.n, column_tile)
    tiles = padded // row_tile * (columns // column_tile)
    waste = round_up(tiles, 132) / tiles if tiles else 1.0
    arithmetic = 2 * padded * columns * problem.k / _PEAK.get(problem.format, 1800e12) * min(waste, 2.0)
    digest = hashlib.sha256(f"{tactic.kernel_id} {problem.key}".encode()).digest()
    taste = 0.85 + 0.30 * int.from_bytes(digest[:4], "big") / 2**32
    # Tiles much taller than a group's rows waste issue slots even where memory is the limit.
    idle = padded / problem.m if problem.m else 1.0
    taste *= 1 + 0.08 * math.log2(max(1.0, idle))
    runtime = hashlib.sha256(f"{tactic.id} {problem.key} {problem.m}".encode()).digest()
    taste *= 1 + 0.02 * runtime[0] / 255
    return 3.0 + 1e6 * max(problem.bytes() / _BANDWIDTH, arithmetic) * taste


class FakeDevice:
    """The shared part: raises nothing on a planted crash or hang, but says which fault is next.

    Parameters
    ----------
    times: us of (problem, tactic); by default :func:`model_us`, or the recorded samples when there are any.
    recorded: a sweep to replay; a tactic that it lacks is ``not_measured``.
    faults: by tactic id or kernel id, one of ``FAULTS`` or ``SPOIL``, or ``"crash:2"`` for the first two tries only.
    noise: relative standard deviation of a sample; replayed samples carry their own.
    drift: the factor that the clock has slowed by after ``drift_samples`` samples of anything (2.0: twice slower).
    """

    def __init__(
        self,
        *,
        times: Callable[[GroupedGemm, Tactic], float] | None = None,
        recorded: Sweep | None = None,
        faults: Mapping[str, str] | None = None,
        seed: int = 0,
        noise: float = 0.003,
        drift: float = 1.0,
        drift_samples: int = 100,
        facts: Mapping[str, Any] | None = None,
    ) -> None:
        for name, fault in (faults or {}).items():
            if fault.partition(":")[0] not in (*FAULTS, SPOIL):
                raise InputError(f"unknown fault {fault!r} for {name}: use one of {', '.join((*FAULTS, SPOIL))}")
        self._times, self._recorded, self._faults = times or model_us, recorded, dict(faults or {})
        self._seed, self._noise, self._drift, self._drift_samples = seed, noise, drift, drift_samples
        self._facts = {**FACTS, **(recorded.facts if recorded else {}), **(facts or {}), "fake": True}
        self._tries: dict[str, int] = {}
        self._taken = 0
        self._spoilt = False

    def facts(self) -> dict[str, Any]:
        return dict(self._facts)

    def fault(self, tactic: Tactic) -> str:
        """The fault that this try of ``tactic`` meets, ``""`` for none. Counts the try."""
        tries = self._tries[tactic.id] = self._tries.get(tactic.id, 0) + 1
        fault, _, first = (self._faults.get(tactic.id) or self._faults.get(tactic.kernel_id) or "").partition(":")
        if self._spoilt:
            return "launch"
        self._spoilt = fault == SPOIL
        return "" if self._spoilt or (first and tries > int(first)) else fault

    def sample(self, problem: GroupedGemm, tactic: Tactic, samples: int) -> Measurement:
        """``samples`` times, or the recorded failure."""
        generator = random.Random(f"{self._seed} {tactic.id} {problem_text(problem)} {self._taken}")
        if self._recorded is not None:
            found = self._recorded.of(problem).get(tactic.id)
            if found is None:
                return Measurement.failed(tactic, NOT_MEASURED, "not in the recorded sweep")
            if not found.ok:
                return found
            times = [generator.choice(found.samples_us) for _ in range(samples)]
            error = found.error
        else:
            true = self._times(problem, tactic)
            times = [true * max(0.5, generator.gauss(1.0, self._noise)) for _ in range(samples)]
            error = 0.0
        raw = []
        for value in times:
            raw.append(value * (1 + (self._drift - 1) * min(1.0, self._taken / self._drift_samples)))
            self._taken += 1
        return Measurement.of(tactic, raw, error=error, conditions={"fake": True})

    def failure(self, tactic: Tactic, fault: str) -> Measurement:
        if fault == "clock":
            return Measurement.of(tactic, [-1.0, 0.0, float("nan")], conditions={"fake": True})
        return Measurement.failed(tactic, FAULTS[fault], _MESSAGES[fault], conditions={"fake": True})


class FakeBench:
    """A :class:`~tileforge.measure.protocol.Bench` in the calling process. Parameters: :class:`FakeDevice`'s.

    ``calls`` counts what was measured, as (problem, tactic id, samples).
    """

    def __init__(self, **options: Any) -> None:
        self._device = FakeDevice(**options)
        self.calls: list[tuple[GroupedGemm, str, int]] = []

    def facts(self) -> dict[str, Any]:
        return self._device.facts()

    def measure(
        self, problem: GroupedGemm, tactic: Tactic, kernel: Kernel | None = None, samples: int = 7
    ) -> Measurement:
        self.calls.append((problem, tactic.id, samples))
        fault = self._device.fault(tactic)
        return self._device.failure(tactic, fault) if fault else self._device.sample(problem, tactic, samples)

    def renew(self) -> None:
        pass  # it has no process

    def close(self) -> None:
        pass

    def __enter__(self) -> FakeBench:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class FakeBackend:
    """The fake device as a worker's backend: faults really happen to the process."""

    def __init__(self, *, recorded_path: str | None = None, seconds: float = 0.0, **options: Any) -> None:
        """``recorded_path`` names a sweep file; ``seconds`` is how long each measurement takes."""
        recorded = Sweep.load(Path(recorded_path)) if recorded_path else None
        self._device = FakeDevice(recorded=recorded, **options)
        self._seconds = seconds
        self.dead = False

    def facts(self) -> dict[str, Any]:
        return {**self._device.facts(), "pid": os.getpid()}

    def measure(
        self, problem: GroupedGemm, tactic: Tactic, kernel: Path | None, samples: int, phase: Phase
    ) -> Measurement:
        phase("inputs")
        fault = self._device.fault(tactic)
        phase("check")
        if fault == "crash":
            os.kill(os.getpid(), signal.SIGKILL)
        while fault == "hang":
            time.sleep(60)
        if fault:
            self.dead = fault == "poison"
            return self._device.failure(tactic, fault)
        phase("time")
        time.sleep(self._seconds)
        return self._device.sample(problem, tactic, samples)

    def baseline(self, name: str, problem: GroupedGemm | None, samples: int) -> dict[str, Any]:
        raise InputError(f"a fake device has no baseline {name!r}")

    def close(self) -> None:
        pass
