"""What one kernel costs to compile, before and after, and whether its machine code stayed the same.

    python benchmarks/build_cost.py [--kernel ID] [--before DIR] [--repeats 2] [--json FILE]

`--before` is a directory of kernel sources to compare with (`git worktree add` an older commit, and name its kernels/);
default: this tree's. "before" compiles them as tileforge did at first: CUTLASS's headers as they are, nvcc -O3 for host
code too. "after" is what the builder does now: this tree's sources, its flags, its edited headers (toolchain/lean.py).
`--before-flags` and `--flags` add nvcc flags to one side, `--cutlass` names other headers.

Method: before and after in turns, `--repeats` times each, one nvcc at a time, all headers read once beforehand. CPU
time is user plus system of nvcc and all its programs (wait4), peak memory the largest of them; medians are printed.
Phases are nvcc's own (`-time`, wall time). The hash covers names and bytes of all .text sections of the cubin.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import platform
import statistics
import struct
import sys
import tempfile
from collections import defaultdict
from datetime import date
from pathlib import Path
from typing import Any

from tileforge import paths
from tileforge.arch import get_arch
from tileforge.errors import TileforgeError, ToolchainError
from tileforge.toolchain import Compiler, KernelSpec, find_compiler, find_cutlass
from tileforge.toolchain.diagnose import first_error
from tileforge.toolchain.lean import write_lean
from tileforge.toolchain.machine import usable_cores
from tileforge.toolchain.process import run_group
from tileforge.toolchain.spec import kernel_command
from tileforge.toolchain.usage import gemm_usage

GOAL = 0.5


def text_hash(cubin: bytes) -> str:
    """Sixteen hex digits over the .text sections (name and bytes) of a 64-bit ELF file, in the order of names."""
    (table,) = struct.unpack_from("<Q", cubin, 0x28)
    count, names = struct.unpack_from("<HH", cubin, 0x3C)
    headers = [struct.unpack_from("<IIQQQQ", cubin, table + 64 * i) for i in range(count)]
    start = headers[names][4]
    sections = []
    for header in headers:
        name = cubin[start + header[0] : cubin.index(b"\0", start + header[0])]
        if name.startswith(b".text"):
            sections.append((name, cubin[header[4] : header[4] + header[5]]))
    return hashlib.sha256(b"".join(name + b"\0" + code for name, code in sorted(sections))).hexdigest()[:16]


def measure(
    spec: KernelSpec, compiler: Compiler, include: Path, kernels: Path, extra: list[str], lean: bool
) -> dict[str, Any]:
    """One compile in a directory of its own. Raises ToolchainError with the compiler's first error."""
    with tempfile.TemporaryDirectory(prefix="tileforge-benchmark-") as name:
        work = Path(name)
        overlay = work / "lean"
        edited = write_lean(include, overlay, kernels, get_arch(spec.arch).kernels) if lean else []
        command = kernel_command(spec, include, kernels, work / "kernel.so", [overlay] if edited else [])
        if not lean:
            command = ["-O3" if flag == "-O1" else flag for flag in command]
        command += [*extra, "--keep", "--keep-dir", str(work), "-time", str(work / "phases.csv")]
        log = work / "log.txt"
        ran = run_group(compiler.command(command), cwd=work, log=log, timeout_s=1800, env=compiler.env)
        text = log.read_text(encoding="utf-8", errors="replace")
        if ran.returncode:
            raise ToolchainError(first_error(text))
        phases: dict[str, float] = defaultdict(float)
        with (work / "phases.csv").open(encoding="utf-8") as file:
            for row in list(csv.reader(file, skipinitialspace=True))[1:]:
                phases[row[1].strip()] += float(row[6]) / 1000
        return {
            "cpu_s": ran.cpu_s,
            "wall_s": ran.seconds,
            "peak_bytes": ran.peak_bytes,
            "phases": dict(phases),
            "text": text_hash((work / "entry.cubin").read_bytes()),
            **gemm_usage(text),
        }


def cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def summary(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Medians of the repeats; what is the same in all of them as it is."""
    middle = {name: statistics.median(run[name] for run in runs) for name in ("cpu_s", "wall_s", "peak_bytes")}
    phases = {name: statistics.median(run["phases"].get(name, 0.0) for run in runs) for name in runs[0]["phases"]}
    return {**runs[0], **middle, "phases": phases, "cpu_s_all": [round(run["cpu_s"], 1) for run in runs]}


def main() -> int:
    parser = argparse.ArgumentParser(description="CPU time and machine code of one kernel, before and after.")
    parser.add_argument(
        "--kernel", default="sm120_nvfp4_bf16_128x128x128_c1x1_coop", help="as tileforge build names it"
    )
    parser.add_argument("--cutlass", help="directory of CUTLASS headers (default: found)")
    parser.add_argument("--before", type=Path, help="kernel sources to compare with (default: this tree's)")
    parser.add_argument("--before-flags", default="", help="nvcc flags to add before, in one word")
    parser.add_argument("--flags", default="", help="nvcc flags to add after, in one word")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--json", type=Path, help="write the figures there too")
    options = parser.parse_args()
    try:
        spec, compiler, cutlass = KernelSpec.parse(options.kernel), find_compiler(), find_cutlass(options.cutlass)
        for header in cutlass.include.rglob("*"):
            if header.is_file():
                header.read_bytes()
        ours = paths.kernels_dir()
        sides = {
            "before": (options.before or ours, options.before_flags.split(), False),
            "after": (ours, options.flags.split(), True),
        }
        runs: dict[str, list[dict[str, Any]]] = {name: [] for name in sides}
        for turn in range(options.repeats):
            for name, (kernels, extra, lean) in sides.items():
                runs[name].append(measure(spec, compiler, cutlass.include, kernels.resolve(), extra, lean))
                print(f"{turn + 1} {name:<7} {runs[name][-1]['cpu_s']:.1f} CPU-s", flush=True)
    except (TileforgeError, OSError) as error:
        print(f"build_cost: {error}", file=sys.stderr)
        return 2
    before, after = summary(runs["before"]), summary(runs["after"])
    ratio, same = after["cpu_s"] / before["cpu_s"], len({run["text"] for side in runs.values() for run in side}) == 1
    print(f"{date.today().isoformat()}, {cpu_name()}, {usable_cores()} cores; no GPU is used")
    print(f"{spec.id}, nvcc {compiler.build} ({compiler.origin}), CUTLASS {cutlass.version}")
    print(f"{'':<24}{'before':>12}{'after':>12}")
    for label, scale in (("cpu_s", 1.0), ("wall_s", 1.0), ("peak_bytes", 1e9)):
        print(f"{label.replace('_bytes', '_GB'):<24}{before[label] / scale:>12.2f}{after[label] / scale:>12.2f}")
    for phase in before["phases"]:
        if max(before["phases"][phase], after["phases"].get(phase, 0.0)) >= 0.1:
            print(f"  {phase:<22}{before['phases'][phase]:>12.2f}{after['phases'].get(phase, 0.0):>12.2f}")
    print(f"machine code             {before['text']} {after['text']}: {'the same' if same else 'DIFFERENT'}")
    print(f"CPU time after / before: {ratio:.2f} (goal: {GOAL:.2f} or less)")
    if options.json:
        figures = {"date": date.today().isoformat(), "cpu": cpu_name(), "kernel": spec.id, "nvcc": compiler.build}
        figures |= {"cutlass": cutlass.version, "ratio": round(ratio, 3), "same_text": same}
        figures |= {"before": before, "after": after}
        options.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
