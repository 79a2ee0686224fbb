"""How long enumerating and pruning one problem takes, and how many verdicts a second: device, date and method.

    python benchmarks/space.py

Pruning: ``space.prune`` of one problem per SM and format, first call of the process and median of 11 more, wall time
of ``time.perf_counter``. Verdicts: ``legality.check`` over every distinct kernel of the space, its layout terms not
yet known (first pass) and known (second pass), one process, one thread.
"""

from __future__ import annotations

import datetime
import json
import os
import platform
import statistics
import sys
import time
from pathlib import Path

from tileforge import legality, smem, space
from tileforge.arch import ARCHS, ArchSpec
from tileforge.problem import GroupedGemm
from tileforge.tactic import Tactic

REPEATS = 11


def processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []:
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def pruning(arch: ArchSpec, format: str) -> dict[str, object]:
    problem = GroupedGemm(512, 4096, 6144, 32, format=format)
    times = []
    for _ in range(REPEATS + 1):
        start = time.perf_counter()
        pruned = space.prune(problem, arch)
        times.append((time.perf_counter() - start) * 1e3)
    return {
        "arch": arch.name,
        "format": format,
        "tactics": len(pruned.verdicts),
        "legal": len(pruned.legal),
        "menu": len(space.menu(problem, arch)),
        "first_ms": round(times[0], 1),
        "median_ms": round(statistics.median(times[1:]), 1),
        "summary": pruned.summary(),
    }


def verdicts() -> dict[str, int]:
    """Distinct questions: every tactic of the space, by output type, epilogue and CUTLASS version."""
    arch = ARCHS["sm120"]
    asked: list[tuple[Tactic, dict[str, str]]] = []
    for format in arch.formats:
        for out in ("bf16", "fp16", "fp32"):
            for cutlass in arch.cutlass:
                for epilogue in arch.epilogues:
                    how = {"format": format, "out": out, "cutlass": cutlass, "epilogue": epilogue}
                    tactics = space.enumerate_tactics(arch, format, cutlass, out=out, epilogue=epilogue)
                    asked += [(tactic, how) for tactic in tactics]
    smem._storage.cache_clear()
    rates = []
    for _ in range(2):
        start = time.perf_counter()
        for tactic, how in asked:
            legality.check(tactic, arch=arch, **how)
        rates.append(round(len(asked) / (time.perf_counter() - start)))
    return {"verdicts": len(asked), "per_s_first": rates[0], "per_s_again": rates[1]}


def main() -> None:
    rows = [pruning(arch, format) for arch in ARCHS.values() for format in arch.formats]
    rate = verdicts()
    device = f"{processor()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    result = {"date": datetime.date.today().isoformat(), "device": device, "pruning": rows, "verdicts": rate}
    if "--json" in sys.argv[1:]:
        print(json.dumps(result, indent=1))
        return
    print(f"{result['date']}, {device}")
    print(f"enumerate and prune one problem (CUTLASS {smem.CUTLASS}): first call, median of {REPEATS}")
    for row in rows:
        name = f"{row['arch']:6} {row['format']:12}"
        print(f"  {name} {row['first_ms']:6} ms {row['median_ms']:6} ms  menu {row['menu']:3}  {row['summary']}")
    asked, first, again = rate.values()
    print(f"verdicts, {asked:,} distinct SM120 questions: {first:,}/s, again {again:,}/s")


if __name__ == "__main__":
    main()
