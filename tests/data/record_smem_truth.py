"""Records what the compiler says of many tactics, for tests/test_smem.py to compare tileforge.smem with.

    python tests/data/record_smem_truth.py --cutlass DIR [--cutlass DIR ...] --extensions DIR

``--cutlass``: CUTLASS include directories, one for each version. ``--extensions``: FlashInfer's
``csrc/nv_internal/tensorrt_llm/cutlass_extensions/include``, for the fused finalize epilogue. Writes
``smem_truth.json`` beside this file: every tactic of the default menus, the project's own cases, and a seeded random
sample of a wider space than the menus', refused tactics included. Takes about 15 minutes on one core; each section
is written when it is done.
"""

from __future__ import annotations

import argparse
import datetime
import itertools
import json
import random
import tempfile
from pathlib import Path
from typing import Any

from tileforge import space
from tileforge.arch import get_arch
from tileforge.problem import GroupedGemm
from tileforge.tactic import Tactic
from tileforge.toolchain import KernelSpec, oracle

HERE = Path(__file__).parent
TRUTH = HERE / "smem_truth.json"
COLUMNS = ["cutlass", "arch", "format", "out", "epilogue", "tactic", "stages", "smem_bytes", "mainloop_bytes"]
COLUMNS += ["epilogue_bytes", "threads", "epilogue_tile", "error"]
SEED = 20261130
CASES = [
    ("nvfp4", "plain", "128x128x128"),
    ("nvfp4", "plain", "128x128x256"),
    ("nvfp4", "plain", "256x128x128"),
    ("nvfp4", "finalize", "128x256x128"),
    ("nvfp4", "finalize", "128x256x128_coop_s2"),
    ("nvfp4", "finalize", "256x128x128"),
    ("nvfp4", "finalize", "256x128x128_coop_s2"),
    ("nvfp4", "finalize", "256x128x128_swap"),
    ("nvfp4", "c", "128x256x128"),
    ("nvfp4", "plain", "128x128x512"),
    ("mxfp4", "plain", "128x128x64"),
    ("mxfp8_mxfp4", "plain", "128x128x128"),
    ("mxfp8_mxfp4", "plain", "128x256x128"),
    ("mxfp8_mxfp4", "plain", "256x128x128"),
    ("mxfp8_mxfp4", "plain", "256x128x128_coop_s2"),
    ("nvfp4", "plain", "128x8x128_pp"),
    ("nvfp4", "plain", "128x16x128"),
    ("nvfp4", "plain", "512x512x128"),
    ("nvfp4", "plain", "128x32x128"),
    ("nvfp4", "plain", "64x128x128"),
    ("nvfp4", "plain", "128x96x128"),
    ("nvfp4", "plain", "128x192x128"),
    ("nvfp4", "plain", "128x128x128_c2x1"),
    ("nvfp4", "plain", "128x128x128_coop_e48x32"),
]  # fmt: skip
SM90_CASES = ["64x128x64_coop", "128x24x64_pp", "128x12x64", "64x256x64_pp_e64x48", "128x128x64_coop_e64x32"]

Question = tuple[str, KernelSpec]


