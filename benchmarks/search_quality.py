"""How quickly a search finds a good tactic, replayed on complete recorded sweeps: needs no GPU.

    python benchmarks/search_quality.py [--seeds 25] [--budget 40] [--jobs 2] [SWEEP ...]

Default: the H200 sweeps in tests/data/h200_glm5. A search sees samples drawn from those recorded; what it found is
judged by the recorded medians, against the best median of the whole sweep. Only distinct tactics count as evaluations,
in the order in which they were first measured. Orders compared:

    random      without repetition
    model       exhaustive, best predicted first
    tpe         the default, then Optuna's TPE alone, in tileforge's embedding of the fields
    tileforge   what `tileforge tune` does: default, predicted leaders, then model and sampler in turns
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import random
import statistics
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from pathlib import Path

from tileforge.arch.gpus import get_gpu
from tileforge.measure import FakeBench
from tileforge.measure.sweep import Sweep, parse_problem, problem_text
from tileforge.predict import leaders, rank
from tileforge.predict.ranking import Ranking
from tileforge.search import run
from tileforge.tactic import DEFAULT, Tactic

DATA = Path(__file__).parent.parent / "tests" / "data" / "h200_glm5"
ORDERS = ("random", "model", "tpe", "tileforge")
#: CUTLASS that the recorded kernels were built with: its rules decide what the model predicts.
CUTLASS = "4.2.0"
AFTER = (10, 20, 40)
WITHIN = 0.01


@cache
def sweep_of(path: Path) -> Sweep:
    return Sweep.load(path)


@cache
def recorded(path: Path, text: str) -> dict[str, float]:
    found = sweep_of(path).of(parse_problem(text))
    return {name: each.median_us for name, each in found.items() if each.ok and each.median_us is not None}


@cache
def ranking(path: Path, text: str) -> Ranking:
    gpu = get_gpu(str(sweep_of(path).facts.get("name")))
    return rank(parse_problem(text), map(Tactic.parse, recorded(path, text)), gpu, CUTLASS)


def order(path: Path, text: str, name: str, seed: int, budget: int) -> list[str]:
    """Ids of tactics in the order in which ``name`` would first measure them."""
    ranked = ranking(path, text)
    if name == "random":
        return random.Random(seed).sample([tactic.id for tactic, _ in ranked], min(budget, len(ranked)))
    if name == "model":
        return [tactic.id for tactic, _ in ranked][:budget]
    problem = parse_problem(text)
    shuffled = sorted((tactic for tactic, _ in ranked), key=lambda tactic: tactic.id)
    random.Random(seed).shuffle(shuffled)
    bench = FakeBench(recorded=sweep_of(path), seed=seed)
    run(
        problem, shuffled, DEFAULT, bench=bench, budget=budget, seed=seed, pairs=1,
        predictions=ranked if name == "tileforge" else None,
    )  # fmt: skip
    return list(dict.fromkeys(tactic_id for _, tactic_id, _ in bench.calls))[:budget]


def judged(path: Path, text: str, name: str, seeds: int, budget: int) -> tuple[list[float], list[list[float]]]:
    """(evaluations to within 1 % by seed, ``inf`` when not reached; regret after each of ``AFTER`` by seed)."""
    times = recorded(path, text)
    best = min(times.values())
    needed, regrets = [], []
    for seed in range(1 if name == "model" else seeds):
        found, regret = [], math.inf
        for tactic_id in order(path, text, name, seed, budget):
            regret = min(regret, times[tactic_id] / best - 1)
            found.append(regret)
        needed.append(next((float(i) for i, value in enumerate(found, 1) if value <= WITHIN), math.inf))
        regrets.append([found[min(after, len(found)) - 1] for after in AFTER])
    return needed, regrets


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sweeps", nargs="*", type=Path, default=sorted(DATA.glob("sweep_*.jsonl.gz")))
    parser.add_argument("--seeds", type=int, default=25)
    parser.add_argument("--budget", type=int, default=40)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--json", type=Path, help="also write the figures of every problem")
    options = parser.parse_args()
    began = time.perf_counter()
    cases = [(path, problem_text(p)) for path in options.sweeps for p in sweep_of(path).problems()]
    counts = [len(recorded(*case)) for case in cases]
    devices = sorted({str(sweep_of(path).facts.get("name")) for path in options.sweeps})
    print(
        f"search quality: {len(cases)} complete sweeps of {min(counts)} to {max(counts)} tactics, {', '.join(devices)}"
    )
    print(f"replayed {datetime.date.today().isoformat()}, {options.seeds} seeds, {options.budget} evaluations each")

    within: dict[float, int] = {0.01: 0, 0.02: 0}
    for case in cases:
        times = recorded(*case)
        top = min(times[tactic.id] for tactic in leaders(ranking(*case), 8)) / min(times.values()) - 1
        for limit in within:
            within[limit] += top <= limit
    print(f"the model's top 8 hold a tactic within 2 % of the best in {within[0.02]} of {len(cases)}, "
          f"within 1 % in {within[0.01]}")  # fmt: skip

    head = "".join(f"{f'regret {after}':>12}{'worst':>8}" for after in AFTER)
    print(f"{'order':<12}{'evals to 1 %':>13}{'of sweep':>10}{'reached':>9}{head}")
    figures: list[dict[str, object]] = []
    with ProcessPoolExecutor(options.jobs) as pool:
        for name in ORDERS:
            jobs = [pool.submit(judged, *case, name, options.seeds, options.budget) for case in cases]
            found = [job.result() for job in jobs]
            shares = [n / count for (needed, _), count in zip(found, counts, strict=True) for n in needed]
            needed = [n for each, _ in found for n in each]
            regrets = [regret for _, each in found for regret in each]
            cells = "".join(
                f"{statistics.fmean(r[i] for r in regrets):>12.2%}{max(r[i] for r in regrets):>8.1%}"
                for i in range(len(AFTER))
            )
            reached = sum(map(math.isfinite, needed)) / len(needed)
            print(f"{name:<12}{_shown(needed):>13}{_shown(shares, '.0%'):>10}{reached:>9.0%}{cells}")
            for (_, text), count, (needs, some) in zip(cases, counts, found, strict=True):
                reached_at = [n if math.isfinite(n) else None for n in needs]
                rounded = [[round(value, 5) for value in regret] for regret in some]
                figures.append(
                    {"order": name, "problem": text, "tactics": count, "needed": reached_at, "regrets": rounded}
                )
    print("evals to 1 %, of sweep: medians over problems and seeds; regret: mean and worst, against the sweep's best")
    print(f"{time.perf_counter() - began:.0f} s, Python {sys.version.split()[0]}")
    if options.json:
        options.json.write_text(json.dumps(figures, indent=0))


def _shown(values: list[float], form: str = ".0f") -> str:
    middle = statistics.median(values)
    return format(middle, form) if math.isfinite(middle) else "not reached"


if __name__ == "__main__":
    main()
