"""Finals repeated in a fresh process: agreed on, or not recorded."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import pytest
from fake_search import by_index, family, search
from fake_tune import (
    H200Bench,
    measured,
    moe,
    no_gpu_here,  # noqa: F401
)

from tileforge.db import TuningDB
from tileforge.measure import FakeBench
from tileforge.measure.worker import WorkerBench
from tileforge.problem import GroupedGemm
from tileforge.search import Choice
from tileforge.search.confirm import agree
from tileforge.tactic import DEFAULT, Tactic

TACTICS = family(4)
_, A, B, C = TACTICS


class Moody:
    """A bench mix-in whose times change with each fresh process: ``moods[i]`` holds those of process ``i``."""

    moods: list[Callable[[GroupedGemm, Tactic], float]]
    process = 0

    def renew(self) -> None:
        self.process = min(self.process + 1, len(self.moods) - 1)
        self._device._times = self.moods[self.process]  # type: ignore[attr-defined]


class MoodyBench(Moody, FakeBench):
    pass


class MoodyH200(Moody, H200Bench):
    pass


def moody(*times: list[float]) -> MoodyBench:
    moods = [by_index(TACTICS, each) for each in times]
    bench = MoodyBench(times=moods[0], noise=0.0005)
    bench.moods = moods
    return bench


def test_the_same_winner_twice_is_confirmed_by_the_rounds_of_both() -> None:
    bench = moody([100, 80, 85, 88])
    found = search(TACTICS, bench, pairs=4, confirm=True)
    assert found.choice.tactic == A and found.confirmed is True
    assert found.finals is not None and len(found.finals.rounds) == 16 and found.choice.confidence == 1 - 0.5**8
    assert search(TACTICS, moody([100, 80, 85, 88]), pairs=4).confirmed is None


def test_a_winner_that_a_fresh_process_does_not_see_is_not_confirmed() -> None:
    found = search(TACTICS, moody([100, 80, 85, 88], [100, 88, 80, 85], [100, 85, 88, 80]), confirm=True)
    assert found.confirmed is False


def test_one_unlucky_process_is_outvoted() -> None:
    bench = moody([100, 88, 80, 85], [100, 80, 85, 88], [100, 80, 85, 88])
    found = search(TACTICS, bench, confirm=True)
    assert found.choice.tactic == A and found.confirmed is True


def test_a_gain_that_only_one_process_saw_leaves_the_default() -> None:
    """The default ties with the leader in the second process: both together cannot tell it from the best."""
    found = search(TACTICS, moody([100, 98, 105, 107], [98, 98, 105, 107]), confirm=True)
    assert found.confirmed is True and found.choice.tactic == DEFAULT


@pytest.mark.parametrize(
    ("one", "other", "together"),
    [
        (Choice(A, "", (A.id,)), Choice(A, "", (A.id, B.id)), True),
        (Choice(A, "", (A.id, B.id)), Choice(B, "", (B.id,)), True),
        (Choice(A, "", (A.id, C.id)), Choice(B, "", (B.id, C.id)), False),
        (Choice(None, ""), Choice(None, ""), False),
    ],
)
def test_agreeing_is_the_same_tactic_or_one_inside_the_other_s_ties(one: Choice, other: Choice, together: bool) -> None:
    assert agree(one, other) == agree(other, one) == together


def test_what_is_not_confirmed_is_not_recorded(tmp_path: Any) -> None:
    def there(_: GroupedGemm, tactic: Tactic) -> float:
        return 109.5 if tactic == DEFAULT else 100.0 + zlib.crc32(tactic.id.encode()) % 900 / 100

    def back(problem: GroupedGemm, tactic: Tactic) -> float:
        """The other way round, beyond any tie; the default is the slowest here as well."""
        return 109.5 if tactic == DEFAULT else 209.0 - there(problem, tactic)

    bench = MoodyH200(times=there, noise=0.0005)
    bench.moods = [there, back, there]
    db = TuningDB(tmp_path / "db")
    (result,) = measured(moe(4), bench=bench, db=db)
    assert result.search is not None and result.search.confirmed is False
    assert result.record is None and any("disagree" in note for note in result.notes)
    assert not list(db.records())
    (result,) = measured(moe(4), bench=bench, db=db, confirm=False)
    assert result.record is not None and len(list(db.records())) == 1


def test_a_worker_is_renewed() -> None:
    with WorkerBench("tileforge.measure.fake:FakeBackend") as bench:
        pids = []
        for _ in range(2):
            assert bench.measure(moe(4), DEFAULT).ok
            pids.append(bench.facts()["pid"])
            bench.renew()
        assert pids[0] != pids[1] and bench.restarts == 0
