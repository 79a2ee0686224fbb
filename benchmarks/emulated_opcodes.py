"""Whether an emulated kernel issues what SM120's own does: PTX opcodes of both builds, counted side by side.

    python benchmarks/emulated_opcodes.py --format nvfp4 --tactic 128x128x128_c1x1_coop [--cutlass 4.5.0]

Counted are mbarrier, bulk copies (TMA), tensormap, fences, barriers, elect, ldmatrix, stmatrix, setmaxnreg and what
orders launches, each with all its qualifiers: what an emulated kernel must have in common with SM120's, because it is
what emulation is to say something about. Functions of kernels/emulated/ are counted apart. Instead of the instructions
that they stand for, the calls of them are counted, and must be as many; that row says "emulated". TMA loads of 4-bit
elements that are to arrive as bytes have three dimensions instead of two (kernels/emulated/tma.cuh): counted as two.

Method: nvcc -ptx with the builder's flags and headers, once for the SM120 kernel and once emulated, one at a time; all
functions of the file, as written (an instruction in a loop counts once). Exit code: 1 when a count differs, 2 when
there is nothing to compare. Needs no GPU.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from collections import Counter
from dataclasses import replace
from datetime import date
from pathlib import Path

from tileforge import paths
from tileforge.arch import get_arch
from tileforge.errors import TileforgeError, ToolchainError
from tileforge.tactic import Tactic
from tileforge.toolchain import Compiler, Cutlass, KernelSpec, cutlass_of, find_compiler, find_cutlass
from tileforge.toolchain.diagnose import first_error
from tileforge.toolchain.lean import write_lean
from tileforge.toolchain.overlay import write_overlay
from tileforge.toolchain.process import run_group
from tileforge.toolchain.spec import kernel_command

KINDS = (
    "mbarrier|cp|multimem|prefetch|tensormap|fence|membar|bar|barrier|elect|ldmatrix|stmatrix|setmaxnreg|mma|wgmma|"
    "griddepcontrol"
)
#: Instructions that are emulated, and the functions that are called instead (tileforge/toolchain/overlay.py).
EMULATED = {
    "mma, block-scaled": (r"mma\.sync\S*block_scale\S*", r"mma_k(?:64|32)"),
    "ldmatrix, 4-bit to bytes": (r"ldmatrix\S*b4x16_p64\S*", r"load_nibbles"),
}
_OPCODE = re.compile(rf"(?<![\w.$%])(?:{KINDS})\.[\w.:]*\w")
_STEPPED = re.compile(r"cp\.async\.bulk\.tensor\.3d\.shared::cta\.global\..*")
_COMMENT = re.compile(r"//.*")
_FUNCTION = re.compile(r"^(?:\.\w+\s+)*\.(?:func|entry)\b([^{;]*)\{", re.MULTILINE)
_EMULATING = re.compile(r"\b_ZN2tf8emulated\d+(\w+)")
_CALL = re.compile(r"\bcall(?:\.uni)?\s*(?:\([^)]*\)\s*,\s*)?(\w+)")


def functions(ptx: str) -> tuple[list[str], list[str]]:
    """(bodies of the kernel's own functions, bodies of those in kernels/emulated/). Raises ToolchainError."""
    own, emulating = [], []
    text = _COMMENT.sub("", ptx)
    for found in _FUNCTION.finditer(text):
        (emulating if _EMULATING.search(found[1]) else own).append(_block(text, found.end()))
    # Two empty counts would agree.
    if not own or opcodes([text]) != opcodes(own + emulating):
        raise ToolchainError("functions are not found as they should be in the compiler's PTX")
    return own, emulating


def _block(text: str, start: int) -> str:
    """``text`` from ``start`` to the brace that closes it: inline assembly puts braces of its own at a line's start."""
    depth = 1
    for brace in re.compile(r"[{}]").finditer(text, start):
        depth += 1 if brace[0] == "{" else -1
        if not depth:
            return text[start : brace.start()]
    raise ToolchainError("the compiler's PTX ends inside a function")


def opcodes(bodies: list[str]) -> Counter[str]:
    return Counter(found for body in bodies for found in _OPCODE.findall(body))


def called(bodies: list[str]) -> Counter[str]:
    """Calls of emulating functions, by name."""
    names = (_EMULATING.match(name) for body in bodies for name in _CALL.findall(body))
    return Counter(name[1] for name in names if name)


def table(product: str, emulated: str) -> list[tuple[str, int, int, str]]:
    """(opcode, count in SM120's PTX, count in the emulated PTX, remark) of everything counted, in order of names."""
    (own, _), (other, _) = functions(product), functions(emulated)
    theirs, ours, calls = opcodes(own), opcodes(other), called(other)
    rows = []
    # Of the load of an operand that SM120 unpacks, K is a dimension of its own: the same load, counted as such.
    stepped = Counter({name: ours[name] for name in ours if _STEPPED.fullmatch(name) and not theirs[name]})
    ours -= stepped
    for name, count in stepped.items():
        ours[name.replace(".3d.", ".2d.")] += count
    remarks = {name.replace(".3d.", ".2d."): f"emulated: {count} of them 3d" for name, count in stepped.items()}
    for title, (opcode, function) in EMULATED.items():
        replaced = [name for name in theirs if re.fullmatch(opcode, name)]
        stands = sum(count for name, count in calls.items() if re.match(function, name))
        there = sum(theirs.pop(name) for name in replaced)
        if there or stands:
            rows.append((title, there, stands, "emulated: calls"))
    return rows + [
        (name, theirs[name], ours[name], remarks.get(name, "")) for name in sorted(theirs.keys() | ours.keys())
    ]


def compile_ptx(spec: KernelSpec, compiler: Compiler, cutlass: Cutlass) -> tuple[str, float]:
    """The kernel's PTX and the CPU-seconds that it took. Raises ToolchainError with the compiler's first error."""
    kernels = paths.kernels_dir().resolve()
    with tempfile.TemporaryDirectory(prefix="tileforge-benchmark-") as name:
        work = Path(name)
        before = [work / "overlay"] if spec.emulated else []
        for directory in before:
            write_overlay(cutlass, directory)
        if write_lean(cutlass.include, work / "lean", kernels, get_arch(spec.arch).kernels):
            before.append(work / "lean")
        command = [*kernel_command(spec, cutlass.include, kernels, work / "kernel.ptx", before), "-ptx"]
        log = work / "log.txt"
        ran = run_group(compiler.command(command), cwd=work, log=log, timeout_s=1800, env=compiler.env)
        if ran.returncode:
            raise ToolchainError(first_error(log.read_text(encoding="utf-8", errors="replace")))
        return (work / "kernel.ptx").read_text(encoding="utf-8"), ran.cpu_s


def main() -> int:
    parser = argparse.ArgumentParser(description="PTX opcodes of an SM120 kernel and of its emulation.")
    parser.add_argument("--tactic", default="128x128x128_c1x1_coop")
    parser.add_argument("--format", default="nvfp4")
    parser.add_argument("--arch", default="sm120")
    parser.add_argument("--cutlass", help="version or directory of CUTLASS headers (default: found)")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="leave both PTX files there")
    options = parser.parse_args()
    try:
        versioned = re.fullmatch(r"[\d.]+", options.cutlass or "")
        cutlass = cutlass_of(options.cutlass) if versioned else find_cutlass(options.cutlass)
        compiler = find_compiler()
        product = KernelSpec(options.arch, options.format, "bf16", Tactic.parse(options.tactic))
        found = [compile_ptx(each, compiler, cutlass) for each in (product, replace(product, emulated=True))]
        if options.keep:
            options.keep.mkdir(parents=True, exist_ok=True)
            for name, (ptx, _) in zip((product.id, f"{product.id}_emulated"), found, strict=True):
                (options.keep / f"{name}.ptx").write_text(ptx, encoding="utf-8")
        (theirs, theirs_s), (ours, ours_s) = found
        rows = table(theirs, ours)
    except (TileforgeError, OSError) as error:
        print(f"emulated_opcodes: {error}", file=sys.stderr)
        return 2
    differ = [row for row in rows if row[1] != row[2]]
    print(f"{date.today().isoformat()}; no GPU is used")
    print(f"{product.id}, nvcc {compiler.build} ({compiler.origin}), CUTLASS {cutlass.version}")
    print(f"{theirs_s:.0f} and {ours_s:.0f} CPU-seconds to PTX")
    width = max(len(row[0]) for row in rows)
    print(f"{'opcode':<{width}}{'sm_120a':>9}{'emulated':>9}")
    for name, there, here, remark in rows:
        said = [*(["DIFFERENT"] if there != here else []), *([remark] if remark else [])]
        print(f"{name:<{width}}{there:>9}{here:>9}  {'; '.join(said)}".rstrip())
    inside = ", ".join(f"{count} {name}" for name, count in sorted(opcodes(functions(ours)[1]).items()))
    print(f"not counted, inside the emulating functions: {inside or 'nothing'}")
    print(f"{len(rows)} opcodes, {len(differ)} differ" + (": " if differ else "") + ", ".join(row[0] for row in differ))
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
