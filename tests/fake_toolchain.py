"""A toolchain for tests: CUTLASS headers that say a version, kernel sources of one file, and an nvcc that is a script.

The script hands the kernel's macros to g++, so that what comes out is a real shared object that answers tf_query;
macros that no real tactic has make it fail, hang or write rubbish in the ways in which compilers do.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from tileforge.tactic import Tactic
from tileforge.toolchain import Builder, Compiler, Cutlass, KernelSpec, find_cutlass
from tileforge.toolchain.compiler import find_host_compiler

ROOT = Path(__file__).resolve().parent.parent

ENTRY = """
#include "abi.h"
#if TF_SM == 90
#include "sm90.cuh"
#else
#include "sm120.cuh"
#endif
extern "C" {
int tf_query(tf_info *i) {
  *i = {TF_ABI_VERSION, TF_SM, TF_FORMAT, TF_OUT, TF_TILE_M, TF_TILE_N, TF_TILE_K, TF_CLUSTER_M, TF_CLUSTER_N,
        TF_SCHEDULE, TF_SWAP_AB, TF_EPI_M ? TF_EPI_M : 64, TF_EPI_N ? TF_EPI_N : 32, TF_STAGES ? TF_STAGES : 4,
        384, 90112, 74240, 9216, 450, 128, 8};
  return 0;
}
uint64_t tf_workspace_size(const tf_args *a) { return 128 * (uint64_t)a->groups; }
int tf_load(int32_t device) { return device == 0 ? 0 : TF_ERR_DEVICE; }
int tf_prepare(const tf_args *a) { return a->abi_version == TF_ABI_VERSION ? 0 : TF_ERR_ABI; }
int tf_run(const tf_args *a) { return a->workspace ? 0 : TF_ERR_WORKSPACE; }
const char *tf_last_error(void) { return "the kernel's own line"; }
}
"""

NVCC = """#!/bin/sh
case "$*" in *--version*)
  echo "nvcc: NVIDIA (R) Cuda compiler driver"
  echo "Cuda compilation tools, release @RELEASE@, V@RELEASE@.88"
  exit 0;;
esac
echo start >> "@JOURNAL@"
case "$*" in
*-DTF_STAGES=61*)
  cat <<'END'
/home/somebody/kernels/sm120.cuh(40): warning #177-D: variable "x" was declared but never referenced
/home/somebody/kernels/entry.cu(100): error: class "Collective [with Stages=12]" has no member "ptr_SFA"
/opt/include/cutlass/gemm/collective/sm120.hpp(123): error: static assertion failed with "Needs at least 2 stages."
END
  exit 2;;
*-DTF_STAGES=62*) sleep 300 & echo $! >> "@PIDS@"; echo $$ >> "@PIDS@"; wait; exit 0;;
*-DTF_STAGES=63*) echo "nvcc error   : 'cicc' died due to signal 9 (Kill signal)"; exit 9;;
*-DTF_STAGES=64*) broken=1;;
*-DTF_STAGES=65*) extra=-DTF_STAGES=3;;
*-DTF_STAGES=66*) sleep 1;;
esac
given="$*"; flags=; out=
while [ $# -gt 0 ]; do
  case "$1" in
  -DTF_STAGES=*) [ -n "$extra" ] && flags="$flags $extra" || flags="$flags $1";;
  -D*|-I*) flags="$flags $1";;
  -o) out="$2"; shift;;
  *.cu) source="$1";;
  esac
  shift
done
case "$given" in *-Xptxas=-v*) cat <<'END'
ptxas info    : Compiling entry function '_ZN2tf13derive_groupsEv' for 'sm_120a'
ptxas info    : Function properties for _ZN2tf13derive_groupsEv
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 40 registers, used 0 barriers
ptxas info    : Compiling entry function '_ZN7cutlass13device_kernelIN2tf4GemmEEEvT_' for 'sm_120a'
ptxas info    : Function properties for _ZN7cutlass13device_kernelIN2tf4GemmEEEvT_
    24 bytes stack frame, 72 bytes spill stores, 52 bytes spill loads
ptxas info    : Used 168 registers, used 8 barriers, 24 bytes cumulative stack size
END
;; esac
if [ -n "$broken" ]; then echo rubbish > "$out"; else exec g++ -x c++ -shared -fPIC $flags "$source" -o "$out"; fi
"""

#: Stage counts that make the script misbehave.
STATIC_ASSERT, HANG, KILLED, RUBBISH, OTHER, SLOW = 61, 62, 63, 64, 65, 66


@dataclass(frozen=True)
class Fake:
    """Everything in one directory; ``compiles`` counts the calls of the compiler, ``pids`` lists hanging ones."""

    root: Path
    cutlass: Cutlass
    compiler: Compiler
    kernels: Path

    @property
    def compiles(self) -> int:
        journal = self.root / "journal"
        return len(journal.read_text().splitlines()) if journal.exists() else 0

    @property
    def pids(self) -> list[int]:
        file = self.root / "pids"
        return [int(line) for line in file.read_text().split()] if file.exists() else []

    def builder(self, **options: object) -> Builder:
        options = {"cache_dir": self.root / "cache", "jobs": 2, "kernels_dir": self.kernels, **options}
        return Builder(self.cutlass, self.compiler, **options)  # type: ignore[arg-type]


def headers(directory: Path, version: str = "4.5.0", content: str = "") -> Path:
    """CUTLASS's include directory as far as finding it goes; returns it."""
    (directory / "cutlass").mkdir(parents=True)
    (directory / "cute").mkdir()
    major, minor, patch = version.split(".")
    (directory / "cutlass" / "version.h").write_text(
        f"#define CUTLASS_MAJOR {major}\n#define CUTLASS_MINOR {minor}\n  #  define CUTLASS_PATCH {patch}\n"
    )
    (directory / "cute" / "tensor.hpp").write_text(f"// {content}\n")
    return directory


def nvcc_script(path: Path, release: str = "13.0", journal: Path | None = None, pids: Path | None = None) -> Path:
    text = NVCC.replace("@RELEASE@", release)
    text = text.replace("@JOURNAL@", str(journal or "/dev/null")).replace("@PIDS@", str(pids or "/dev/null"))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def fake(root: Path) -> Fake:
    kernels = root / "kernels"
    kernels.mkdir()
    shutil.copy(ROOT / "kernels" / "abi.h", kernels)
    (kernels / "entry.cu").write_text(ENTRY)
    for header in ("sm90.cuh", "sm120.cuh"):
        (kernels / header).write_text("#pragma once\n")
    nvcc = nvcc_script(root / "bin" / "nvcc", "13.0", root / "journal", root / "pids")
    compiler = Compiler(nvcc, "13.0", "13.0.88", "test", find_host_compiler())
    return Fake(root, find_cutlass(headers(root / "include")), compiler, kernels)


def spec(stages: int | None = None, tile: tuple[int, int, int] = (128, 64, 128), arch: str = "sm120") -> KernelSpec:
    return KernelSpec(arch, "nvfp4" if arch != "sm90" else "bf16", "bf16", Tactic(tile=tile, stages=stages))
