"""Every step of a measurement in the real worker, with pretend kernels on the CPU."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")

from tileforge.measure import conditions
from tileforge.measure.backend import KernelFailure
from tileforge.measure.host import BUGS, HostBackend
from tileforge.measure.timing import MAX_CALLS, SAMPLE_US, calls_for
from tileforge.measure.worker import WorkerBench
from tileforge.problem import GroupedGemm
from tileforge.tactic import DEFAULT, Tactic

PROBLEM = GroupedGemm(197, 64, 256, 5, "nvfp4", routing="rows:0,65,129,3,0")
TACTICS = {bug: Tactic.parse(f"128x128x{256 + 16 * index}") for index, bug in enumerate(BUGS)}
STATUSES = {"launch": "launch_failed", "context": "launch_failed", "memory": "out_of_memory"}


@pytest.fixture(scope="module")
def bench() -> Iterator[WorkerBench]:
    bugs = {tactic.id: bug for bug, tactic in TACTICS.items()}
    with WorkerBench("tileforge.measure.host:HostBackend", {"bugs": bugs, "l2_bytes": 200_000}) as bench:
        yield bench


def test_a_right_tactic_is_checked_timed_and_checked_again(bench: WorkerBench) -> None:
    measured = bench.measure(PROBLEM, DEFAULT, samples=4)
    assert measured.ok, measured.message
    assert len(measured.samples_us) == 4 and measured.error is not None and 5e-4 < measured.error < 4e-3
    assert measured.conditions["sets"] > 1 and measured.conditions["cold"] >= 2.0
    assert "deterministic" not in measured.conditions


@pytest.mark.parametrize("bug", BUGS)
def test_no_wrong_tactic_gets_a_time_M5(bug: str, bench: WorkerBench) -> None:
    restarts = bench.restarts
    measured = bench.measure(PROBLEM, TACTICS[bug])
    assert measured.status == STATUSES.get(bug, "wrong_result")
    assert measured.message and measured.median_us is None
    assert measured.message.startswith("after repeated calls: ") == (bug == "late")
    assert bench.measure(PROBLEM, DEFAULT, samples=1).ok, "the next tactic has a working device"
    # Not blamed for a lost context before it lost one in a new worker too.
    assert bench.restarts - restarts == (2 if bug == "context" else 0)


@pytest.mark.parametrize("rows", ["0,5,0,130", "0,9", "9,0", "65,129"])
def test_ragged_and_empty_groups_P1_P2(rows: str, bench: WorkerBench) -> None:
    sizes = [int(part) for part in rows.split(",")]
    problem = GroupedGemm(sum(sizes), 64, 256, len(sizes), "mxfp4", routing=f"rows:{rows}")
    measured = bench.measure(problem, DEFAULT, samples=1)
    assert measured.ok, measured.message


def test_nothing_to_launch_is_not_timed_P1_P3(bench: WorkerBench) -> None:
    problem = GroupedGemm(0, 64, 256, 3, "mxfp4", routing="rows:0,0,0")
    measured = bench.measure(problem, DEFAULT)
    assert (measured.status, measured.message[:25]) == ("not_measured", "M = 0: nothing to launch,")
    assert bench.measure(problem, TACTICS["guard"]).status == "wrong_result"


def test_what_does_not_fit_is_not_measured_and_not_slow() -> None:
    with WorkerBench("tileforge.measure.host:HostBackend", {"memory": 2**20}) as bench:
        measured = bench.measure(PROBLEM, DEFAULT)
        assert measured.status == "out_of_memory"
        assert "not measured: the problem needs" in measured.message


def test_inputs_are_made_once_for_a_problem_and_let_go_for_the_next() -> None:
    backend = HostBackend(l2_bytes=0)
    phases: list[str] = []
    first = backend.hold(PROBLEM)
    assert backend.measure(PROBLEM, DEFAULT, None, 1, phases.append).ok
    assert phases == ["inputs", "check", "time"]
    renamed = GroupedGemm(**{**PROBLEM.as_dict(), "name": "a label"})
    assert backend.hold(renamed) is first, "a label makes no new problem"
    backend.measure(PROBLEM, DEFAULT, None, 1, phases.append)
    assert len(backend._prepared) == 1
    other = backend.hold(GroupedGemm(5, 64, 256, 5))
    assert other is not first and not backend._prepared
    for index in range(20):
        backend.measure(other.inputs.problem, Tactic.parse(f"128x{16 + index}x64"), None, 1, phases.append)
    assert len(backend._prepared) == 16, "what is kept is bounded"


def test_samples_are_long_enough_and_meet_every_set() -> None:
    assert calls_for(400.0, 1) == 5
    assert calls_for(5_000.0, 1) == 1
    assert calls_for(0.001, 1) == MAX_CALLS
    assert calls_for(5_000.0, 7) == 7
    for call_us, sets in ((3.0, 1), (3.0, 40), (370.0, 4), (2.5, 256)):
        calls = calls_for(call_us, sets)
        assert calls % sets == 0 and (calls * call_us >= SAMPLE_US or calls >= MAX_CALLS)


class Nvml:
    """NVML as nvidia-ml-py shows it; the power reading is not supported on this one."""

    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def nvmlInit(self) -> None:
        pass

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:
        self.asked.append(uuid)
        return "handle"

    def nvmlDeviceGetClockInfo(self, handle: str, which: int) -> int:
        return {1: 1980, 2: 3201}[which]

    def nvmlDeviceGetTemperature(self, handle: str, which: int) -> int:
        return 41

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: str) -> int:
        return 0x1 | 0x4 | 0x40

    def nvmlSystemGetDriverVersion(self) -> bytes:
        return b"580.159.03"


def test_conditions_are_read_and_missing_figures_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = Nvml()
    monkeypatch.setattr(conditions.importlib, "import_module", lambda name: nvml)
    read = conditions.Conditions("abc-1", 3)
    assert read.quick and nvml.asked == ["GPU-abc-1"]
    assert read.read() == {
        "sm_mhz": 1980, "memory_mhz": 3201, "temperature_c": 41, "reasons": ["power_cap", "hw_thermal"],
    }  # fmt: skip
    assert read.static() == {
        "driver": "580.159.03", "power_limit_w": None, "max_sm_mhz": None, "max_memory_mhz": None,
    }  # fmt: skip


def test_without_nvml_nvidia_smi_is_asked_and_its_absence_survived(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_package(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr(conditions.importlib, "import_module", no_package)
    read = conditions.Conditions("GPU-1")
    assert not read.quick and read.source == "nvidia-smi"

    def smi(command: list[str], **_: Any) -> Any:
        assert command[:2] == ["nvidia-smi", "--id=GPU-1"]
        if "driver_version" in command[2]:
            return SimpleNamespace(stdout="580.159.03, 700.00, 1980, 3201\n")
        return SimpleNamespace(stdout="1755, 3201, [N/A], 38\n")

    monkeypatch.setattr(conditions.subprocess, "run", smi)
    assert read.read() == {"sm_mhz": 1755, "memory_mhz": 3201, "temperature_c": 38}
    assert read.static() == {"driver": "580.159.03", "power_limit_w": 700, "max_sm_mhz": 1980, "max_memory_mhz": 3201}

    def no_smi(*_: Any, **__: Any) -> Any:
        raise FileNotFoundError("nvidia-smi")

    monkeypatch.setattr(conditions.subprocess, "run", no_smi)
    assert read.read() == {} and set(read.static().values()) == {None}


def test_nothing_that_sets_the_gpu_is_ever_called() -> None:
    source = Path(conditions.__file__).read_text()
    assert "nvmlDeviceSet" not in source and "Reset" not in source


def test_an_emulated_kernel_is_not_timed() -> None:
    """It runs on the GPU that is here, but its times say nothing about the SM whose kernel it is."""
    from tileforge.measure.cuda import _fit

    asked = GroupedGemm(8, 256, 256, 2, format="nvfp4")
    info = dict.fromkeys(("out", "cluster_m", "cluster_n", "schedule"), 1) | {"format": 3, "swap_ab": 0, "sm": 120}
    info |= dict.fromkeys(("tile_m", "tile_n", "tile_k"), 128)
    _fit(info, asked, DEFAULT, Path("kernel.so"))
    with pytest.raises(KernelFailure, match="emulated on sm90.*their times say nothing"):
        _fit(info | {"sm": 90}, asked, DEFAULT, Path("kernel.so"))
