"""Tactics that failed are met once: the list, its file, and what a tune makes of it."""

from __future__ import annotations

import textwrap
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_toolchain import ROOT
from fake_tune import (
    H200Bench,
    measured,
    moe,
    no_gpu_here,  # noqa: F401
)

from tileforge.db import Quarantine, Quarantined, TuningDB
from tileforge.db.quarantine import CLASSES, read, write
from tileforge.db.yaml_io import Refused
from tileforge.errors import DatabaseError, InputError
from tileforge.measure.result import OWN
from tileforge.tactic import Tactic

HERE = {"driver": "570.1", "kernels": "deadbeef0000", "tileforge": "0.1"}
SWAP = Tactic.parse("128x16x128_swap")
FAILED = Quarantined.of(moe(4), SWAP, "wrong_result", "group 1: row 64 of 65\nzero: {a, 'b'} # c", HERE)


def test_what_is_written_reads_back_and_is_sorted() -> None:
    other = replace(FAILED, tactic=Tactic.parse("128x32x128"), status="crashed", message="")
    text = write([FAILED, other])
    assert set(read(text)) == {FAILED, other} and write(reversed(read(text))) == text
    assert FAILED.message == "group 1: row 64 of 65 zero: {a, 'b'} # c" and FAILED.date


def test_it_holds_for_the_same_sizes_and_environment_only(tmp_path: Path) -> None:
    quarantine = Quarantine(tmp_path, "h200")
    assert quarantine.entries() == () and quarantine.holds(moe(4), HERE) == {}
    quarantine.add([])
    assert not quarantine.path.exists(), "nothing to say, nothing written"
    quarantine.add([FAILED])
    assert quarantine.holds(moe(4), HERE) == {SWAP: FAILED}
    assert quarantine.holds(moe(64), {}) == {SWAP: FAILED}, "another M of the same sizes; nothing known differs"
    assert quarantine.holds(moe(4), HERE | {"tileforge": "0.2"}), "told, not compared"
    assert quarantine.holds(moe(4), HERE | {"driver": "580"}) == {}
    assert quarantine.holds(moe(4, "fp8"), HERE) == {}


def test_a_newer_failure_takes_the_place_of_the_older(tmp_path: Path) -> None:
    quarantine = Quarantine(tmp_path, "h200")
    quarantine.add([FAILED])
    again = replace(FAILED, status="crashed", environment=HERE | {"driver": "580"})
    quarantine.add([again])
    assert quarantine.entries() == (again,)


def test_only_a_tactic_s_own_failures_are_kept() -> None:
    for status in ("out_of_memory", "not_measured", "compile_failed", "ok"):
        with pytest.raises(InputError, match="not a tactic's own failure"):
            Quarantined.of(moe(4), SWAP, status, "", HERE)


def test_the_classes_are_the_measurements_own() -> None:
    assert CLASSES == OWN


def test_the_documented_list_loads() -> None:
    text = (ROOT / "docs" / "database.md").read_text()
    block = text[text.index("    schema: 1\n    quarantine:") :].partition("\n\n")[0]
    (entry,) = read(textwrap.dedent(block) + "\n")
    assert entry.status == "wrong_result" and entry.environment["driver"] == "580.159.04"


def test_several_writers_give_the_union(tmp_path: Path) -> None:
    entries = [replace(FAILED, n=8 * number) for number in range(1, 33)]

    def some(part: int) -> None:
        for entry in entries[part::4]:
            Quarantine(tmp_path, "h200").add([entry])

    threads = [threading.Thread(target=some, args=(part,)) for part in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(Quarantine(tmp_path, "h200").entries()) == set(entries)


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("schema: 2\nquarantine: []\n", 1, "schema 2"),
        ("schema: 1\n", 1, "no quarantine"),
        ("schema: 1\nquarantine:\n- tactic: 128x16x128\n", 3, "no format"),
        (write([FAILED]).replace("wrong_result", "slow"), 12, "status must be one of crashed"),
        (write([FAILED]).replace("n: 4096", "n: many"), 8, "n must be a whole number"),
        (write([FAILED]).replace("  k:", "  kk:"), 5, "has no k"),
        (write([FAILED])[:90], 3, "cut short"),
    ],
)
def test_a_broken_list_is_refused_with_its_line_and_never_written_over(
    text: str, line: int, says: str, tmp_path: Path
) -> None:
    with pytest.raises(Refused) as refused:
        read(text)
    assert says in refused.value.reason
    quarantine = Quarantine(tmp_path, "h200")
    quarantine.path.parent.mkdir()
    quarantine.path.write_text(text)
    for ask in (quarantine.entries, lambda: quarantine.add([FAILED])):
        with pytest.raises(DatabaseError, match="mend the file or move it away") as error:
            ask()
        assert f"{quarantine.path}:{refused.value.line}: " in str(error.value)
    assert quarantine.path.read_text() == text and refused.value.line == line


class Faulty(H200Bench):
    """Tactics with an N tile of 32 fail, in one of four ways."""

    def measure(self, problem: Any, tactic: Tactic, kernel: Any = None, samples: int = 7) -> Any:
        faults = ("crash", "hang", "wrong", "launch")
        if tactic.tile[1] == 32:
            self._device._faults[tactic.id] = faults[sum(map(ord, tactic.id)) % 4]
        return super().measure(problem, tactic, kernel, samples)


def test_a_tune_meets_a_bad_tactic_once(tmp_path: Path) -> None:
    db = TuningDB(tmp_path / "db")
    first = Faulty()
    (result,) = measured(moe(4), bench=first, db=db, budget="all")
    failed = {each.tactic for each in result.search.measurements.values() if not each.ok}  # type: ignore[union-attr]
    entries = Quarantine(db.path, "h200").entries()
    assert len(failed) > 4 and {entry.tactic for entry in entries} == failed
    assert {entry.status for entry in entries} == set(CLASSES)
    assert list(TuningDB(db.path).records()) and not TuningDB(db.path).refused(), "the list is no key's file"
    second = Faulty()
    (again,) = measured(moe(4), bench=second, db=db, budget="all")
    assert not failed & {Tactic.parse(name) for _, name, _ in second.calls}
    assert any(f"{len(failed)} tactics failed here before" in note for note in again.notes)
    assert again.tactic == result.tactic and Quarantine(db.path, "h200").entries() == entries
    (_,) = measured(moe(4), bench=(third := Faulty()), db=db, budget="all", save=False)
    assert failed & {Tactic.parse(name) for _, name, _ in third.calls}, "no database, no list"
