"""How long enumerating and pruning one problem takes, and how many verdicts a second: device, date and method.

    python benchmarks/space.py

Pruning: ``space.prune`` of one problem per SM and format, first call of the process and median of 11 more, wall time
of ``time.perf_counter``. Verdicts: ``legality.check`` over every distinct kernel of the space, its layout terms not
yet known (first pass) and known (second pass), one process, one thread. Batch: the same as JSON lines.
"""

from __future__ import annotations

import datetime
import itertools
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tileforge import legality, smem, space
from tileforge.arch import ARCHS, ArchSpec, sm120
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


def questions() -> list[tuple[Tactic, dict[str, Any]]]:
    """Distinct questions: every tactic of the SM120 space, by output type, C operand, epilogue and CUTLASS version."""
    arch = ARCHS["sm120"]
    asked: list[tuple[Tactic, dict[str, Any]]] = []
    for format, out, cutlass in itertools.product(arch.formats, ("bf16", "fp16", "fp32"), arch.cutlass):
        for more in ({}, {"c": out}, {"epilogue": "finalize"}):
            how = {"out": out, **more}
            tactics = space.enumerate_tactics(arch, format, cutlass, **how)
            asked += [(tactic, {"format": format, "cutlass": cutlass, **how}) for tactic in tactics]
    return asked


def verdicts(asked: list[tuple[Tactic, dict[str, Any]]]) -> dict[str, int]:
    legality._kernel.cache_clear()
    sm120._buffers.cache_clear()
    sm120._parts.cache_clear()
    rates = []
    for _ in range(2):
        start = time.perf_counter()
        for tactic, how in asked:
            legality.check(tactic, arch=ARCHS["sm120"], **how)
        rates.append(round(len(asked) / (time.perf_counter() - start)))
    return {"verdicts": len(asked), "per_s_first": rates[0], "per_s_again": rates[1]}


def batch(asked: list[tuple[Tactic, dict[str, Any]]]) -> int:
    """Lines a second of ``tileforge explain --batch``, the whole process with its start."""
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
        for tactic, how in asked:
            file.write(json.dumps({"arch": "sm120", **tactic.as_dict(), **how}) + "\n")
        file.flush()
        start = time.perf_counter()
        command = [sys.executable, "-m", "tileforge", "explain", "--json", "--batch", file.name]
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
        return round(len(asked) / (time.perf_counter() - start))


def main() -> None:
    rows = [pruning(arch, format) for arch in ARCHS.values() for format in arch.formats]
    asked_all = questions()
    rate = verdicts(asked_all)
    rate["batch_lines_per_s"] = batch(asked_all)
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
    asked, first, again, lines = rate.values()
    print(f"verdicts, {asked:,} distinct SM120 questions: {first:,}/s, again {again:,}/s")
    print(f"tileforge explain --batch, the same: {lines:,} lines/s with the start of the process")


if __name__ == "__main__":
    main()
