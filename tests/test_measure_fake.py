"""The fake device: the same interface, deterministic times, faults that end as they would on a GPU."""

from __future__ import annotations

import pytest

from tileforge.errors import InputError
from tileforge.measure import Bench, FakeBench, Measurement
from tileforge.measure.fake import FAULTS, model_us
from tileforge.measure.sweep import Sweep
from tileforge.problem import GroupedGemm
from tileforge.tactic import DEFAULT, Tactic

PROBLEM = GroupedGemm(512, 4096, 6144, 32, "bf16", routing="uniform")
SMALL = Tactic.parse("128x16x128_c1x1_coop_swap")


def test_it_is_a_bench_and_says_that_it_is_fake() -> None:
    with FakeBench() as bench:
        assert isinstance(bench, Bench)
        assert bench.facts()["fake"] is True
        assert bench.measure(PROBLEM, DEFAULT).conditions["fake"] is True
        assert bench.calls == [(PROBLEM, DEFAULT.id, 7)]


def test_times_are_the_same_in_every_process() -> None:
    one, two = FakeBench(seed=3).measure(PROBLEM, DEFAULT), FakeBench(seed=3).measure(PROBLEM, DEFAULT)
    assert one == two and len(one.samples_us) == 7
    assert FakeBench(seed=4).measure(PROBLEM, DEFAULT).samples_us != one.samples_us
    assert model_us(PROBLEM, DEFAULT) == pytest.approx(one.median_us, rel=0.01)
    assert model_us(PROBLEM, SMALL) < model_us(PROBLEM, DEFAULT), "decode likes tiles with few rows"
    large = PROBLEM.with_m(32768)
    assert model_us(large, SMALL) > 300 and model_us(large, DEFAULT) > model_us(PROBLEM, DEFAULT)
    assert model_us(PROBLEM.with_m(0), DEFAULT) > 0


def test_new_samples_are_new() -> None:
    bench = FakeBench()
    assert (
        bench.measure(PROBLEM, DEFAULT, samples=3).samples_us != bench.measure(PROBLEM, DEFAULT, samples=3).samples_us
    )


@pytest.mark.parametrize("fault", FAULTS)
def test_planted_faults_end_as_their_class_M5(fault: str) -> None:
    bench = FakeBench(faults={DEFAULT.kernel_id: fault})
    answer = bench.measure(PROBLEM, DEFAULT)
    assert answer.status == FAULTS[fault] and answer.message and answer.median_us is None
    assert bench.measure(PROBLEM, SMALL).ok
    assert Measurement.from_dict(answer.as_dict()) == answer


def test_a_fault_can_pass() -> None:
    bench = FakeBench(faults={DEFAULT.id: "crash:2"})
    assert [bench.measure(PROBLEM, DEFAULT).status for _ in range(3)] == ["crashed", "crashed", "ok"]
    with pytest.raises(InputError, match="unknown fault"):
        FakeBench(faults={DEFAULT.id: "boredom"})


def test_the_clock_can_drift_M7() -> None:
    bench = FakeBench(noise=0.0, drift=2.0, drift_samples=10, times=lambda problem, tactic: 100.0)
    assert bench.measure(PROBLEM, DEFAULT, samples=5).samples_us == pytest.approx((100, 110, 120, 130, 140))
    bench.measure(PROBLEM, SMALL, samples=5)
    assert bench.measure(PROBLEM, DEFAULT, samples=1).median_us == pytest.approx(200.0)


def test_a_recorded_sweep_is_replayed() -> None:
    sweep = Sweep({"name": "recorded GPU", "sms": 7})
    sweep.add(PROBLEM, Measurement(DEFAULT, samples_us=(500.0, 501.0, 502.0), error=1e-3))
    sweep.add(PROBLEM, Measurement.failed(SMALL, "launch_failed", "as recorded"))
    bench = FakeBench(recorded=sweep)
    assert bench.facts()["name"] == "recorded GPU" and bench.facts()["fake"] is True
    replayed = bench.measure(PROBLEM, DEFAULT, samples=9)
    assert len(replayed.samples_us) == 9 and set(replayed.samples_us) <= {500.0, 501.0, 502.0}
    assert replayed.error == 1e-3
    assert bench.measure(PROBLEM, SMALL).message == "as recorded"
    missing = bench.measure(PROBLEM.with_m(1), DEFAULT)
    assert (missing.status, missing.message) == ("not_measured", "not in the recorded sweep")
