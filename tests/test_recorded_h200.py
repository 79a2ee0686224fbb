"""What was measured on an H200, held together: the complete sweeps, the shipped records, the README's figures."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

import tileforge
from tileforge import legality, space
from tileforge.arch import get_arch
from tileforge.arch.gpus import GPUS
from tileforge.measure import FakeBench
from tileforge.measure.sweep import Sweep
from tileforge.predict import distinct, rank
from tileforge.search import run
from tileforge.tactic import DEFAULT
from tileforge.workload import load_model

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "tests" / "data" / "h200_glm5"
ROWS = (1, 4, 16, 64, 256)
CUTLASS = "4.2.0"


def problems(form: str) -> list[tileforge.GroupedGemm]:
    model = load_model(ROOT / "examples" / "models" / "glm-5.yaml")
    return list(model.problems(rows_per_group=ROWS, format=form, ep=8).problems)


ALL = [problem for form in ("bf16", "fp8") for problem in problems(form)]
DECODE = [problem for problem in ALL if problem.rows_per_group <= 64]
SWEEPS = {form: Sweep.load(DATA / f"sweep_{form}.jsonl.gz") for form in ("bf16", "fp8")}
BASELINES: dict[str, Any] = {
    form: json.loads((DATA / f"baselines_{form}.json").read_text()) for form in ("bf16", "fp8")
}


def times(problem: tileforge.GroupedGemm) -> dict[str, float]:
    found = SWEEPS[problem.format].of(problem)
    return {name: each.median_us for name, each in found.items() if each.ok and each.median_us}


def record(problem: tileforge.GroupedGemm) -> Any:
    found = tileforge.pick(problem, gpu="h200", db=ROOT / "tuning_db")
    assert found and found.record.m == problem.m and found.provenance == "measured", found.reason
    return found.record


def ids(problem: tileforge.GroupedGemm) -> str:
    return f"{problem.format}-n{problem.n}-m{problem.m}"


@pytest.mark.parametrize("problem", ALL, ids=ids)
def test_the_sweep_is_complete(problem: tileforge.GroupedGemm) -> None:
    """Every tactic that the menu holds today was measured, twice over, and is legal."""
    arch = get_arch("sm90")
    variants = (each for tactic in space.menu(problem, arch, CUTLASS) for each in space.runtime_variants(tactic))
    wanted = {tactic.id for tactic in distinct(problem, variants, CUTLASS)}
    found = SWEEPS[problem.format].of(problem)
    assert wanted <= set(found)
    for measurement in found.values():
        assert legality.check(measurement.tactic, arch=arch, format=problem.format, cutlass=CUTLASS)
        assert measurement.ok and len(measurement.samples_us) == 10
    assert sum(len(times(each)) for each in ALL) >= 1_500


@pytest.mark.parametrize("problem", DECODE, ids=ids)
def test_the_choice_is_within_2_percent_of_the_complete_sweeps_best(problem: tileforge.GroupedGemm) -> None:
    of = times(problem)
    assert of[record(problem).tactic.id] <= 1.02 * min(of.values())


@pytest.mark.parametrize("problem", ALL, ids=ids)
def test_no_record_is_slower_than_the_default(problem: tileforge.GroupedGemm) -> None:
    found = record(problem)
    assert found.default == DEFAULT and found.time_us < found.default_us
    of = times(problem)  # and the sweep, which knew nothing of the choice, says so too
    assert of[found.tactic.id] < of[DEFAULT.id]


def test_decode_beats_torch_and_reaches_the_copys_bandwidth() -> None:
    copy = max(each["bytes_per_s"] for each in BASELINES["bf16"]["copy"])
    ratios = []
    for problem in problems("bf16"):
        if problem.rows_per_group <= 16:
            found = record(problem)
            ratios.append(BASELINES["bf16"]["grouped_mm"][str(problem)]["median_us"] / found.time_us)
            assert problem.bytes() / (found.time_us * 1e-6) >= 0.9 * copy
    # One row of six fell short of 1.35 (down, 16 rows per group: 1.34); docs/measurement.md says so.
    assert sorted(ratios)[1] >= 1.35 and min(ratios) >= 1.33
    assert math.prod(ratios) ** (1 / len(ratios)) >= 1.5


@pytest.mark.parametrize("problem", [each for each in DECODE if each.rows_per_group == 16], ids=ids)
def test_a_search_replayed_on_the_sweep_finds_a_tactic_within_2_percent(problem: tileforge.GroupedGemm) -> None:
    sweep = SWEEPS[problem.format]
    tactics = [measurement.tactic for measurement in sweep.of(problem).values()]
    ranking = rank(problem, tactics, GPUS["h200"], CUTLASS)
    bench = FakeBench(recorded=sweep)
    found = run(problem, [tactic for tactic, _ in ranking], DEFAULT, bench=bench, budget=20, predictions=ranking)
    assert found.choice.tactic is not None and found.evaluated <= 20
    assert times(problem)[found.choice.tactic.id] <= 1.02 * min(times(problem).values())


@pytest.mark.parametrize("problem", ALL, ids=ids)
def test_readme_shows_the_records(problem: tileforge.GroupedGemm) -> None:
    found = record(problem)
    row = f"| {problem.name.split()[-1]} | {problem.rows_per_group:g} | {found.time_us:.1f} |"
    lines = [line for line in (ROOT / "README.md").read_text().splitlines() if line.startswith(row)]
    assert any(f"`{found.tactic.id}`" in line and f"| {found.default_us:.1f} |" in line for line in lines), row
