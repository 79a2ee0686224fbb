"""Searches that are killed go on where they were; sweeps too. Fake devices only."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import optuna
import pytest
from fake_search import (
    PROBLEM,
    A,
    B,
    FakeBuilder,
    Interrupted,
    family,
    load,
    measured,
    ranking,
    search,
)

from tileforge.errors import InputError, TileforgeError
from tileforge.measure import FakeBench
from tileforge.measure.sweep import Sweep
from tileforge.search import KernelSource, run, sweep
from tileforge.search.scratch import Scratch, drop_torn_line
from tileforge.search.study import TacticStudy, params_of
from tileforge.tactic import DEFAULT

# -- killed and resumed ----------------------------------------------------------------------------------------

SLOW_RUN = """
import sys, time
from pathlib import Path
sys.path.insert(0, {tests!r})
from fake_search import PROBLEM, family, ranking
from tileforge.measure import FakeBench
from tileforge.search import run
from tileforge.tactic import DEFAULT

class Slow(FakeBench):
    def measure(self, *args, **more):
        print("measuring", args[1].id, flush=True)
        time.sleep(0.05)
        return super().measure(*args, **more)

guessed = ranking(family(30))
run(PROBLEM, family(30), DEFAULT, bench=Slow(), budget={budget!r}, journal=Path({journal!r}), predictions=guessed)
"""


@pytest.mark.parametrize("kill_after", [1, 5, 13])
def test_kill_9_loses_nothing_that_was_measured(tmp_path: Path, kill_after: int) -> None:
    journal = tmp_path / "study.journal"
    code = SLOW_RUN.format(tests=str(Path(__file__).parent), budget=20, journal=str(journal))
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    begun = {child.stdout.readline() for _ in range(kill_after)}
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdout.close()
    lines = (tmp_path / "study.samples.jsonl").read_text().splitlines() if kill_after > 1 else []
    there = {json.loads(line)["measurement"]["tactic"] for line in lines if '"trial"' in line}
    tactics = family(30)
    bench = FakeBench()
    result = search(tactics, bench, 20, journal=journal, predictions=ranking(tactics))
    assert result.resumed == len(there) >= len(begun) - 1
    measured_again = {tactic for _, tactic, samples in bench.calls if samples == 7}
    repeats = [tactic for tactic in measured_again & there if len(result.measurements[tactic].samples_us) < 14]
    assert not repeats  # no first samples twice; more samples on purpose are fine
    assert result.evaluated == 20
    states = [trial.state.name for trial in load(journal).trials]
    assert states.count("COMPLETE") == 20 and not {"RUNNING", "WAITING"} & set(states)
    assert result.choice.tactic == search(tactics, FakeBench(), 20, predictions=ranking(tactics)).choice.tactic


def test_zombies_are_queued_again_and_their_finished_measurements_are_told(tmp_path: Path) -> None:
    tactics, journal = family(12), tmp_path / "study.journal"
    study = TacticStudy(tactics, name="x", journal=journal)
    study.tell(study.start(tactics[0]), measured(tactics[0], 9.0))
    study.start(tactics[1])  # killed before its measurement was written
    study.start(tactics[2])  # killed between writing and telling
    study._study.enqueue_trial(params_of(tactics[3]))  # killed between enqueuing and asking
    on_disk = {t.id: measured(t, 9.0) for t in (tactics[0], tactics[2], tactics[4])}
    resumed = TacticStudy(tactics, name="x", journal=journal)
    assert resumed.recover(on_disk) == [tactics[1]]
    assert resumed.told == 3
    assert {trial.state.name for trial in load(journal).trials} == {"COMPLETE", "FAIL"}
    assert TacticStudy(tactics, name="x", journal=journal).recover(on_disk) == []
    number = resumed.start(tactics[1])
    assert load(journal).trials[number].params == params_of(tactics[1])


def test_a_line_cut_off_by_a_kill_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "study.samples.jsonl"
    Scratch(path, "x").write("trial", measured(A, 9.0))
    with path.open("a") as file:
        file.write('{"study": "x", "kind": "tri')
    scratch = Scratch(path, "x")
    scratch.write("trial", measured(B, 8.0))
    assert [measurement.tactic for _, measurement in scratch.read()] == [A, B]
    assert list(Scratch(path, "another").read()) == []
    drop_torn_line(path)
    assert len(path.read_text().splitlines()) == 2


def test_another_device_or_problem_does_not_resume(tmp_path: Path) -> None:
    tactics, journal = family(6), tmp_path / "study.journal"
    assert search(tactics, FakeBench(), journal=journal).resumed == 0
    assert search(tactics, FakeBench(), journal=journal).resumed == 6
    assert search(tactics, FakeBench(facts={"name": "another"}), journal=journal).resumed == 0
    assert search(tactics, FakeBench(), journal=journal, context="CUTLASS 9").resumed == 0
    assert run(PROBLEM.with_m(64), tactics, DEFAULT, bench=FakeBench(), journal=journal).resumed == 0


def test_a_journal_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(TileforgeError) as caught:
        search(family(6), FakeBench(), journal=tmp_path / "file" / "study.journal")
    assert "cannot write" in str(caught.value) and "\n" not in str(caught.value)


def test_optuna_is_imported_late_and_left_as_it_was() -> None:
    code = "import sys, tileforge.search, tileforge.predict; print('optuna' in sys.modules, 'torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.split() == ["False"] * 2
    before = optuna.logging.get_verbosity()
    tactics = family(20)
    search(tactics, FakeBench(), 12)
    assert optuna.logging.get_verbosity() == before


def test_optuna_says_nothing(capfd: pytest.CaptureFixture[str], recwarn: pytest.WarningsRecorder) -> None:
    search(family(20), FakeBench(), 14)
    assert capfd.readouterr() == ("", "")
    assert not recwarn.list


# -- sweeps ----------------------------------------------------------------------------------------------------


def test_a_sweep_measures_everything_and_replays(tmp_path: Path) -> None:
    tactics, path = family(10), tmp_path / "sweep.jsonl"
    problems = [PROBLEM, PROBLEM.with_m(32)]
    bench = FakeBench(faults={tactics[2].id: "wrong"})
    builder = FakeBuilder([tactics[5]])
    known = sweep(problems, tactics, path, bench=bench, kernels=KernelSource(builder, "sm90"), note="a test")
    assert len(known) == 20 and len(builder.batches) == 1
    loaded = Sweep.load(path)
    assert loaded.note == "a test" and loaded.facts["name"] == bench.facts()["name"]
    statuses = {tactic: each.status for tactic, each in loaded.of(PROBLEM).items()}
    assert statuses.pop(tactics[2].id) == "wrong_result" and statuses.pop(tactics[5].id) == "compile_failed"
    assert set(statuses.values()) == {"ok"}
    assert [tactic for problem, tactic, _ in bench.calls if problem == PROBLEM] != [t.id for t in tactics]
    result = search(tactics, FakeBench(recorded=loaded))
    assert result.evaluated == 10 and result.choice.tactic is not None


def test_a_sweep_goes_on_where_it_stopped(tmp_path: Path) -> None:
    tactics, path = family(10), tmp_path / "sweep.jsonl"
    with pytest.raises(KeyboardInterrupt):
        sweep([PROBLEM], tactics, path, bench=Interrupted(6))
    with path.open("a") as file:
        file.write('{"problem": "m=5')  # torn
    bench = FakeBench()
    known = sweep([PROBLEM], tactics, path, bench=bench)
    # Of the first run's five, one was thrown away: six are left, and again one is thrown away.
    assert len(bench.calls) == 7 and len(known) == len(Sweep.load(path)) == 10
    with pytest.raises(InputError, match="another file"):
        sweep([PROBLEM], tactics, path, bench=FakeBench(facts={"sms": 7}))


def test_a_sweep_in_two_passes_adds_samples_in_another_order_and_tries_no_failure_again(tmp_path: Path) -> None:
    tactics, path = family(10), tmp_path / "sweep.jsonl"
    bench = FakeBench(faults={tactics[2].id: "nan"})
    known = sweep([PROBLEM], tactics, path, bench=bench, samples=3, passes=2).of(PROBLEM)
    assert {len(each.samples_us) for each in known.values() if each.ok} == {6}
    called = [tactic for _, tactic, _ in bench.calls]
    assert called.count(tactics[2].id) <= 2 and len(called) >= 1 + 10 + 9
    first = [tactic for tactic in called[1:11] if tactic != tactics[2].id]
    assert first != called[-9:] and sorted(first) == sorted(called[-9:])
    loaded = Sweep.load(path).of(PROBLEM)
    assert {name: len(each.samples_us) for name, each in loaded.items()} == {
        name: len(each.samples_us) for name, each in known.items()
    }


def test_this_file_is_quick() -> None:
    """The search itself costs milliseconds, the rest is the device's: 30 trials of a fake one in under 3 s."""
    start = time.perf_counter()
    search(family(41), FakeBench(), 30)
    assert time.perf_counter() - start < 3.0


def test_a_full_disk_is_one_line() -> None:
    with pytest.raises(TileforgeError) as caught:
        Scratch(Path("/dev/full"), "x").write("trial", measured(A, 9.0))
    assert "No space left" in str(caught.value) and "\n" not in str(caught.value)
