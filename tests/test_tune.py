"""``tileforge.tune``: the whole line from problems to records, on fake devices."""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

import pytest
from fake_tune import (
    CUTLASS,
    FakeBuilder,
    H200Bench,
    UnknownBench,
    measured,
    moe,
    no_gpu_here,  # noqa: F401
    predicted,
)

import tileforge
from tileforge.db import TuningDB
from tileforge.errors import BuildError, DatabaseError, DeviceError, InputError, NoLegalTacticError
from tileforge.measure import Measurement
from tileforge.problem import GroupedGemm
from tileforge.search import Event
from tileforge.tactic import DEFAULT, Tactic
from tileforge.tuning import tune

# -- measured --------------------------------------------------------------------------------------------------


def test_measured_problems_become_measured_records(tmp_path: Path) -> None:
    db = tmp_path / "tuning_db"
    results = measured([moe(1), moe(16)])
    assert [result.provenance for result in results] == ["measured", "measured"]
    for result in results:
        assert result.gpu is not None and result.gpu.sku == "h200" and not result.fake
        assert result.time_us and result.default_us and result.speedup and result.speedup >= 1.0
        assert result.default == DEFAULT
        assert result.search is not None and result.search.evaluated == 16
        assert result.stored == "added"
        assert " legal of " in result.pruning
        assert "--timer gpu" in result.command and "--gpu h200" in result.command
    records = list(TuningDB(db).records())
    assert [record.m for record in records] == [32, 512]
    for record, result in zip(records, results, strict=True):
        assert record.provenance == "measured" and record.tactic == result.tactic
        assert record.time_us == pytest.approx(result.time_us, rel=1e-4)
        assert record.default == DEFAULT and record.default_us == pytest.approx(result.default_us, rel=1e-4)
        assert record.samples == 2 * 36, "of two finals"
        assert record.low_us is not None and record.high_us is not None
        assert record.environment["cutlass"] == "4.5.0"
        assert record.environment["cutlass_digest"] == "abcabcabcabc"
        assert record.environment["compiler"] == "nvcc 13.0.88"
        assert record.environment["driver"] == "570.1"
        assert "timer" not in record.environment
    pick = tileforge.pick(moe(16), gpu="h200", db=db)
    assert pick.tactic == results[1].tactic


def test_kernels_are_built_once_for_all_problems_and_first_in_one_batch() -> None:
    builder = FakeBuilder()
    measured([moe(1), moe(16), moe(64), moe(16)], builder=builder, save=False)
    specs = [spec for batch in builder.batches for spec in batch]
    assert len(specs) == len(set(specs))
    assert len(builder.batches[0]) > 9  # the leaders of all problems
    assert {spec.arch for spec in specs} == {"sm90"}


def test_an_exhaustive_budget_builds_everything_at_once() -> None:
    builder = FakeBuilder()
    (result,) = measured(moe(16), builder=builder, budget="all", save=False)
    assert result.search is not None and result.search.exhaustive
    assert len(builder.batches) == 1


def test_studies_are_scratch_and_gone_when_a_problem_is_done(tmp_path: Path) -> None:
    measured(moe(16), journals=tmp_path / "studies")
    assert not [path for path in (tmp_path / "studies").rglob("*") if path.is_file()]


class Interrupted(H200Bench):
    """Ctrl-C in the sixth measurement of ``problem``."""

    def __init__(self, problem: GroupedGemm) -> None:
        super().__init__()
        self.problem = problem

    def measure(self, problem: GroupedGemm, tactic: Tactic, kernel: Any = None, samples: int = 7) -> Measurement:
        if problem == self.problem and sum(call[0] == problem for call in self.calls) == 5:
            raise KeyboardInterrupt
        return super().measure(problem, tactic, kernel, samples)


def test_ctrl_c_keeps_what_is_done_and_resumes(tmp_path: Path) -> None:
    results = measured([moe(1), moe(16), moe(64)], bench=Interrupted(moe(16)))
    assert [result.provenance for result in results] == ["measured", "interrupted"]
    assert results[1].tactic is not None and results[1].stored == "" and results[1].record is None
    assert [record.m for record in TuningDB(tmp_path / "tuning_db").records()] == [32]
    (again,) = measured(moe(16))
    assert again.search is not None and again.search.resumed == 5
    assert again.provenance == "measured"


def test_failures_are_in_the_result_by_class() -> None:
    (clean,) = measured(moe(16), save=False)
    assert clean.tactic is not None and clean.tactic != DEFAULT
    (result,) = measured(moe(16), bench=H200Bench(faults={clean.tactic.kernel_id: "wrong"}), save=False)
    assert list(result.failures) == ["wrong_result"]
    assert result.failures["wrong_result"][0].startswith(clean.tactic.id)
    assert result.tactic != clean.tactic


@pytest.mark.parametrize("seed", range(4))
def test_no_record_is_slower_than_the_default(seed: int, tmp_path: Path) -> None:
    def steady(problem: GroupedGemm, tactic: Tactic) -> float:
        return 98.0 if tactic == DEFAULT else 96.5 + zlib.crc32(f"{tactic.kernel_id}{seed}".encode()) % 60 / 10

    measured([moe(1), moe(16), moe(64)], bench=H200Bench(times=steady, noise=0.01, seed=seed), budget=12)
    records = list(TuningDB(tmp_path / "tuning_db").records())
    assert len(records) == 3
    assert all(steady(moe(1), record.tactic) <= 98.0 for record in records)


