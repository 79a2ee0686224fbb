"""How long a pick takes: median and 99th percentile, with device, date and method.

    python benchmarks/pick.py

A database of 10 keys with 14 buckets each is written to a temporary directory; every call is timed by itself with
``time.perf_counter_ns``, and the median cost of the timer alone is subtracted.
"""

from __future__ import annotations

import datetime
import logging
import os
import platform
import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tileforge.db import Key, Record, TuningDB
from tileforge.picking import default_picker, pick
from tileforge.problem import GroupedGemm
from tileforge.tactic import Tactic

CALLS, BUCKETS = 100_000, [2**i for i in range(14)]
TACTIC = Tactic.parse("128x16x64_swap")


def processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []:
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def spread(calls: list[Callable[[], object]]) -> tuple[float, float, float]:
    """Median, 99th percentile and worst of the calls, in microseconds."""
    clock = time.perf_counter_ns
    times, empty = [], []
    for call in calls:
        start = clock()
        call()
        middle = clock()
        times.append(middle - start)
        empty.append(clock() - middle)
    timer = sorted(empty)[len(empty) // 2]
    times.sort()
    return tuple(max(0, times[i] - timer) / 1e3 for i in (len(times) // 2, len(times) * 99 // 100, -1))  # type: ignore[return-value]


def main() -> None:
    rng = random.Random(0)
    logging.disable(logging.WARNING)  # misses are told once per key; here they are meant
    with tempfile.TemporaryDirectory() as directory:
        os.environ["TILEFORGE_DB"] = directory
        problems = [GroupedGemm(512, 4096, 6144, 8 * (i + 1), "bf16") for i in range(10)]
        db = TuningDB(directory)
        for problem in problems:
            for m in BUCKETS:
                db.put(Record(Key.of(problem, "h200"), m, TACTIC, time_us=100.0))
        db.save()
        start = time.perf_counter()
        assert pick(problems[0], "h200")
        first = (time.perf_counter() - start) * 1e3
        asked = [rng.choice(problems).with_m(rng.randint(1, BUCKETS[-1])) for _ in range(CALLS)]
        above = [problem.with_m(problem.m + 2**20) for problem in asked[: CALLS // 10]]
        missing = [GroupedGemm(p.m % 100 + 1, 8, 8, p.groups, "bf16") for p in asked[: CALLS // 10]]
        for problem in asked[:1000]:
            assert pick(problem, "h200")
        rows = {"hit": asked, "hit, above the largest bucket": above, "miss": missing}
        print(f"pick: {processor()}, Python {sys.version.split()[0]}, {datetime.date.today().isoformat()}")
        print(f"first pick of a process (imports, file of {len(BUCKETS)} records): {first:.1f} ms")
        for name, some in rows.items():
            median, high, worst = spread([lambda problem=problem: pick(problem, "h200") for problem in some])  # type: ignore[misc]
            print(f"{name}: median {median:.2f} us, 99 % {high:.2f} us, worst {worst:.0f} us ({len(some):,} calls)")
        picker = default_picker()
        print(f"counted: {picker.hits:,} hits ({picker.extrapolations:,} extrapolated), {picker.misses:,} misses")


if __name__ == "__main__":
    main()