def questions(arch: str, cutlass: str) -> list[Question]:
    """(epilogue, kernel) in a fixed order, each once."""
    asked: list[Question] = []
    formats = get_arch(arch).formats
    for name in formats:
        problem = GroupedGemm(512, 4096, 6144, 32, format=name)
        asked += [("plain", KernelSpec(arch, name, "bf16", t)) for t in space.menu(problem, get_arch(arch), cutlass)]
    if arch == "sm120":
        asked += [(epilogue, KernelSpec(arch, name, "bf16", Tactic.parse(text))) for name, epilogue, text in CASES]
        tiles = list(
            itertools.product((128, 256), (32, 64, 128, 256) if cutlass != "4.2.0" else (128, 256), (64, 128, 256))
        )
        epilogues = ("plain", "c", "finalize")
        epilogue_tiles = [None, None, None, (64, 16), (64, 32), (64, 64), (128, 32), (32, 32), (32, 16), (128, 16)]
        clusters, amount = [(1, 1)], 160 if cutlass == "4.2.0" else 110
    else:
        asked += [("plain", KernelSpec(arch, "bf16", "bf16", Tactic.parse(text))) for text in SM90_CASES]
        tiles = list(
            itertools.product((64, 128, 192, 256), (16, 32, 48, 64, 96, 128, 160, 192, 256), (32, 64, 128, 256))
        )
        epilogues = ("plain", "plain", "c")
        epilogue_tiles = [None, None, None, (64, 16), (64, 64), (128, 16), (128, 64)]
        clusters, amount = [(1, 1), (1, 1), (2, 1), (1, 2)], 80
    pick = random.Random(SEED)
    for _ in range(amount):
        tactic = Tactic(
            pick.choice(tiles),
            pick.choice(clusters),
            pick.choice(("cooperative", "pingpong")),
            pick.choice((None, None, 2, 3, 4, 5, 7, 9)),
            pick.choice(epilogue_tiles),
            pick.random() < 0.5,
        )
        asked.append(
            (
                pick.choice(epilogues),
                KernelSpec(arch, pick.choice(formats), pick.choice(("bf16", "fp16", "fp32")), tactic),
            )
        )
    return list(dict.fromkeys(asked))


def scope(arch: str, epilogue: str, extensions: Path) -> oracle.Scope | None:
    if epilogue == "plain":
        return None
    flags = (f"-I{HERE}", "-DTF_EPILOGUE_SM90" if arch == "sm90" else "-DTF_EPILOGUE_FINALIZE", f"-I{extensions}")
    return oracle.Scope(("epilogues.cuh", "oracle.cuh"), "tf::with_c" if epilogue == "c" else "tf::finalize", flags)


def record(arch: str, toolchain: oracle.Found, extensions: Path, jobs: int) -> list[list[Any]]:
    version = toolchain.cutlass.version
    asked = questions(arch, version)
    answers: dict[Question, oracle.OracleAnswer] = {}
    with tempfile.TemporaryDirectory() as empty:
        for epilogue in ("plain", "c", "finalize"):
            specs = [spec for name, spec in asked if name == epilogue]
            where = scope(arch, epilogue, extensions)
            said = oracle.ask(specs, toolchain, scope=where, cache_dir=Path(empty), jobs=jobs)
            answers.update({(epilogue, spec): answer for spec, answer in said.items()})
    refused = sum(not answer.ok for answer in answers.values())
    print(f"CUTLASS {version}, {arch}: {len(answers)} asked, {refused} refused", flush=True)
    rows: list[list[Any]] = []
    for epilogue, spec in asked:
        a = answers[epilogue, spec]
        row = [version, arch, spec.format, spec.out, epilogue, spec.tactic.kernel_id, a.stages, a.smem_bytes]
        rows.append([*row, a.mainloop_bytes, a.epilogue_bytes, a.threads, "x".join(map(str, a.epilogue_tile)), a.error])
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cutlass", type=Path, action="append", required=True)
    parser.add_argument("--extensions", type=Path, required=True)
    parser.add_argument("--arch", choices=("sm120", "sm90"), help="record this one only, and keep the other's rows")
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    old = json.loads(TRUTH.read_text(encoding="utf-8")) if TRUTH.exists() else {"rows": [], "cutlass": {}}
    for directory in options.cutlass:
        toolchain = oracle.Found.find(directory)
        for arch in (options.arch,) if options.arch else ("sm120", "sm90"):
            version = toolchain.cutlass.version
            fresh = record(arch, toolchain, options.extensions, options.jobs)
            rows = [row for row in old["rows"] if row[:2] != [version, arch]] + fresh
            old = {
                "made_by": "python tests/data/record_smem_truth.py",
                "date": datetime.date.today().isoformat(),
                "compiler": f"nvcc {toolchain.compiler.build}",
                "cutlass": {**old["cutlass"], version: toolchain.cutlass.digest},
                "columns": COLUMNS,
                "rows": sorted(rows, key=lambda row: (row[0], row[1])),
            }
            head = json.dumps({key: value for key, value in old.items() if key != "rows"})[:-1]
            text = ",\n".join(json.dumps(row) for row in old["rows"])
            TRUTH.write_text(f'{head}, "rows": [\n{text}\n]}}\n', encoding="utf-8")


if __name__ == "__main__":
    main()
