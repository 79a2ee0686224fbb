"""Every distinct kernel of the default SM120 menus compiled in full: registers, spills, stack, bytes, seconds, size.

    python benchmarks/menu_builds.py --jobs 16 --out tests/data/menu_builds_sm120.json

A type that instantiates is not a kernel that compiles. Seconds are those of compiles that ran side by side (``jobs``).
The file is written after every kernel, so that a run that is stopped leaves what it has. Needs nvcc and CUTLASS 4.5.0
(``tileforge toolchain fetch-headers``); nothing is run.
"""

from __future__ import annotations

import argparse
import datetime
import itertools
import json
import os
import tempfile
from pathlib import Path
from typing import Any

from tileforge import paths, space
from tileforge.arch import get_arch
from tileforge.problem import GroupedGemm
from tileforge.toolchain import Builder, KernelSpec, cutlass_of
from tileforge.toolchain.build import BuildOutcome

ARCH = "sm120"


def kernels(cutlass: str) -> list[KernelSpec]:
    """The formats in turn, so that a run that is stopped has some of each."""
    menus = []
    for name in get_arch(ARCH).formats:
        problem = GroupedGemm(512, 4096, 6144, 32, format=name)
        menus.append([KernelSpec(ARCH, name, "bf16", t) for t in space.menu(problem, get_arch(ARCH), cutlass)])
    return [spec for row in itertools.zip_longest(*menus) for spec in row if spec is not None]


def row(outcome: BuildOutcome) -> dict[str, Any]:
    spec = outcome.spec
    found: dict[str, Any] = {"format": spec.format, "tactic": spec.tactic.kernel_id, "error": outcome.message}
    if outcome.kernel is None:
        return found | {"seconds": round(outcome.seconds, 1)}
    meta = outcome.kernel.meta
    found |= {name: meta["info"][name] for name in ("stages", "smem_bytes", "threads")}
    found |= {name: meta[name] for name in ("registers", "spill_bytes", "stack_bytes", "seconds", "cpu_seconds")}
    return found | {
        "peak_mb": round(meta["peak_bytes"] / 1e6),
        "binary_bytes": outcome.kernel.path.stat().st_size,
        "lean": meta["lean"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int)
    parser.add_argument("--cutlass", default="4.5.0")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--first", type=int, help="only so many kernels")
    options = parser.parse_args()
    headers = cutlass_of(options.cutlass)
    with tempfile.TemporaryDirectory(dir=paths.cache_dir()) as room:
        builder = Builder(headers, cache_dir=Path(room), jobs=options.jobs)
        assert builder.compiler is not None
        specs = kernels(options.cutlass)[: options.first]
        head = {
            "made_by": "python benchmarks/menu_builds.py",
            "date": datetime.date.today().isoformat(),
            "compiler": f"nvcc {builder.compiler.build}",
            "cutlass": headers.version,
            "headers": headers.digest,
            "arch": ARCH,
            "jobs": options.jobs or os.cpu_count(),
            "kernels_of_the_menus": len(kernels(options.cutlass)),
        }
        rows: list[dict[str, Any]] = []

        def done(outcome: BuildOutcome) -> None:
            rows.append(row(outcome))
            lines = ",\n".join(json.dumps(each) for each in sorted(rows, key=lambda r: (r["format"], r["tactic"])))
            options.out.write_text(f'{json.dumps(head)[:-1]}, "rows": [\n{lines}\n]}}\n', encoding="utf-8")
            print(len(rows), json.dumps(rows[-1]), flush=True)

        builder.build(specs, done)
    failed = sum(bool(each["error"]) for each in rows)
    print(f"{len(rows)} kernels, {failed} failed; {sum(r.get('cpu_seconds', 0) for r in rows):.0f} CPU-seconds")


if __name__ == "__main__":
    main()
