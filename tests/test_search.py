"""The search: what is measured next, kernels ahead of the GPU, budgets, progress, Ctrl-C. Fake devices only."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_search import (
    PROBLEM,
    FakeBuilder,
    Interrupted,
    by_index,
    family,
    landscape,
    load,
    measured,
    quiet,
    ranking,
    search,
)

from tileforge.errors import InputError
from tileforge.measure import FakeBench, Measurement
from tileforge.problem import GroupedGemm
from tileforge.search import Budget, Event, KernelSource, run
from tileforge.search.study import TacticStudy, distance, params_of
from tileforge.tactic import DEFAULT, Tactic
from tileforge.toolchain.spec import KernelSpec

# -- what is measured next -------------------------------------------------------------------------------------


def order_of(bench: FakeBench, count: int) -> list[str]:
    return list(dict.fromkeys(tactic for _, tactic, samples in bench.calls if samples == 7))[:count]


def test_the_default_first_then_given_then_predicted_leaders() -> None:
    tactics = family(40)
    guessed = ranking([*reversed(tactics)])
    bench = quiet(tactics, [100.0 + i for i in range(40)])
    search(tactics, bench, budget=12, predictions=guessed, first=[tactics[20]])
    assert order_of(bench, 10) == [DEFAULT.id, tactics[20].id, *(tactic.id for tactic, _ in guessed[:8])]


def test_survivors_only() -> None:
    """Every combination of fields exists, half of them are no survivors: those are never measured."""
    tactics = [tactic for i, tactic in enumerate(family(41)) if i % 2 == 0]
    bench = quiet(tactics, [100.0 + i for i in range(len(tactics))])
    result = search(tactics, bench, budget=18, first=[Tactic((64, 64, 64))])
    assert set(result.measurements) <= {tactic.id for tactic in tactics}
    assert result.evaluated == 18


def test_exhaustive_when_the_budget_covers_the_survivors() -> None:
    tactics = family(12)
    for budget in ("all", None, 12, 50):
        result = search(tactics, quiet(tactics, [100.0 + i for i in range(12)]), budget)
        assert result.exhaustive and result.evaluated == 12
    assert not search(tactics, quiet(tactics, [100.0 + i for i in range(12)]), 11).exhaustive


def test_the_sampler_learns_what_good_tactics_have_in_common() -> None:
    """It knows the worst 10 of 156 and has no model; after 40 it is at one of the best 3 more often than not."""
    kernels = family(41)[1:]
    tactics = [replace(tactic, swizzle=swizzle) for tactic in kernels for swizzle in (1, 2, 4, 8)]
    tactics.sort(key=landscape, reverse=True)
    best = sorted(map(landscape, tactics))[2]
    found = []
    for seed in range(9):
        bench = FakeBench(times=lambda _, tactic: landscape(tactic), noise=0.001, seed=seed)
        result = run(PROBLEM, tactics, tactics[0], bench=bench, budget=40, seed=seed, first=tactics[1:10], pairs=1)
        found.append(min(landscape(each.tactic) for each in result.measurements.values()))
    assert sorted(found)[4] <= best, found


def test_the_model_and_the_sampler_take_turns() -> None:
    tactics = family(41)
    bench = quiet(tactics, [100.0 + (17 * i) % 41 for i in range(len(tactics))])
    search(tactics, bench, 21, predictions=ranking(tactics))
    order = order_of(bench, 21)
    ahead = [tactic.id for tactic in tactics]
    guided = [name for i, name in enumerate(order[8:]) if name == next(n for n in ahead if n not in order[: 8 + i])]
    assert 6 <= len(guided) < 13


def test_M8_a_tactic_proposed_again_gets_samples_instead_of_a_trial() -> None:
    tactics = family(30)
    bench = quiet(tactics, [100.0 + i for i in range(30)])
    events: list[Event] = []
    original = TacticStudy.propose
    wishes = iter([tactics[3], tactics[3], tactics[3], tactics[3]])

    def again(self: TacticStudy, taken: Any, repeatable: Any, cost: Any) -> Tactic | None:
        wish = next(wishes, None)
        return wish if wish is not None and repeatable(wish) else original(self, taken, repeatable, cost)

    journal_trials = []
    close = TacticStudy.tell

    def tell(self: TacticStudy, number: int, measurement: Measurement) -> None:
        close(self, number, measurement)
        journal_trials.append(measurement.tactic)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TacticStudy, "propose", again)
        patch.setattr(TacticStudy, "tell", tell)
        result = search(tactics, bench, budget=12, predictions=ranking(tactics), on_event=events.append)
    more = [event for event in events if event.kind == "more" and event.tactic == tactics[3]]
    assert len(more) == 2  # up to three times the first number of samples
    assert len(result.measurements[tactics[3].id].samples_us) == 21
    assert result.evaluated == 12
    assert len(journal_trials) == len(set(journal_trials)) == 12


def test_M8_the_sampler_itself_repeats_only_what_may_be_repeated() -> None:
    tactics = family(12)
    study = TacticStudy(tactics, name="x", seed=3)
    for i, tactic in enumerate(tactics[:10]):
        study.tell(study.start(tactic), measured(tactic, 100.0 + i))
    known = set(tactics[:10])
    for _ in range(20):
        repeat = study.propose(lambda t: t in known, lambda t: t in known, lambda _: 0.0)
        fresh = study.propose(lambda t: t in known, lambda t: False, lambda _: 0.0)
        assert repeat in tactics
        assert fresh in tactics[10:]
    assert study.propose(lambda t: True, lambda t: False, lambda _: 0.0) is None
    assert study.told == 10


def test_parameters_name_what_a_tile_runs_along() -> None:
    plain, swapped = Tactic((128, 32, 64)), Tactic((32, 128, 64), swap_ab=True)
    assert params_of(plain)["rows"] == params_of(swapped)["rows"] == 128
    everything = family(41)
    assert len({tuple(params_of(t).values()) for t in everything}) == len(everything)
    assert distance(params_of(plain), params_of(plain)) == 0
    near, far = Tactic((128, 64, 64)), Tactic((128, 256, 64))
    assert 0 < distance(params_of(plain), params_of(near)) < distance(params_of(plain), params_of(far))


def test_failures_are_classes_in_the_study_and_never_values(tmp_path: Path) -> None:
    tactics = family(30)
    faults = {tactics[1].id: "wrong", tactics[2].id: "memory", tactics[3].id: "hang"}
    journal = tmp_path / "study.journal"
    bench = quiet(tactics, [100.0 + i for i in range(30)], faults=faults)
    result = search(tactics, bench, budget=12, predictions=ranking(tactics), journal=journal)
    assert {status: len(each) for status, each in result.failures.items()} == {
        "wrong_result": 1, "out_of_memory": 1, "timeout": 1,
    }  # fmt: skip
    text = journal.read_text()
    assert "inf" not in text.lower().replace("info", "")
    study = load(journal)
    states = [trial.state.name for trial in study.trials]
    # Wrong and hanging are the tactic's own: the sampler learns from them. Memory is not.
    assert (states.count("COMPLETE"), states.count("PRUNED"), states.count("FAIL")) == (9, 2, 1)
    assert all(
        trial.value is not None and math.isfinite(trial.value)
        for trial in study.trials
        if trial.state.name == "COMPLETE"
    )


# -- kernels ---------------------------------------------------------------------------------------------------


class KernelBench(FakeBench):
    """Insists on being given the kernel of the tactic that it measures."""

    def measure(self, problem: GroupedGemm, tactic: Tactic, kernel: Any = None, samples: int = 7) -> Measurement:
        assert kernel == f"kernel of {KernelSpec('sm90', problem.format, problem.out, tactic).id}"
        return super().measure(problem, tactic, None, samples)


def test_kernels_are_built_in_batches_before_they_are_needed() -> None:
    kernels = family(40)
    tactics = [
        Tactic(t.tile, t.cluster, t.schedule, swap_ab=t.swap_ab, raster=r) for t in kernels for r in ("heuristic", "m")
    ]
    bench = KernelBench(times=lambda _, tactic: landscape(tactic))
    builder = FakeBuilder()
    events: list[Event] = []
    result = search(
        tactics, bench, 24, predictions=ranking(tactics), builder=builder, arch="sm90", on_event=events.append
    )
    assert result.evaluated == 24
    first = builder.batches[0]
    leaders_and_default = {tactic.compile_time() for tactic in tactics[:16]}
    assert {spec.tactic for spec in first} <= leaders_and_default and len(first) == 8
    assert all(len(batch) <= builder.jobs for batch in builder.batches[1:])
    built = [spec for batch in builder.batches for spec in batch]
    assert len(built) == len(set(built))
    assert [event.kind for event in events].index("built") < [event.kind for event in events].index("trial")


def test_a_kernel_that_does_not_compile_is_a_result() -> None:
    tactics = family(6)
    bench = KernelBench(times=by_index(tactics, [100.0, 50.0, 60.0, 110.0, 120.0, 130.0]))
    result = search(tactics, bench, builder=FakeBuilder([tactics[1]]), arch="sm90")
    assert result.measurements[tactics[1].id].status == "compile_failed"
    assert "static assertion" in result.measurements[tactics[1].id].message
    assert result.choice.tactic == tactics[2]


def test_problems_share_kernels() -> None:
    tactics = family(10)
    builder = FakeBuilder()
    source = KernelSource(builder, "sm90")
    for m in (32, 512, 2048):
        run(PROBLEM.with_m(m), tactics, DEFAULT, bench=KernelBench(), kernels=source)
    built = [spec for batch in builder.batches for spec in batch]
    assert len(built) == len(set(built)) == 10


# -- budgets, progress, Ctrl-C ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "trials", "minutes"),
    [("40", 40, None), (40, 40, None), ("10m", None, 10.0), ("90s", None, 1.5), ("2h", None, 120.0),
     ("40, 10m", 40, 10.0), ("all", None, None), (None, None, None)],
)  # fmt: skip
def test_budgets(text: Any, trials: int | None, minutes: float | None) -> None:
    assert Budget.parse(text) == Budget(trials, minutes)


@pytest.mark.parametrize("text", ["", "ten", "0", "-3", "0m", "3d", "1.5"])
def test_budgets_that_are_none(text: str) -> None:
    with pytest.raises(InputError) as caught:
        Budget.parse(text)
    assert "\n" not in str(caught.value)


class Clock:
    """Seconds that pass only while something is measured."""

    def __init__(self, bench: FakeBench, seconds: float) -> None:
        self.bench, self.seconds = bench, seconds

    def __call__(self) -> float:
        return self.seconds * len(self.bench.calls)


def test_a_budget_of_time_ends_the_search_and_is_foretold() -> None:
    tactics = family(40)
    bench = quiet(tactics, [100.0 + i for i in range(40)])
    events: list[Event] = []
    result = search(
        tactics, bench, "60s", predictions=ranking(tactics), clock=Clock(bench, 5.0), on_event=events.append
    )
    assert 8 <= result.evaluated <= 12
    etas = [event.eta_s for event in events if event.kind == "trial"]
    assert etas[0] == 55.0 and etas == sorted(etas, reverse=True) and etas[-1] == 0.0


def test_progress_has_a_total_and_an_eta() -> None:
    tactics = family(20)
    bench = quiet(tactics, [100.0 - i for i in range(20)])
    events: list[Event] = []
    search(tactics, bench, 10, predictions=ranking(tactics), clock=Clock(bench, 2.0), on_event=events.append)
    trials = [event for event in events if event.kind == "trial"]
    assert [(event.done, event.total) for event in trials] == [(i, 10) for i in range(1, 11)]
    assert trials[4].eta_s == pytest.approx(10.0)
    assert trials[-1].eta_s == 0.0
    best = [event.best.median_us for event in trials if event.best]
    assert len(best) == 10 and best == sorted(best, reverse=True)
    finals = [event for event in events if event.kind == "finals"]
    assert [(event.done, event.total) for event in finals] == [(i, 12) for i in range(1, 13)]
    assert events[-1].kind == "done"


@pytest.mark.parametrize("budget", ["all", 15])
def test_ctrl_c_returns_the_best_so_far(budget: Any, tmp_path: Path) -> None:
    tactics = family(20)
    times = by_index(tactics, [100.0 - i for i in range(20)])
    journal = tmp_path / "study.journal"
    result = search(tactics, Interrupted(8, times=times, noise=0.0005), budget, journal=journal)
    assert result.interrupted and result.finals is None
    assert result.evaluated == 7
    assert result.choice.tactic == tactics[6] and not result.choice.final
    again = search(tactics, FakeBench(times=times, noise=0.0005), budget, journal=journal)
    assert again.resumed == 7 and not again.interrupted
    assert again.choice.final


def test_ctrl_c_in_the_finals_returns_the_best_of_the_search() -> None:
    tactics = family(8)
    bench = Interrupted(15, times=by_index(tactics, [100.0 - 5 * i for i in range(8)]), noise=0.0005)
    result = search(tactics, bench)
    assert result.interrupted and result.evaluated == 8 and result.choice.tactic == tactics[-1]
