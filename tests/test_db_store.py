"""The store: merge rules, atomic files, several writers."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tileforge import files as db_files
from tileforge.db import GpuFacts, Key, Record, TuningDB
from tileforge.db import store as db_store
from tileforge.errors import DatabaseError
from tileforge.tactic import DEFAULT, Tactic

FROZEN = Path(__file__).parent / "data" / "db_v1"
KEY = Key("h200", "bf16", "bf16", 4096, 6144, 32)
FAST, SLOW = Tactic.parse("128x16x128_swap"), Tactic.parse("64x256x64_pp")
SPAWN = multiprocessing.get_context("spawn")


def measured(time_us: float, tactic: Tactic = FAST, m: int = 512, **others: object) -> Record:
    spread = {"low_us": time_us * 0.99, "high_us": time_us * 1.01}
    defaults = {"samples": 7, "date": "2026-11-30", "environment": {"cutlass": "4.5.0", "driver": "570.1"}}
    return Record(KEY, m, tactic, time_us=time_us, **{**spread, **defaults, **others})  # type: ignore[arg-type]


def predicted(us: float, tactic: Tactic = SLOW, m: int = 512) -> Record:
    return Record(KEY, m, tactic, provenance="predicted", predicted_us=us)


def saved(path: Path, *records: Record) -> TuningDB:
    db = TuningDB(path)
    for record in records:
        db.put(record)
    db.save()
    return TuningDB(path)


def test_put_and_save_and_read_again(tmp_path: Path) -> None:
    record = measured(100.0, default=DEFAULT, default_us=150.0, gpu=GpuFacts("NVIDIA H200", 90, 132, 232448))
    assert list(saved(tmp_path / "new" / "db", record).records()) == [record]


def test_saving_what_did_not_change_changes_no_byte(tmp_path: Path) -> None:
    shutil.copytree(FROZEN, tmp_path, dirs_exist_ok=True)
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in tmp_path.rglob("*.yaml")}
    db = TuningDB(tmp_path)
    for record in TuningDB(FROZEN).records():
        assert db.put(replace(record, date="2027-01-01", note="") if record.date else record) == "confirmed"
    assert db.save() == ()
    assert before == {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in tmp_path.rglob("*.yaml")}


def test_a_new_bucket_adds_lines_and_touches_no_other(tmp_path: Path) -> None:
    shutil.copytree(FROZEN, tmp_path, dirs_exist_ok=True)
    path = tmp_path / KEY.path
    old = path.read_text().splitlines()
    saved(tmp_path, measured(100.0, m=128))
    new = path.read_text().splitlines()
    start = new.index("- m: 128")
    added = len(new) - len(old)
    assert added > 5 and new[:start] + new[start + added :] == old


def test_D8_a_worse_measured_result_is_kept_beside(tmp_path: Path) -> None:
    saved(tmp_path, measured(100.0))
    db = TuningDB(tmp_path)
    assert db.put(measured(120.0, SLOW, date="2026-12-01")) == "kept as evidence"
    db.save()
    (record,) = TuningDB(tmp_path).records()
    assert (record.tactic, record.time_us) == (FAST, 100.0)
    assert [(e.tactic, e.time_us, e.date) for e in record.evidence] == [(SLOW, 120.0, "2026-12-01")]


def test_D8_a_better_one_takes_the_place_and_keeps_the_old_as_evidence(tmp_path: Path) -> None:
    (record,) = saved(tmp_path, measured(120.0, SLOW), measured(100.0)).records()
    assert (record.tactic, record.time_us) == (FAST, 100.0)
    assert [(e.tactic, e.time_us) for e in record.evidence] == [(SLOW, 120.0)]


@pytest.mark.parametrize("order", ["forward", "backward"])
def test_D8_merge_does_not_depend_on_the_order(order: str, tmp_path: Path) -> None:
    times = [130.0, 100.0, 115.0, 145.0]
    results = [measured(t, Tactic((64, 64 + 8 * i, 64)), date=f"2026-12-0{i + 1}") for i, t in enumerate(times)]
    (record,) = saved(tmp_path, *(results if order == "forward" else results[::-1])).records()
    assert record.time_us == 100.0
    assert [e.time_us for e in record.evidence] == [145.0, 115.0, 130.0]  # newest first


def test_a_repetition_within_the_spread_changes_nothing_and_heals(tmp_path: Path) -> None:
    record = measured(100.0, ties=(SLOW,), environment={"cutlass": "4.5.0", "driver": "unknown"})
    db = saved(tmp_path, record)
    here = {"cutlass": "4.5.0", "driver": "571.0"}
    assert db.put(measured(100.5, SLOW, environment=here)) == "confirmed"  # a member of the tie set
    assert db.put(measured(99.5, environment=here)) == "confirmed"
    db.save()
    (after,) = TuningDB(tmp_path).records()
    assert after == replace(record, environment=here)
    assert db.put(measured(99.5, environment=here | {"driver": "580.0"})) == "replaced"  # other grounds: no repetition


def test_measured_beats_predicted_in_either_order(tmp_path: Path) -> None:
    for name, records in {"a": (predicted(5.0), measured(100.0)), "b": (measured(100.0), predicted(5.0))}.items():
        (record,) = saved(tmp_path / name, *records).records()
        assert record.provenance == "measured" and not record.evidence
        assert "predicted" not in (tmp_path / name / KEY.path).read_text()


def test_of_two_predictions_the_newer_one_stands(tmp_path: Path) -> None:
    (record,) = saved(tmp_path, predicted(90.0), predicted(95.0, FAST)).records()
    assert (record.tactic, record.predicted_us, record.evidence) == (FAST, 95.0, ())


def test_force_puts_a_worse_one_in_place(tmp_path: Path) -> None:
    db = saved(tmp_path, measured(100.0))
    assert db.put(measured(120.0, SLOW), force=True) == "replaced"
    db.save()
    (record,) = TuningDB(tmp_path).records()
    assert record.time_us == 120.0 and record.evidence[0].time_us == 100.0


def test_evidence_is_bounded(tmp_path: Path) -> None:
    db = TuningDB(tmp_path)
    for step in range(40):
        db.put(measured(100.0 + 5 * step, date=f"2026-12-{1 + step % 28:02}"))
    (record,) = db.records()
    assert len(record.evidence) == 16


def test_another_gpu_under_the_same_name_is_refused(tmp_path: Path) -> None:
    db = saved(tmp_path, measured(100.0, gpu=GpuFacts("NVIDIA H200", 90, 132, 232448)))
    with pytest.raises(DatabaseError, match="sms 132 and 114"):
        db.put(measured(90.0, gpu=GpuFacts("NVIDIA H200 cut down", 90, 114, 232448)))


# D3
def test_D3_a_truncated_file_is_refused_alone_and_never_overwritten(tmp_path: Path) -> None:
    shutil.copytree(FROZEN, tmp_path, dirs_exist_ok=True)
    broken = tmp_path / KEY.path
    text = broken.read_text()
    broken.write_text(text[: len(text) // 2])
    cut = broken.read_bytes()
    db = TuningDB(tmp_path)
    assert [record.key.gpu for record in db.records()] == ["rtx_pro_6000"] * 2
    (refusal,) = db.refused()
    assert refusal.path == broken and refusal.line > 1
    assert str(refusal).startswith(f"{broken}:{refusal.line}: ")
    with pytest.raises(DatabaseError, match="cannot be read"):
        db.check(KEY)
    other = replace(KEY, n=512)
    db.put(measured(10.0))
    db.put(replace(measured(20.0), key=other))
    with pytest.raises(DatabaseError, match="not written over a file that cannot be read") as error:
        db.save()
    assert "\n" not in str(error.value)
    assert broken.read_bytes() == cut
    assert len(TuningDB(tmp_path).get(other)) == 1  # the other file was saved
    broken.unlink()
    assert db.save() == (broken,)  # what was not saved stayed pending


def test_D3_a_pipe_in_place_of_a_file_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "h200").mkdir()
    os.mkfifo(tmp_path / KEY.path)
    db = TuningDB(tmp_path)
    assert list(db.records()) == [] and "regular" in db.refused()[0].reason


# D4
def _write_some(path: str, first: int, count: int) -> None:
    for step in range(first, first + count):
        db = TuningDB(path)
        db.put(measured(100.0 + step, m=step + 1))
        db.put(replace(measured(50.0 + step), key=replace(KEY, n=8 * (step + 1))))
        db.save()


def test_D4_several_writers_give_the_union(tmp_path: Path) -> None:
    workers = [SPAWN.Process(target=_write_some, args=(str(tmp_path), 10 * i, 10)) for i in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
        assert worker.exitcode == 0
    db = TuningDB(tmp_path)
    assert [record.m for record in db.get(KEY)] == list(range(1, 31))
    assert len(list(db.records())) == 60 and not db.refused()
    assert not list(tmp_path.rglob("*.tmp"))


def test_D4_writers_that_read_before_the_other_wrote_do_not_lose_it(tmp_path: Path) -> None:
    one, two = TuningDB(tmp_path), TuningDB(tmp_path)
    assert list(one.records()) == list(two.records()) == []
    one.put(measured(1.0, m=1))
    two.put(measured(2.0, m=2))
    one.save()
    two.save()
    assert [record.m for record in TuningDB(tmp_path).records()] == [1, 2]
    assert [record.m for record in two.get(KEY)] == [1, 2]


def _write_until_killed(path: str) -> None:
    step = 0
    while True:
        db = TuningDB(path)
        db.put(measured(1000.0 - step, m=1))  # always the better one: every save writes
        db.save()
        step += 1


def _hold_the_lock(path: str, told: str) -> None:
    with db_files.lock(Path(path)):
        Path(told).write_text("held")
        time.sleep(60)


def test_D4_kill_9_leaves_no_half_file_and_no_lock(tmp_path: Path) -> None:
    worker = SPAWN.Process(target=_write_until_killed, args=(str(tmp_path),))
    worker.start()
    end = time.monotonic() + 30
    while not (tmp_path / KEY.path).exists() and time.monotonic() < end:
        time.sleep(0.01)
    time.sleep(0.1)
    os.kill(worker.pid or 0, signal.SIGKILL)
    worker.join(30)
    holder = SPAWN.Process(target=_hold_the_lock, args=(str(tmp_path), str(tmp_path / "told")))
    holder.start()
    while not (tmp_path / "told").exists() and time.monotonic() < end:
        time.sleep(0.01)
    with pytest.raises(DatabaseError, match="held"), db_files.lock(tmp_path, patience_s=0.05):
        pass
    os.kill(holder.pid or 0, signal.SIGKILL)
    holder.join(30)
    (tmp_path / "h200" / ".left.over.tmp").write_text("half")
    db = TuningDB(tmp_path)
    db.put(measured(5.0, m=2))
    db.save()
    after = TuningDB(tmp_path)
    assert [record.m for record in after.records()] == [1, 2] and not after.refused()
    assert not list(tmp_path.rglob(".*.tmp"))


# What cannot be written.
def test_unwritable_database_is_one_line_and_nothing_half_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(FROZEN, tmp_path / "db")
    db = TuningDB(tmp_path / "db")
    before = sorted((path, path.read_bytes()) for path in (tmp_path / "db").rglob("*.yaml"))

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    db.put(measured(1.0, m=7))
    monkeypatch.setattr(db_files.os, "fsync", full)
    with pytest.raises(DatabaseError, match="No space left") as error:
        db.save()
    assert "\n" not in str(error.value)
    assert before == sorted((path, path.read_bytes()) for path in (tmp_path / "db").rglob("*.yaml"))
    assert not list((tmp_path / "db").rglob("*.tmp"))
    monkeypatch.undo()
    assert len(db.save()) == 1  # it was still pending


def test_a_database_under_a_file_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    db = TuningDB(tmp_path / "file" / "db")
    with pytest.raises(DatabaseError, match="cannot write the database"):
        db.check(KEY)
    with pytest.raises(DatabaseError, match="not a directory"):
        TuningDB(tmp_path / "file")


def test_read_only_is_never_written(tmp_path: Path) -> None:
    db = TuningDB(FROZEN, read_only=True)
    for attempt in (lambda: db.put(measured(1.0)), lambda: db.check(KEY)):
        with pytest.raises(DatabaseError, match="read-only"):
            attempt()
    assert db.save() == () and not (FROZEN / db_files.LOCK_NAME).exists()


def test_a_record_that_would_not_read_back_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved(tmp_path, measured(1.0))
    before = (tmp_path / KEY.path).read_text()
    monkeypatch.setattr(db_store.schema, "write", lambda content: "---\nschema: 1\n")
    db = TuningDB(tmp_path)
    db.put(measured(1.0, m=8))
    with pytest.raises(DatabaseError, match="not written"):
        db.save()
    assert (tmp_path / KEY.path).read_text() == before
