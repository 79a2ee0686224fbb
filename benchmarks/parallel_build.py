"""How long sixteen kernels take beside one: the builder's parallelism.

    python benchmarks/parallel_build.py [--kernels 16] [--jobs 16] [--arch sm120] [--json FILE]

Method: a fresh cache directory (nothing is reused), the compiler and CUTLASS that ``tileforge doctor`` names. All
headers are read once, so that neither side pays for a cold disk. Then one kernel is built alone, and N *other*
kernels of the same format with ``--jobs`` compiles at once. Wall times are of the whole ``Builder.build`` call:
compiling, storing, and asking each kernel for its facts. Prints both and their ratio, with machine and date.
Goal: on 16 cores, 16 kernels within 1.5 times the wall time of one.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import sys
import tempfile
import time
from datetime import date
from itertools import product
from pathlib import Path
from typing import Any

from tileforge.errors import TileforgeError
from tileforge.tactic import Tactic
from tileforge.toolchain import Builder, BuildOutcome, KernelSpec
from tileforge.toolchain.machine import available_bytes, default_jobs, usable_cores

GOAL = 1.5
FORMATS = {"sm90": "bf16", "sm120": "nvfp4", "sm121": "nvfp4"}


def menu(arch: str, count: int) -> list[KernelSpec]:
    """``count`` different legal kernels; the first is CUTLASS's default tile."""
    tiles = [(128, n, k) for k in ((64, 128) if arch == "sm90" else (128, 256)) for n in (128, 64, 32)]
    fields = product((None, 2), ("cooperative", "pingpong"), (False, True), tiles)
    tactics = [Tactic(t, schedule=schedule, stages=s, swap_ab=swap) for s, schedule, swap, t in fields]
    return [KernelSpec(arch, FORMATS[arch], "bf16", tactic) for tactic in tactics][:count]


def timed(specs: list[KernelSpec], jobs: int, cache: Path) -> tuple[float, list[BuildOutcome]]:
    builder = Builder(cache_dir=cache, jobs=jobs)
    start = time.perf_counter()
    outcomes = builder.build(
        specs, on_done=lambda o: print(f"  {o.spec.id}: {o.seconds:.1f} s {o.message}", flush=True)
    )
    return time.perf_counter() - start, outcomes


def cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def main() -> int:
    parser = argparse.ArgumentParser(description="Wall time of one kernel and of many at once.")
    parser.add_argument("--kernels", type=int, default=16)
    parser.add_argument("--jobs", type=int, help="compiles at once (default: by cores and memory)")
    parser.add_argument("--arch", choices=sorted(FORMATS), default="sm120")
    parser.add_argument("--keep", type=Path, help="an empty directory for the kernels (default: they are thrown away)")
    parser.add_argument("--json", type=Path, help="write the figures there too")
    options = parser.parse_args()
    jobs = options.jobs or default_jobs([options.arch])
    specs = menu(options.arch, options.kernels + 1)

    if options.keep is not None and options.keep.exists() and any(options.keep.iterdir()):
        print(f"parallel_build: {options.keep} is not empty: nothing may be there already", file=sys.stderr)
        return 2
    scratch = Path(tempfile.mkdtemp(prefix="tileforge-benchmark-"))
    try:
        builder = Builder(cache_dir=scratch / "none")
        if builder.missing is not None or builder.cutlass is None or builder.compiler is None:
            print(f"parallel_build: {builder.missing}", file=sys.stderr)
            return 2
        for header in builder.cutlass.include.rglob("*"):
            if header.is_file():
                header.read_bytes()
        print(f"one kernel ({specs[0].id}):")
        one, first = timed(specs[:1], 1, options.keep or scratch / "one")
        print(f"{options.kernels} other kernels, {jobs} at once:")
        many, rest = timed(specs[1:], jobs, options.keep or scratch / "many")
    except TileforgeError as error:
        print(f"parallel_build: {error}", file=sys.stderr)
        return 2
    finally:
        shutil.rmtree(scratch, ignore_errors=True)

    kernels = [outcome.kernel for outcome in (*first, *rest) if outcome.kernel is not None]
    figures: dict[str, Any] = {
        "date": date.today().isoformat(),
        "machine": f"{cpu_name()}, {usable_cores()} of {os.cpu_count()} cores, "
        f"{(available_bytes() or 0) / 2**30:.0f} GiB available",
        "compiler": f"nvcc {builder.compiler.build} ({builder.compiler.origin})",
        "cutlass": f"{builder.cutlass.version} ({builder.cutlass.digest})",
        "arch": options.arch,
        "kernels": options.kernels,
        "failed": 1 + options.kernels - len(kernels),
        "jobs": jobs,
        "one_wall_s": round(one, 1),
        "many_wall_s": round(many, 1),
        "ratio": round(many / one, 2),
        "slowest_compile_s": round(max(outcome.seconds for outcome in rest), 1),
        "cpu_s_per_kernel": round(sum(float(kernel.meta["cpu_seconds"]) for kernel in kernels) / len(kernels), 1),
        "peak_bytes_of_one_process": max(int(kernel.meta["peak_bytes"]) for kernel in kernels),
    }
    for name, value in figures.items():
        print(f"{name:<26} {value}")
    print(f"goal: ratio of {GOAL} or less on 16 cores")
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    return 1 if figures["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
