"""The real worker process, pipe, kill and restart, with a backend that needs no GPU."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tileforge.errors import DeviceError
from tileforge.measure import Bench
from tileforge.measure.fake import FAULTS, SPOIL
from tileforge.measure.worker import Timeouts, WorkerBench
from tileforge.problem import GroupedGemm
from tileforge.tactic import DEFAULT, Tactic

FAKE = "tileforge.measure.fake:FakeBackend"
PROBLEM = GroupedGemm(512, 4096, 6144, 32, "bf16", routing="uniform")
TACTICS = [Tactic.parse(f"128x{n}x{k}_c1x1_coop_swap") for n in (16, 32, 64, 128) for k in (32, 64, 96, 128, 256)]
QUICK = Timeouts(start=60, inputs=20, check=1.0, time=5, baseline=5, close=5)


def make(**options: Any) -> WorkerBench:
    return WorkerBench(FAKE, options, timeouts=QUICK)


@pytest.fixture
def bench() -> Iterator[WorkerBench]:
    with make() as bench:
        yield bench


def gone(pid: int) -> bool:
    for _ in range(100):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.05)
    return False


def test_it_measures_in_another_process_and_keeps_it(bench: WorkerBench) -> None:
    assert isinstance(bench, Bench)
    pid = bench.facts()["pid"]
    assert pid != os.getpid() and os.getpgid(pid) == pid, "a process group of its own"
    answers = [bench.measure(PROBLEM, tactic, samples=3) for tactic in TACTICS[:3]]
    assert all(answer.ok and len(answer.samples_us) == 3 for answer in answers)
    assert bench.facts()["pid"] == pid and bench.restarts == 0
    bench.close()
    assert gone(pid)
    bench.close()


def test_a_tactic_that_kills_the_worker_costs_only_itself_M4() -> None:
    with make(faults={TACTICS[6].id: "crash"}) as bench:
        answers = [bench.measure(PROBLEM, tactic) for tactic in TACTICS]
        assert len(answers) == 20
        assert [answer.status for answer in answers] == ["ok"] * 6 + ["crashed"] + ["ok"] * 13
        assert answers[6].message == "the worker died in check: signal SIGKILL"
        assert bench.restarts == 2, "a second time in a new worker, because anybody can kill a process once"


@pytest.mark.parametrize("fault", sorted(set(FAULTS) - {"crash"}))
def test_every_fault_gets_its_class_and_the_next_tactic_its_time(fault: str) -> None:
    with make(faults={TACTICS[1].id: fault}) as bench:
        pid = bench.facts()["pid"]
        assert bench.measure(PROBLEM, TACTICS[0]).ok
        assert bench.measure(PROBLEM, TACTICS[1]).status == FAULTS[fault]
        assert bench.measure(PROBLEM, TACTICS[2]).ok
        replaced = fault in ("hang", "poison")  # a lost context is not worked with; it fails again in a new worker
        assert bench.restarts == 2 * replaced
        assert gone(pid) == replaced if replaced else bench.facts()["pid"] == pid


def test_what_fails_after_a_tactic_that_spoilt_the_context_is_measured_again() -> None:
    """One bad candidate must not make the next twenty look unsupported (a canary kernel tells)."""
    with make(faults={TACTICS[3].id: SPOIL, TACTICS[5].id: "launch"}) as bench:
        answers = [bench.measure(PROBLEM, tactic) for tactic in TACTICS]
        assert [answer.status for answer in answers] == ["ok"] * 5 + ["launch_failed"] + ["ok"] * 14
        assert bench.restarts == 1, "the canary was right after tactic 5, in the new worker"


def test_the_first_failure_of_a_worker_is_its_own() -> None:
    with make(faults={TACTICS[0].id: "launch", TACTICS[1].id: "launch"}) as bench:
        assert bench.measure(PROBLEM, TACTICS[0]).status == "launch_failed" and bench.restarts == 0
        assert bench.measure(PROBLEM, TACTICS[1]).status == "launch_failed"
        assert bench.restarts == 1, "no canary yet, so a new worker had to tell"


def test_a_worker_is_recycled_after_a_number_of_tactics() -> None:
    with WorkerBench(FAKE, {"faults": {TACTICS[3].id: "launch"}}, timeouts=QUICK, recycle=4) as bench:
        pids, statuses = [], []
        for tactic in TACTICS[:9]:
            statuses.append(bench.measure(PROBLEM, tactic).status)
            pids.append(bench.facts()["pid"])
        assert statuses == ["ok"] * 3 + ["launch_failed"] + ["ok"] * 5
        assert [pids.index(pid) for pid in pids] == [0, 0, 0, 0, 4, 4, 4, 4, 8] and bench.restarts == 0


def test_one_kill_blames_nobody() -> None:
    with make(seconds=0.5) as bench:
        pid = bench.start().pid
        timer = threading.Timer(0.25, lambda: os.kill(pid, signal.SIGKILL))
        timer.start()
        assert bench.measure(PROBLEM, TACTICS[0]).ok and bench.restarts == 1
        timer.join()


def test_a_hang_is_killed_in_time_and_says_where() -> None:
    with make(faults={DEFAULT.id: "hang"}) as bench:
        bench.start()
        before = time.monotonic()
        answer = bench.measure(PROBLEM, DEFAULT)
        assert time.monotonic() - before < 10
        assert answer.status == "timeout" and answer.message == "no answer from check within 1 s: killed"


def test_a_worker_that_died_between_requests_is_nobodys_fault(bench: WorkerBench) -> None:
    for _ in range(3):
        pid = bench.start().pid
        os.kill(pid, signal.SIGKILL)
        assert bench.measure(PROBLEM, DEFAULT).ok
    assert bench.restarts == 3


def test_kill_at_any_moment_loses_one_tactic_at_most() -> None:
    """kill -9 while it works: an answer for every tactic, a time or a failure that says that the worker died."""
    with make(seconds=0.15) as bench:
        bench.start()
        stop = threading.Event()

        def assassin() -> None:
            while not stop.wait(0.4):
                if bench._worker is not None:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(bench._worker.pid, signal.SIGKILL)

        thread = threading.Thread(target=assassin)
        thread.start()
        try:
            answers = [bench.measure(PROBLEM, tactic) for tactic in TACTICS[:8]]
        finally:
            stop.set()
            thread.join()
        assert bench.restarts >= 1
        for answer in answers:
            assert answer.ok or (answer.status in ("crashed", "not_measured") and "SIGKILL" in answer.message)
        assert bench.measure(PROBLEM, DEFAULT).ok


def test_an_interrupt_ends_the_worker_and_goes_on_up() -> None:
    with make(faults={DEFAULT.id: "hang"}) as bench:
        pid = bench.start().pid
        timer = threading.Timer(0.3, lambda: signal.raise_signal(signal.SIGINT))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            bench.measure(PROBLEM, DEFAULT)
        timer.join()
        assert gone(pid)
        assert bench.measure(PROBLEM, TACTICS[0]).ok


class Refuses:
    def __init__(self) -> None:
        raise DeviceError("no GPU to measure on: as planted")


class Buggy:
    dead = False

    def facts(self) -> dict[str, Any]:
        return {}

    def measure(self, *_: Any) -> Any:
        raise ZeroDivisionError("a bug")


class SlowInputs:
    dead = False

    def facts(self) -> dict[str, Any]:
        return {}

    def measure(self, problem: Any, tactic: Any, kernel: Any, samples: int, phase: Any) -> Any:
        phase("inputs")
        if problem.m == 1:
            os._exit(3)
        time.sleep(60)


class Mute:
    def __init__(self) -> None:
        os._exit(7)


def test_no_device_is_one_line() -> None:
    with WorkerBench(f"{__name__}:Refuses") as bench, pytest.raises(DeviceError) as caught:
        bench.facts()
    assert str(caught.value) == "no GPU to measure on: as planted"


def test_a_bug_in_the_backend_is_reported_and_survived() -> None:
    with WorkerBench(f"{__name__}:Buggy", timeouts=QUICK) as bench:
        for restarts in (1, 2):
            answer = bench.measure(PROBLEM, DEFAULT)
            assert answer.status == "crashed" and answer.message == "ZeroDivisionError: a bug"
            assert bench.restarts == restarts


def test_what_goes_wrong_before_the_tactic_ran_is_not_blamed_on_it() -> None:
    timeouts = Timeouts(inputs=0.5)
    with WorkerBench(f"{__name__}:SlowInputs", timeouts=timeouts) as bench:
        hung = bench.measure(PROBLEM, DEFAULT)
        assert (hung.status, hung.message) == ("not_measured", "no answer from inputs within 0.5 s: killed")
        died = bench.measure(PROBLEM.with_m(1), DEFAULT)
        assert (died.status, died.message) == ("not_measured", "the worker died in inputs: exit code 3")


def test_a_worker_that_cannot_start_is_a_device_error() -> None:
    with WorkerBench(f"{__name__}:Mute") as bench, pytest.raises(DeviceError, match="exit code 7"):
        bench.measure(PROBLEM, DEFAULT)
    with WorkerBench("tileforge.nowhere:Backend") as bench, pytest.raises(DeviceError, match="failed to start"):
        bench.facts()


def test_baselines_are_refused_in_one_line(bench: WorkerBench) -> None:
    with pytest.raises(DeviceError, match="fake device has no baseline"):
        bench.baseline("copy")
    assert bench.restarts == 0 and bench.measure(PROBLEM, DEFAULT).ok


def test_gpu_was_asked_for_and_there_is_none() -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    from tileforge.measure.gpu import GpuBench

    with pytest.raises(DeviceError, match="no GPU to measure on") as caught:
        GpuBench()
    assert "\n" not in str(caught.value)
