"""The look-up: which record answers, and what it says about itself."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tileforge.arch.gpus import get_gpu
from tileforge.db import GpuFacts, Key, Record, TuningDB, compare_environment
from tileforge.measure import Measurement
from tileforge.problem import GroupedGemm
from tileforge.tactic import DEFAULT, Tactic

PROBLEM = GroupedGemm(512, 4096, 6144, 32, "bf16")
KEY = Key.of(PROBLEM, "h200")
H200 = GpuFacts("NVIDIA H200", 90, 132, 232448)


def record(m: int, tactic: str = "128x16x64_swap", **others: object) -> Record:
    values = {"key": KEY, "time_us": 100.0, "date": "2026-11-30", "gpu": H200, **others}
    return Record(m=m, tactic=Tactic.parse(tactic), **values)  # type: ignore[arg-type]


def database(path: Path, *records: Record) -> TuningDB:
    db = TuningDB(path)
    for item in records:
        db.put(item)
    db.save()
    return db


# D1
@pytest.mark.parametrize("other", [{"out": "fp16"}, {"format": "fp8"}, {"n": 4104}, {"k": 6152}, {"groups": 64}])
def test_D1_another_output_type_or_format_or_size_is_another_key(other: dict[str, object], tmp_path: Path) -> None:
    db = database(tmp_path, record(512))
    found = db.lookup(replace(PROBLEM, **other), "h200")  # type: ignore[arg-type]
    assert not found and found.outcome == "miss" and "no record" in found.reason
    assert db.lookup(PROBLEM, "h200")


def test_D1_two_scale_layouts_are_two_keys(tmp_path: Path) -> None:
    problem = GroupedGemm(512, 4096, 6144, 32, "nvfp4")
    swizzled, linear = Key.of(problem, "rtx_pro_6000"), Key.of(problem, "rtx_pro_6000", scale_layout="linear")
    assert swizzled != linear and swizzled.path != linear.path and swizzled.scale_layout == "128x4"
    db = TuningDB(tmp_path)
    for key, tactic in ((swizzled, "128x64x128_swap"), (linear, "128x128x128")):
        db.put(Record(key, 512, Tactic.parse(tactic), time_us=10.0))
    db.save()
    again = TuningDB(tmp_path)
    assert [r.tactic.swap_ab for key in (swizzled, linear) for r in again.get(key)] == [True, False]
    found = again.lookup(problem, "rtx_pro_6000")
    assert found.tactic is not None and found.tactic.swap_ab


# D2
@pytest.mark.parametrize(
    ("was", "now", "state"),
    [
        ("570.1", "570.1", "same"),
        ("570.1", "580.2", "stale"),
        ("570.1", "unknown", "unknown"),
        ("unknown", "580.2", "unknown"),
        ("", "580.2", "unknown"),
        (None, "580.2", "unknown"),
        ("570.1", None, "unknown"),
        ("*", "580.2", "same"),
        ("570.1", "*", "same"),
        ("*", None, "same"),
    ],
)
def test_D2_unknown_different_and_star(was: str | None, now: str | None, state: str, tmp_path: Path) -> None:
    recorded = {"cutlass": "4.5.0"} | ({} if was is None else {"driver": was})
    here = {"cutlass": "4.5.0"} | ({} if now is None else {"driver": now})
    assert compare_environment(recorded, here).state == state
    found = database(tmp_path, record(512, environment=recorded)).lookup(PROBLEM, "h200", here)
    assert found, "a stale record is kept and usable"
    assert found.stale == ((f"driver was {was}, here it is {now}",) if state == "stale" else ())


def test_D2_tileforge_version_alone_is_not_stale() -> None:
    assert compare_environment({"tileforge": "0.1"}, {"tileforge": "0.2"}).state == "same"


# D5
@pytest.mark.parametrize(("m", "bucket"), [(1, 16), (16, 16), (17, 32), (24, 32), (32, 32), (33, 64), (64, 64)])
def test_D5_m_rounds_up_to_its_bucket(m: int, bucket: int, tmp_path: Path) -> None:
    db = database(tmp_path, record(64), record(16), record(32))
    found = db.lookup(PROBLEM.with_m(m), "h200")
    assert found.record is not None and found.record.m == bucket and not found.extrapolated


# D6
def test_D6_above_the_largest_bucket_is_flagged(tmp_path: Path) -> None:
    db = database(tmp_path, record(16), record(8192))
    found = db.lookup(PROBLEM.with_m(16384), "h200")
    assert found and found.extrapolated and "extrapolated" in found.reason
    assert found.record is not None and found.record.m == 8192
    assert not db.lookup(PROBLEM.with_m(8192), "h200").extrapolated


def test_own_routing_answers_before_another_one(tmp_path: Path) -> None:
    db = database(
        tmp_path,
        record(512, "128x16x64_swap"),
        record(512, "128x32x64_swap", routing="zipf:1.2"),
        record(2048, "128x64x64_swap", routing="zipf:1.2"),
        record(2048, "128x128x64_swap", routing="uniform"),
    )

    def answer(m: int, routing: str) -> tuple[str, bool]:
        found = db.lookup(replace(PROBLEM, m=m, routing=routing), "h200")
        assert found.record is not None
        return f"{found.record.m} {found.record.routing}", found.extrapolated

    assert answer(100, "balanced") == ("512 balanced", False)
    assert answer(100, "zipf:1.2") == ("512 zipf:1.2", False)
    assert answer(100, "zipf:1.5") == ("512 balanced", False)
    assert answer(1000, "balanced") == ("2048 uniform", False)  # another routing beats an extrapolation
    assert answer(4096, "balanced") == ("512 balanced", True)
    assert answer(4096, "zipf:1.2") == ("2048 zipf:1.2", True)


def test_a_tactic_that_does_not_fit_is_a_miss_with_its_reason(tmp_path: Path) -> None:
    problem = GroupedGemm(512, 4096, 6144, 32, "nvfp4")
    bad = Record(Key.of(problem, "rtx_pro_6000"), 512, Tactic((128, 128, 128), cluster=(2, 1)), time_us=1.0)
    found = database(tmp_path, bad).lookup(problem, "rtx_pro_6000")
    assert not found and found.outcome == "miss"
    assert "128x128x128_c2x1_coop" in found.reason and "does not fit" in found.reason
    assert found.command.startswith("tileforge tune --gpu rtx_pro_6000")


def test_D9_a_file_of_another_gpu_under_the_same_name_is_a_miss(tmp_path: Path) -> None:
    cut_down = GpuFacts("NVIDIA H200 cut down", 90, 114, 232448)
    found = database(tmp_path, record(512, gpu=cut_down)).lookup(PROBLEM, "h200")
    assert not found and "sms 132 and 114" in found.reason


def test_a_gpu_that_nobody_knows_is_a_miss(tmp_path: Path) -> None:
    key = Key.of(PROBLEM, "some_gpu")
    found = database(tmp_path, Record(key, 512, DEFAULT, time_us=1.0)).lookup(PROBLEM, "some_gpu")
    assert not found and "does not fit" in found.reason


def test_a_refused_file_is_a_miss_that_says_so(tmp_path: Path) -> None:
    (tmp_path / "h200").mkdir()
    (tmp_path / KEY.path).write_text("schema: 1\nrecords: 5\n")
    found = TuningDB(tmp_path).lookup(PROBLEM, "h200")
    assert not found and f"{KEY.path}:2:" in found.reason


def test_the_command_of_a_miss_makes_this_very_record(tmp_path: Path) -> None:
    problem = GroupedGemm(33, 64, 128, 3, "fp8", "fp16", "zipf:1.2", seed=4)
    assert TuningDB(tmp_path).lookup(problem, "h200").command == (
        "tileforge tune --gpu h200 --m 33 --n 64 --k 128 --groups 3 --format fp8 --out fp16 --routing zipf:1.2 --seed 4"
    )


def test_a_pick_says_where_it_comes_from(tmp_path: Path) -> None:
    found = database(tmp_path, record(512)).lookup(PROBLEM.with_m(500), "h200")
    assert found.source == tmp_path / KEY.path and found.provenance == "measured"
    assert found.as_dict()["tactic_id"] == "128x16x64_c1x1_coop_swap"
    assert "measured at M=512 (16 rows/group, balanced)" in found.reason and "M 1 to 512" in found.reason


def test_a_record_is_made_from_a_measurement() -> None:
    best = Measurement(Tactic.parse("128x16x64_swap"), samples_us=(100.0, 101.0, 102.0, 103.0), error=0.001)
    default = Measurement(DEFAULT, samples_us=(150.0, 151.0))
    environment = {"cutlass": "4.5.0"}
    made = Record.from_measurement(
        PROBLEM, get_gpu("h200"), best, default, ties=("128x32x64_c1x1_coop_swap",), environment=environment
    )
    assert (made.key, made.m, made.provenance, made.time_us, made.samples) == (KEY, 512, "measured", 101.5, 4)
    assert (made.default, made.default_us, made.error) == (DEFAULT, 150.5, 0.001)
    assert made.ties == (Tactic.parse("128x32x64_swap"),) and made.gpu.sms == 132 and made.date
    json.dumps(made.as_dict())
    failed = Measurement(DEFAULT, status="launch_failed", message="no")
    without = Record.from_measurement(PROBLEM, get_gpu("h200"), best, failed, environment=environment)
    assert without.default == DEFAULT and without.default_us is None and without.speedup is None
    eager = Record.from_measurement(PROBLEM, get_gpu("h200"), best, environment=environment, execution="eager")
    assert eager.key.path.endswith("__eager.yaml")


def test_a_record_made_from_a_prediction_has_no_time() -> None:
    made = Record.from_prediction(
        PROBLEM, get_gpu("h200"), DEFAULT, 91.23456, DEFAULT, 91.23456, environment={"tileforge": "0.1"}
    )
    assert made.time_us is None and made.predicted_us == 91.235 and made.date == "" and made.environment == {}
    assert made.as_dict()["provenance"] == "predicted" and "time_us" not in made.as_dict()