def test_a_machine_without_a_compiler_uses_the_kernels_it_was_brought() -> None:
    (full,) = measured(moe(16), save=False, budget="all")
    assert full.search is not None
    brought = [DEFAULT, *(Tactic.parse(name) for name in list(full.search.measurements)[1:5])]
    (result,) = measured(moe(16), builder=FakeBuilder(brought), save=False, budget="all")
    assert result.search is not None
    assert {Tactic.parse(name).compile_time() for name in result.search.measurements} == {
        tactic.compile_time() for tactic in brought
    }
    assert any("no compiler here" in note for note in result.notes)
    with pytest.raises(BuildError, match="nothing here can build them"):
        measured(moe(16), builder=FakeBuilder([]), save=False)


# -- fake devices ----------------------------------------------------------------------------------------------


def test_times_of_a_fake_device_are_recorded_only_where_a_database_is_named(tmp_path: Path) -> None:
    (result,) = tune(moe(16), timer="fake", gpu="h200", budget=10, cutlass=CUTLASS)
    assert result.fake and result.stored == "" and "fake" in result.notes[0]
    assert not (tmp_path / "tuning_db").exists()
    (result,) = tune(moe(16), timer="fake", gpu="h200", budget=10, cutlass=CUTLASS, db=tmp_path / "own")
    (record,) = TuningDB(tmp_path / "own").records()
    assert result.stored == "added"
    assert record.environment["timer"] == "fake" and record.note == "times of a fake device"


# -- M = 0, several at once, what is asked wrongly -------------------------------------------------------------


def test_P3_nothing_to_launch() -> None:
    results = predicted([moe(0, "nvfp4"), moe(16, "nvfp4")], save=False)
    assert results[0].provenance == "nothing to launch" and results[0].tactic is None
    assert results[0].reason == "nothing to launch: M = 0"
    assert results[1].provenance == "predicted"
    assert tune([]) == []


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"timer": "gpu"}, DeviceError, ""),
        ({"timer": "sundial"}, InputError, "unknown timer 'sundial': use one of auto, gpu, predict, fake"),
        ({"candidates": "some"}, InputError, "unknown candidates"),
        ({"budget": "some"}, InputError, "is not a budget"),
        ({"gpu": "rtx_9999"}, InputError, "unknown GPU 'rtx_9999': use one of"),
        ({"gpu": "h200", "timer": "predict"}, InputError, "has no nvfp4 kernels, only bf16, fp8"),
        ({"bench": H200Bench(), "timer": "gpu"}, InputError, "NVIDIA H200 (sm90) has no nvfp4 kernels"),
        ({"bench": H200Bench(), "gpu": "rtx_5090"}, InputError, "the GPU here is a NVIDIA H200"),
        ({"bench": UnknownBench(), "timer": "gpu"}, DeviceError, "is none that tileforge knows"),
    ],
)
def test_what_is_asked_wrongly_is_one_line(options: dict[str, Any], error: Any, says: str, tmp_path: Path) -> None:
    with pytest.raises(error) as caught:
        tune(moe(16, "nvfp4"), **{"cutlass": CUTLASS, "confirm": False, **options})
    assert says in str(caught.value) and "\n" not in str(caught.value)
    assert not (tmp_path / "tuning_db").exists()


def test_a_gpu_that_cannot_run_the_format_is_predicted_around_when_nobody_asked_for_it() -> None:
    (result,) = tune(moe(16, "nvfp4"), bench=H200Bench(), builder=FakeBuilder(), confirm=False, save=False)
    assert result.provenance == "predicted" and result.gpu is not None and result.gpu.sku == "rtx_pro_6000"
    assert any("has no nvfp4 kernels" in note for note in result.notes)


def test_a_problem_is_a_problem() -> None:
    with pytest.raises(InputError, match="not a problem"):
        tune([(512, 4096, 6144)])  # type: ignore[list-item]


def test_an_unwritable_database_is_known_before_anything_is_measured(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    bench = H200Bench()
    with pytest.raises(DatabaseError):
        measured(moe(16), bench=bench, db=tmp_path / "file")
    assert bench.calls == []


def test_no_legal_tactic_is_an_error_with_reasons(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NoLegalTacticError) as caught:
        predicted(moe(16, "nvfp4"), cutlass="9.9.9", save=False)
    assert "9.9.9" in str(caught.value)


def test_one_result_as_plain_values() -> None:
    (result,) = measured(moe(16), save=False)
    values = json.loads(json.dumps(result.as_dict()))
    assert values["provenance"] == "measured" and values["problem"]["rows_per_group"] == 16
    assert values["time_us"] > 0 and values["evaluated"] == 16 and values["tactic_id"] == result.tactic.id  # type: ignore[union-attr]


def test_events_say_where_a_job_is() -> None:
    events: list[Event] = []
    measured([moe(1), moe(16)], save=False, on_event=events.append)
    problems = [event for event in events if event.kind == "problem"]
    assert [(event.done, event.total) for event in problems] == [(0, 2), (1, 2)]
    kinds = [event.kind for event in events]
    assert kinds.index("built") < kinds.index("trial") < kinds.index("finals")


def test_a_bench_that_was_given_stays_open(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[str] = []
    monkeypatch.setattr(H200Bench, "close", lambda self: closed.append("given"))
    measured(moe(16), save=False)
    assert closed == []
