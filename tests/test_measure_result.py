"""Measurements, their statistics, and the recorded sweep's file."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from tileforge.errors import InputError
from tileforge.measure import FAILURES, Measurement
from tileforge.measure.result import Stats, floor_us
from tileforge.measure.sweep import Sweep, line_of, parse_problem, problem_text
from tileforge.problem import GroupedGemm
from tileforge.tactic import DEFAULT, Tactic

PROBLEM = GroupedGemm(512, 4096, 6144, 32, "bf16", routing="uniform", name="GLM-5 w13")
OTHER = Tactic.parse("128x16x128_c1x1_coop_swap_rm_w4")


def test_statistics_are_median_and_quartiles() -> None:
    assert Stats.of([5, 1, 4, 2, 3]) == Stats(3, 2, 4)
    assert Stats.of([7, 1, 2]) == Stats(2, 1, 7)
    assert Stats.of([2]) == Stats(2, 2, 2)
    assert Stats.of([]) is None
    measured = Measurement(DEFAULT, samples_us=(10.0, 12.0, 11.0, 30.0))
    assert (measured.median_us, measured.low_us, measured.high_us) == (11.5, 10.75, 16.5)


def test_impossible_times_are_discarded_and_counted_M6() -> None:
    measured = Measurement.of(DEFAULT, [-1, 0, math.nan, math.inf, 10.0, 10.2], floor_us=0.0)
    assert measured.ok and measured.samples_us == (10.0, 10.2) and measured.discarded == 4
    nothing = Measurement.of(DEFAULT, [-1, 0, math.nan])
    assert nothing.status == "not_measured" and nothing.discarded == 3 and nothing.median_us is None
    assert "none of 3 samples" in nothing.message


def test_times_above_the_speed_of_the_roofline_are_discarded_M6() -> None:
    floor = floor_us(PROBLEM.bytes(), PROBLEM.flops, 4.8e12, 989e12, l2_bytes=60 * 2**20)
    assert 240 < floor < 280  # 1.62 GB at 4.8 TB/s are 337 us; less the L2's 63 MB, times 0.8
    measured = Measurement.of(DEFAULT, [200.0, 370.0, 371.0], floor_us=floor)
    assert measured.samples_us == (370.0, 371.0) and measured.discarded == 1
    assert floor_us(10**9, 10**12, None, None) == 0.0
    assert floor_us(0, 10**12, None, 1e15) == pytest.approx(800.0)


@pytest.mark.parametrize(
    "measurement",
    [
        Measurement(
            DEFAULT, samples_us=(1.25, 2.5), error=1e-3, discarded=2, conditions={"sm_mhz": 1980, "reasons": []}
        ),
        Measurement(OTHER, "wrong_result", "group 0: rows 64..127 of 128 zero", (), 0.5),
        Measurement(OTHER, "crashed"),
    ],
    ids=lambda measurement: measurement.status,
)
def test_dictionaries_are_lossless(measurement: Measurement) -> None:
    text = json.dumps(measurement.as_dict(), allow_nan=False)
    assert Measurement.from_dict(json.loads(text)) == measurement


def test_a_failure_is_a_class_and_never_a_time() -> None:
    for status in FAILURES:
        failed = Measurement.failed(DEFAULT, status, "two\n lines")
        assert not failed.ok and failed.median_us is None and failed.message == "two lines"
    with pytest.raises(InputError, match="unknown status"):
        Measurement(DEFAULT, "slow")
    with pytest.raises(InputError, match="without samples"):
        Measurement(DEFAULT)
    assert Measurement.failed(DEFAULT, "wrong_result", "", error=math.nan).error is None
    with pytest.raises(InputError, match="not a measurement"):
        Measurement.from_dict({"status": "ok"})


def test_more_samples_of_a_tactic_add_up_M8() -> None:
    first = Measurement(DEFAULT, samples_us=(1.0, 3.0), error=0.1, discarded=1)
    both = first.merged(Measurement(DEFAULT, samples_us=(2.0,), error=0.2, discarded=1, conditions={"sm_mhz": 1}))
    assert both.samples_us == (1.0, 3.0, 2.0) and both.median_us == 2.0
    assert (both.error, both.discarded, both.conditions) == (0.2, 2, {"sm_mhz": 1})
    failed = both.merged(Measurement.failed(DEFAULT, "crashed", "signal SIGSEGV"))
    assert failed.status == "crashed" and failed.samples_us == both.samples_us
    assert failed.merged(first).status == "crashed"
    with pytest.raises(InputError, match="cannot merge"):
        first.merged(Measurement(OTHER, samples_us=(1.0,)))


def test_a_problem_in_a_sweep_parses_back_and_its_label_is_no_part_of_it() -> None:
    for problem in (PROBLEM, GroupedGemm(135, 128, 256, 4, routing="rows:0,5,0,130"), GroupedGemm(0, 8, 128, 2)):
        text = problem_text(problem)
        assert problem_text(parse_problem(text)) == text
        assert parse_problem(text).sizes == problem.sizes
    assert "GLM" not in problem_text(PROBLEM)
    with pytest.raises(InputError, match="not a problem"):
        parse_problem("m=1 n=2")


def test_sweep_files_keep_every_measurement(tmp_path: Path) -> None:
    sweep = Sweep({"name": "some GPU", "sms": 132}, "a note")
    sweep.add(PROBLEM, Measurement(DEFAULT, samples_us=(500.123456789, 501.0), error=1.66e-3, conditions={"sets": 1}))
    sweep.add(PROBLEM, Measurement.failed(OTHER, "over", "needs 102,400 B"))
    sweep.add(PROBLEM.with_m(32), Measurement(DEFAULT, samples_us=(400.0,)))
    path = tmp_path / "sweep.jsonl"
    sweep.save(path)
    assert len(path.read_text().splitlines()) == 4
    back = Sweep.load(path)
    assert (back.facts, back.note, len(back)) == (sweep.facts, sweep.note, 3)
    assert back.of(PROBLEM)[DEFAULT.id].samples_us == (500.123, 501.0)
    assert back.of(PROBLEM)[OTHER.id] == sweep.of(PROBLEM)[OTHER.id]
    assert [problem.m for problem in back.problems()] == [512, 32]
    assert back.of(PROBLEM.with_m(7)) == {}
    # Files can be concatenated: the same tactic's samples add up.
    twice = Sweep.read([*path.read_text().splitlines(), line_of(PROBLEM, Measurement(DEFAULT, samples_us=(1.0,)))])
    assert len(twice.of(PROBLEM)[DEFAULT.id].samples_us) == 3


@pytest.mark.parametrize(
    "line", ['{"problem": "m=1", "tac', "[]", '{"tactic": "128x128x128", "us": [1]}', '{"sweep": 9}'], ids=range(4)
)
def test_a_broken_sweep_is_refused_with_its_line(line: str, tmp_path: Path) -> None:
    path = tmp_path / "sweep.jsonl"
    path.write_text('{"sweep": 1}\n' + line + "\n")
    with pytest.raises(InputError, match=r"sweep\.jsonl, line 2"):
        Sweep.load(path)
    with pytest.raises(InputError, match="cannot read"):
        Sweep.load(tmp_path / "none.jsonl")
