"""Who wins: right results only, the default unless something beats it, ties in a fixed order, drifting clocks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest
from fake_search import (
    PROBLEM,
    A,
    B,
    C,
    by_index,
    family,
    measured,
    quiet,
    search,
)

from tileforge.measure import FakeBench, Measurement
from tileforge.problem import GroupedGemm
from tileforge.search import Finals, choose, decide
from tileforge.search.choose import nothing_matters
from tileforge.search.drift import Timeline
from tileforge.search.finals import hold
from tileforge.tactic import DEFAULT, Tactic

# -- the winner ------------------------------------------------------------------------------------------------


def test_M1_means_within_their_margins_are_a_tie_in_a_fixed_order() -> None:
    """10.0 and 10.2 us with margins of 0.45: the order among ties is default, least shared memory, id."""
    spread = (-0.45, -0.2, 0.0, 0.2, 0.45)
    own = measured(DEFAULT, *(20.0 + x for x in spread))
    faster = measured(A, *(10.0 + x for x in spread))
    slower = measured(B, *(10.2 + x for x in spread))
    smem = {A: 90_000, B: 50_000, DEFAULT: 80_000}
    for order in ([own, faster, slower], [slower, faster, own]):
        choice = choose(order, DEFAULT, smem.__getitem__)
        assert choice.ties == (B.id, A.id)
        assert choice.tactic == B
    assert choose([own, faster, slower], DEFAULT).tactic == min(A, B, key=lambda t: t.id)
    tied = choose([measured(DEFAULT, *(10.1 + x for x in spread)), faster, slower], DEFAULT, smem.__getitem__)
    assert tied.tactic == DEFAULT and tied.ties[0] == DEFAULT.id


def test_M1_finals_leave_a_tie_to_the_same_order() -> None:
    rounds = [{DEFAULT.id: 20.0, A.id: 10.0, B.id: 10.2}, {DEFAULT.id: 20.0, A.id: 10.3, B.id: 10.1}] * 6
    held = Finals(tuple(rounds), {t.id: measured(t, *(r[t.id] for r in rounds)) for t in (DEFAULT, A, B)})
    choice = decide(held, DEFAULT, {A: 90_000, B: 50_000, DEFAULT: 80_000}.__getitem__)
    assert choice.tactic == B and choice.ties == (B.id, A.id)


def test_M2_nothing_matters_keeps_the_default() -> None:
    tactics = family(8)
    bench = quiet(tactics, [100.0, 98.6, 99.0, 99.4, 98.9, 99.8, 99.2, 99.9])
    result = search(tactics, bench)
    assert result.choice.tactic == DEFAULT
    assert "no tactic matters here" in result.choice.reason
    assert result.finals is None
    # Not so where something else differs by more.
    assert nothing_matters([measured(DEFAULT, 100.0), measured(A, 98.0), measured(B, 103.0)], DEFAULT) is None


def test_M3_default_is_kept_where_it_is_fastest() -> None:
    tactics = [DEFAULT, A]
    result = search(tactics, quiet(tactics, [4.90, 5.56]))
    assert result.choice.tactic == DEFAULT and result.speedup == 1.0
    assert choose([measured(DEFAULT, 4.90), measured(A, 5.56)], DEFAULT).tactic == DEFAULT


def test_M3_a_small_gain_does_not_replace_the_default() -> None:
    tactics = family(4)
    result = search(tactics, quiet(tactics, [100.0, 99.4, 130.0, 140.0]))
    assert result.choice.tactic == DEFAULT
    assert result.choice.final and "kept" in result.choice.reason


@pytest.mark.parametrize("fault", ["nan", "wrong"])
def test_M5_the_fastest_is_wrong(fault: str) -> None:
    tactics = family(6)
    bench = quiet(tactics, [100.0, 50.0, 80.0, 90.0, 95.0, 99.0], faults={tactics[1].id: fault})
    result = search(tactics, bench)
    assert result.choice.tactic == tactics[2]
    assert result.measurements[tactics[1].id].status == "wrong_result"
    assert result.failures["wrong_result"][0].message
    assert "1 wrong result" in result.summary()
    assert tactics[1].id not in result.choice.ties


def test_M5_samples_of_a_wrong_result_do_not_count() -> None:
    wrong = Measurement(A, "wrong_result", "rows 64..127 are zero", (50.0, 50.1))
    assert choose([measured(DEFAULT, 100.0), wrong, measured(B, 80.0)], DEFAULT).tactic == B
    assert choose([measured(DEFAULT, 100.0), wrong], DEFAULT).tactic == DEFAULT


def test_M5_what_turns_wrong_in_the_finals_does_not_win() -> None:
    tactics = family(4)

    class Flaky(FakeBench):
        seen = 0

        def measure(self, problem: GroupedGemm, tactic: Tactic, kernel: Any = None, samples: int = 7) -> Measurement:
            if tactic == tactics[1]:
                self.seen += 1
                if self.seen > 3:
                    return Measurement.failed(tactic, "wrong_result", "rows 64..127 are zero")
            return super().measure(problem, tactic, kernel, samples)

    result = search(tactics, Flaky(times=by_index(tactics, [100.0, 50.0, 53.0, 90.0]), noise=0.0005))
    assert result.choice.tactic == tactics[2] and result.choice.final
    assert result.measurements[tactics[1].id].status == "wrong_result"


def test_M6_times_that_cannot_be_are_not_measured() -> None:
    tactics = family(4)
    result = search(tactics, quiet(tactics, [100.0, 50.0, 60.0, 70.0], faults={tactics[1].id: "clock"}))
    broken = result.measurements[tactics[1].id]
    assert broken.status == "not_measured" and broken.discarded == 3
    assert result.choice.tactic == tactics[2]


def test_M4_one_that_dies_costs_itself_alone() -> None:
    tactics = family(20)
    bench = quiet(tactics, [100.0 + i for i in range(20)], faults={tactics[6].id: "crash"})
    result = search(tactics, bench)
    assert result.evaluated == 20
    assert [each.tactic for each in result.failures["crashed"]] == [tactics[6]]
    assert sum(each.ok for each in result.measurements.values()) == 19


def test_a_default_that_fails_leaves_the_fastest_right_result() -> None:
    tactics = family(3)
    result = search(tactics, quiet(tactics, [100.0, 50.0, 60.0], faults={DEFAULT.id: "launch"}))
    assert result.choice.tactic == tactics[1] and result.speedup is None
    assert result.default is not None and result.default.status == "launch_failed"


def test_nothing_right_is_said() -> None:
    tactics = family(3)
    result = search(tactics, quiet(tactics, [1.0, 2.0, 3.0], faults={t.id: "nan" for t in tactics}))
    assert result.choice.tactic is None and result.best is None
    assert result.choice.reason == "no tactic gave a right result"


@pytest.mark.parametrize("seed", range(12))
def test_never_slower_than_the_default(seed: int) -> None:
    """Noise of 1.5 % and gaps of 0.3 %: whatever is published is no slower than the default."""
    tactics = family(16)
    true = [100.0 + 0.3 * ((7 * i + seed) % 16 - 8) for i in range(16)]
    true[3] = 200.0
    bench = FakeBench(times=by_index(tactics, true), noise=0.015, seed=seed)
    choice = search(tactics, bench, seed=seed).choice
    assert choice.tactic is not None
    assert true[tactics.index(choice.tactic)] <= true[0]


# -- the clock -------------------------------------------------------------------------------------------------


def drifting(tactics: Sequence[Tactic], times: Sequence[float], samples: int) -> FakeBench:
    return quiet(tactics, times, drift=2.0, drift_samples=samples)


def test_M7_interleaved_finals_find_the_best_under_drift() -> None:
    """The clock slows down to half its speed. One after another, the first one looks best; in turns, the last."""
    contenders = [DEFAULT, A, B, C]
    true = [110.0, 105.0, 102.0, 100.0]
    one_by_one = drifting(contenders, true, 4 * 36)
    sequential = {tactic: one_by_one.measure(PROBLEM, tactic, None, 36).median_us for tactic in contenders}
    assert min(sequential, key=lambda tactic: sequential[tactic] or math.inf) == DEFAULT
    bench = drifting(contenders, true, 4 * 36)
    held = hold(contenders, lambda tactic, samples: bench.measure(PROBLEM, tactic, None, samples))
    choice = decide(held, DEFAULT)
    assert choice.tactic == C and choice.ties == (C.id,)
    # Without turning every second round around, later places would read slower by the drift of a round.
    first, second = held.rounds[0], held.rounds[1]
    assert list(first) == list(reversed(second))


def test_M7_the_whole_search_finds_the_best_under_drift() -> None:
    """20 tactics and finals, 2x slower at the end; the best is measured last, when the clock is slow."""
    tactics = family(20)
    true = [120.0 - i for i in range(20)]
    samples = 20 * 7 + 60
    raw = drifting(tactics, true, samples)
    sequential = {tactic: raw.measure(PROBLEM, tactic).median_us or math.inf for tactic in tactics}
    assert min(sequential, key=sequential.__getitem__) == tactics[0]
    result = search(tactics, drifting(tactics, true, samples))
    assert result.choice.tactic == tactics[-1]


def test_the_timeline_follows_the_clock_and_leaves_a_steady_one_alone() -> None:
    line = Timeline()
    line.add(measured(A, 100.0))
    line.start_anchor(measured(A, 100.0))
    line.add(measured(B, 150.0))
    line.add(measured(A, 200.0), anchor=True)
    assert line.fair_us(B.id) == pytest.approx(100.0)
    assert line.fair_us(A.id) == 100.0
    steady = Timeline()
    steady.add(measured(A, 100.0))
    steady.start_anchor(measured(A, 100.0))
    steady.add(measured(B, 150.0))
    steady.add(measured(A, 101.0), anchor=True)
    assert steady.fair_us(B.id) == 150.0


def test_decide_needs_all_pairs_to_agree() -> None:
    good = [{DEFAULT.id: 100.0, A.id: 95.0}] * 10
    one_against = [*good, {DEFAULT.id: 100.0, A.id: 101.0}, {DEFAULT.id: 100.0, A.id: 101.0}]
    for rounds, winner in ((good + good[:2], A), (one_against, DEFAULT)):
        both = {t.id: measured(t, *(r[t.id] for r in rounds)) for t in (DEFAULT, A)}
        choice = decide(Finals(tuple(rounds), both), DEFAULT)
        assert choice.tactic == winner
        assert choice.confidence == (1 - 0.5**6 if winner == A else None)
