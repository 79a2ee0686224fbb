"""GLM-5's decode and prefill GEMMs on a Hopper GPU: complete sweep, tuning run, baselines, and the README's table.

    python benchmarks/hopper_glm5.py --out out --format bf16           # build, sweep, tune, baselines, table
    python benchmarks/hopper_glm5.py --out out --format fp8
    python benchmarks/hopper_glm5.py --steps table --format bf16 --out tests/data/h200_glm5 --db tuning_db # recorded

EP8: gate+up N 4096 K 6144 and down N 6144 K 2048, 32 local experts, balanced routing. Everything is kept under
``--out``: ``sweep_<format>.jsonl``, ``baselines_<format>.json``, ``tuning_db/``. Sweep and tuning run measure
independently of each other; the table says how the tuned choice stands in the sweep. A call is prepare + GEMM.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from datetime import date
from pathlib import Path
from typing import Any

import tileforge
from tileforge import paths, space
from tileforge.arch import get_arch
from tileforge.measure.gpu import GpuBench
from tileforge.measure.sweep import Sweep
from tileforge.predict import distinct
from tileforge.search import Event, KernelSource
from tileforge.search.sweep import sweep
from tileforge.toolchain import Builder, find_all_cutlass
from tileforge.workload import load_model

ROOT = Path(__file__).resolve().parent.parent
STEPS = ("sweep", "tune", "baselines", "table")


def problems(form: str, rows: list[int]) -> list[tileforge.GroupedGemm]:
    model = load_model(ROOT / "examples" / "models" / "glm-5.yaml")
    return list(model.problems(rows_per_group=rows, format=form, ep=8).problems)


def builder(version: str) -> Builder:
    found = [cutlass for cutlass in find_all_cutlass() if cutlass.version == version]
    if not found:
        raise SystemExit(f"CUTLASS {version} is not here: pip install nvidia-cutlass")
    return Builder(found[0])


def candidates(version: str) -> Any:
    arch = get_arch("sm90")

    def of(problem: tileforge.GroupedGemm) -> list[tileforge.Tactic]:
        variants = (each for tactic in space.menu(problem, arch, version) for each in space.runtime_variants(tactic))
        return distinct(problem, variants, version)

    return of


def say(event: Event) -> None:
    if event.kind in ("problem", "build", "done", "note"):
        print(f"  {time.strftime('%H:%M:%S')} {event.kind} {event.problem} {event.message}", flush=True)


def run_sweep(bench: GpuBench, build: Builder, wanted: list[tileforge.GroupedGemm], out: Path, version: str) -> None:
    source = KernelSource(build, "sm90")
    note = f"{date.today()}, CUTLASS {version}, CUDA graph, call = prepare + GEMM, two passes in shuffled order"
    path = out / f"sweep_{wanted[0].format}.jsonl"
    began = time.perf_counter()
    found = sweep(
        wanted, candidates(version), path, bench=bench, kernels=source, samples=5, passes=2, note=note, on_event=say
    )
    points = sum(len(of) for of in found.measurements.values())
    right = sum(each.ok for of in found.measurements.values() for each in of.values())
    print(f"sweep: {points} points, {right} right, {time.perf_counter() - began:.0f} s", flush=True)


def run_tune(bench: GpuBench, build: Builder, wanted: list[tileforge.GroupedGemm], out: Path, budget: str) -> None:
    began = time.perf_counter()
    results = tileforge.tune(wanted, bench=bench, builder=build, db=out / "tuning_db", budget=budget, on_event=say)
    print(f"tune: {len(results)} problems, budget {budget}, {time.perf_counter() - began:.0f} s", flush=True)
    for result in results:
        print(f"  {result.problem}: {result.tactic} {result.time_us} us, {result.reason}", flush=True)


def run_baselines(bench: GpuBench, wanted: list[tileforge.GroupedGemm], out: Path) -> None:
    found: dict[str, Any] = {"facts": bench.facts(), "date": str(date.today()), "copy": [], "grouped_mm": {}}
    found["copy"].append(bench.baseline("copy", None, 7))
    for problem in wanted:
        if problem.format == "bf16":
            found["grouped_mm"][str(problem)] = bench.baseline("grouped_mm", problem, 7)
    found["copy"].append(bench.baseline("copy", None, 7))
    (out / f"baselines_{wanted[0].format}.json").write_text(json.dumps(found, indent=1))


def table(wanted: list[tileforge.GroupedGemm], out: Path, database: Path) -> None:
    """Markdown: tuned, default, torch; share of the copy's bandwidth; the choice against the sweep's best."""
    form = wanted[0].format
    plain = out / f"sweep_{form}.jsonl"
    swept = Sweep.load(plain if plain.exists() else plain.with_suffix(".jsonl.gz"))
    base = json.loads((out / f"baselines_{form}.json").read_text())
    copy = max(each["bytes_per_s"] for each in base["copy"])
    db = tileforge.TuningDB(database, read_only=True)
    print(f"{form}, {swept.facts['name']}, driver {swept.facts['driver']}, {base['date']}, {swept.note}")
    print(f"copy bandwidth, read + write: {copy / 1e12:.2f} TB/s; host {platform.machine()}")
    print(
        "| GEMM | rows/group | tuned us | spread | tactic | default us | x | torch us | x | of copy | TFLOP/s | sweep |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for problem in wanted:
        pick = db.lookup(problem, "h200")
        record = pick.record
        if record is None or record.time_us is None:
            print(f"| {problem} | no record: {pick.reason} |")
            continue
        of = {key: each for key, each in swept.of(problem).items() if each.ok and each.median_us}
        best = min(of.values(), key=lambda each: each.median_us or 0.0)
        chosen = of.get(record.tactic.id)
        regret = "-"
        if chosen and chosen.median_us and best.median_us:
            regret = f"{chosen.median_us / best.median_us - 1:+.1%} of {best.tactic.id}"
        torch_us = base["grouped_mm"].get(str(problem), {}).get("median_us")
        cells = [
            problem.name.split()[-1],
            f"{problem.rows_per_group:g}",
            f"{record.time_us:.1f}",
            f"{record.low_us:.1f}-{record.high_us:.1f}",
            f"`{record.tactic.id}`",
            f"{record.default_us:.1f}" if record.default_us else "-",
            f"{record.speedup:.2f}" if record.speedup else "-",
            f"{torch_us:.1f}" if torch_us else "-",
            f"{torch_us / record.time_us:.2f}" if torch_us else "-",
            f"{problem.bytes() / (record.time_us * 1e-6) / copy:.0%}",
            f"{problem.flops / record.time_us / 1e6:.0f}",
            regret,
        ]
        print(f"| {' | '.join(cells)} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--format", default="bf16", choices=("bf16", "fp8"))
    parser.add_argument("--rows", default="1,4,16,64,256")
    parser.add_argument("--cutlass", default="4.2.0")
    parser.add_argument("--budget", default="40")
    parser.add_argument("--db", type=Path, help="database of the table, default OUT/tuning_db")
    parser.add_argument("--steps", default=",".join(STEPS))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    steps = options.steps.split(",")
    wanted = problems(options.format, [int(part) for part in options.rows.split(",")])
    if set(steps) & {"sweep", "tune", "baselines"}:
        build = builder(options.cutlass)
        print(f"kernels in {build.cache.root}, cache {paths.cache_dir()}", flush=True)
        bench = GpuBench()
        try:
            if "baselines" in steps:
                run_baselines(bench, wanted, options.out)
            if "sweep" in steps:
                run_sweep(bench, build, wanted, options.out, options.cutlass)
            if "tune" in steps:
                run_tune(bench, build, wanted, options.out, options.budget)
        finally:
            bench.close()
    if "table" in steps:
        table(wanted, options.out, options.db or options.out / "tuning_db")


if __name__ == "__main__":
    main()
