"""Records the tactics of FlashInfer's grouped GEMMs on SM120, for tests/test_flashinfer_tactics.py to compare with.

    python tests/data/record_flashinfer_tactics.py --flashinfer DIR

``--flashinfer``: the package directory (of an installation, or of its unpacked wheel). Nothing of FlashInfer is
imported and no GPU is needed. Writes ``flashinfer_tactics.json`` beside this file, in about four minutes on one core:

- ``lists``: the tactics of ``cutlass_fused_moe`` with the positions that ``profile_ids`` takes. FlashInfer's own C++
  (cutlass_heuristic.cpp and ``CutlassMoeFCRunner::getTactics``) is compiled and run to print them.
- ``group_gemms``: the tactics of the grouped GEMMs that take their tile as arguments, from the templates (.jinja) that
  they are compiled from.
- ``kernels``: what the compiler says of every kernel behind those: stages, shared memory, the C operand. The types are
  built by FlashInfer's own text, cut out of its launchers' macros; and for each the project's own description
  (``tileforge.toolchain.oracle``) must come to the same figures, or nothing is written.
"""

from __future__ import annotations

import argparse
import ast
import datetime
import importlib
import itertools
import json
import re
import struct
import subprocess
import sys
import tempfile
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tileforge.tactic import Tactic
from tileforge.toolchain import KernelSpec, oracle
from tileforge.toolchain.compiler import Compiler, find_compiler
from tileforge.toolchain.oracle_cache import Question

HERE = Path(__file__).parent
TRUTH = HERE / "flashinfer_tactics.json"
OUTS = {"bf16": "__nv_bfloat16", "fp16": "half"}
#: Types of activations and weights as FlashInfer's MoE names them.
MOE_FORMATS = {"nvfp4": ("SafeFP4", "SafeFP4"), "mxfp8_mxfp4": ("SafeFP8", "SafeFP4")}
GROUP_GEMMS = {
    "nvfp4": ("group_gemm_nvfp4_nt_groupwise", "nvfp4", "cutlass::float_e2m1_t", "cutlass::float_ue4m3_t"),
    "mxfp8_mxfp4": ("group_gemm_mxfp8_mxfp4_nt_groupwise", "mxfp4", "cutlass::float_e4m3_t", "cutlass::float_ue8m0_t"),
}
#: As FlashInfer's jit/fused_moe.py compiles for SM120.
DEFINES = [f"-D{name}" for name in ("COMPILE_BLACKWELL_SM120_TMA_GROUPED_GEMMS", "ENABLE_BF16", "ENABLE_FP8")]
DEFINES += ["-DENABLE_FP4", "-DUSING_OSS_CUTLASS_MOE_GEMM"]
KERNELS = "csrc/nv_internal/tensorrt_llm/kernels/cutlass_kernels"
COLUMNS = ["entry", "format", "out", "tile", "swap_ab", "epilogue", "schedule", "c", "stages", "smem_bytes"]
COLUMNS += ["mainloop_bytes", "epilogue_bytes", "threads", "epilogue_tile"]
FACTS = 9

LIST = """
#include <cstdio>
#include "moe_gemm/moe_gemm_template_dispatch.h"
#include "moe_kernels.h"
namespace k = tensorrt_llm::kernels::cutlass_kernels;
namespace e = tensorrt_llm::cutlass_extensions;
template <class T, class W, class O> void print(char const* format, char const* out, int sm) {
  using Runner = k::CutlassMoeFCRunner<T, W, O, O, O>;
  int position = 0;
  for (auto gemm : {k::MoeGemmId::GEMM_1, k::MoeGemmId::GEMM_2})
    for (auto const& c : Runner::getTactics(sm, gemm))
      printf("['%s', '%s', %d, 'gemm%d', %d, '%s', '%s', '%s', '%s', %d]\\n", format, out, sm,
             gemm == k::MoeGemmId::GEMM_1 ? 1 : 2, position++,
             c.getTileConfigAsName().c_str(), e::get_cluster_shape_name(c.cluster_shape).c_str(),
             c.mainloop_schedule == e::MainloopScheduleType::AUTO ? "auto" : "other",
             c.epilogue_fusion_type == e::CutlassGemmConfig::EpilogueFusionType::FINALIZE ? "finalize" : "plain",
             c.swap_ab);
}
int main() {
  for (int sm : {120, 121}) {
    print<k::Fp4Type, k::Fp4Type, __nv_bfloat16>("nvfp4", "bf16", sm);
    print<k::Fp4Type, k::Fp4Type, half>("nvfp4", "fp16", sm);
    print<__nv_fp8_e4m3, k::Fp4Type, __nv_bfloat16>("mxfp8_mxfp4", "bf16", sm);
    print<__nv_fp8_e4m3, k::Fp4Type, half>("mxfp8_mxfp4", "fp16", sm);
  }
}
"""


def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def nvcc(compiler: Compiler, data: Path, room: Path, arguments: Sequence[str | Path]) -> None:
    """Runs nvcc in ``room`` with FlashInfer's include directories and definitions. Raises SystemExit on errors."""
    # Only these names of cuBLAS's headers, which are not part of the compiler's wheels, are used.
    names = sorted(
        set(
            re.findall(r"CUBLAS_STATUS_\w+", text_of(data / "csrc/nv_internal/include/tensorrt_llm/common/cudaUtils.h"))
        )
    )
    (room / "cublas_v2.h").write_text(
        f"#pragma once\nenum cublasStatus_t {{ {', '.join(names)} }};\n", encoding="utf-8"
    )
    (room / "cublasLt.h").write_text('#include "cublas_v2.h"\n', encoding="utf-8")
    under = [
        "csrc",
        "csrc/nv_internal",
        "csrc/nv_internal/include",
        KERNELS,
        f"{KERNELS}/include",
        f"{KERNELS}/moe_gemm",
    ]
    under += ["csrc/nv_internal/tensorrt_llm/cutlass_extensions/include", "include", "cutlass/include"]
    under += ["cutlass/tools/util/include", "spdlog/include"]
    includes = [f"-I{room}", *(f"-I{data / name}" for name in under)]
    flags = ["-std=c++17", "-arch=sm_120a", "--expt-relaxed-constexpr", "-w", "-include", "cmath", *DEFINES, *includes]
    command = compiler.command([*flags, *map(str, arguments)])
    ran = subprocess.run(command, cwd=room, capture_output=True, text=True)
    if ran.returncode:
        raise SystemExit(f"nvcc failed:\n{ran.stdout[-2000:]}{ran.stderr[-4000:]}")


def elements(tile: str, format: str) -> list[int]:
    """FlashInfer names K in bytes of an activation (SHAPE_CASE in moe_gemm_template_dispatch_tma_ws.h)."""
    m, n, k = map(int, tile.split("x"))
    return [m, n, k * 8 // (4 if format == "nvfp4" else 8)]


def moe_lists(package: Path, compiler: Compiler) -> list[dict[str, Any]]:
    """The tactics of ``cutlass_fused_moe`` in order, printed by FlashInfer's own code; ``position`` as profile_ids'."""
    data = package / "data"
    binding = text_of(data / "csrc/fused_moe/cutlass_backend/flashinfer_cutlass_fused_moe_binding.cu")
    joined = "mAllProfiles.insert(mAllProfiles.end(), gemm2_tactics.begin(), gemm2_tactics.end());"
    assert joined in binding, "profile_ids are no longer positions in GEMM1's list followed by GEMM2's"
    with tempfile.TemporaryDirectory() as name:
        room = Path(name)
        (room / "list.cu").write_text(LIST, encoding="utf-8")
        common = data / "csrc/nv_internal/cpp/common"
        sources = [common / f"{each}.cpp" for each in ("logger", "tllmException", "stringUtils")]
        sources.append(data / KERNELS / "cutlass_heuristic.cpp")
        nvcc(compiler, data, room, ["-x", "cu", "list.cu", *sources, "-o", "list"])
        printed = subprocess.run([room / "list"], capture_output=True, text=True, check=True).stdout
    lists: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for line in printed.splitlines():
        format, out, sm, gemm, position, tile, cluster, schedule, epilogue, swap = ast.literal_eval(line)
        row = {"entry": "cutlass_fused_moe", "format": format, "gemm": gemm, "position": position}
        row |= {"tile": elements(tile, format), "cluster": cluster, "schedule": schedule, "epilogue": epilogue}
        lists.setdefault((out, sm), []).append({**row, "swap_ab": bool(swap)})
    first, *others = lists.values()
    assert len(others) == 3, lists.keys()
    assert all(other == first for other in others), "the list depends on the output type, or SM121's is another"
    return first


def generated(package: Path) -> set[tuple[Any, ...]]:
    """The MoE kernels that FlashInfer compiles for SM120, by its own generator: COLUMNS up to ``epilogue``."""
    parent = types.ModuleType("flashinfer_generator")
    parent.__path__ = [str(package / "jit/gemm/cutlass")]  # these two files import nothing of FlashInfer
    sys.modules[parent.__name__] = parent
    module = importlib.import_module("flashinfer_generator.generate_kernels")
    found = set()
    for each in module.generate_sm120_grouped_gemm_operations(True):
        tile = "x".join(map(str, each.cta_shape))
        format = "mxfp8_mxfp4" if each.is_mx_fpx else "nvfp4"
        epilogue = "finalize" if each.epi_fusion.name.endswith("finalize") else "plain"
        out = {"f16": "fp16", "bf16": "bf16"}[each.output_type.name]
        found.add(("cutlass_fused_moe", format, out, tile, each.swap_ab, epilogue))
    return found


def group_gemms(package: Path) -> list[dict[str, Any]]:
    """What is compiled for the grouped GEMMs that take their tile as arguments: no list, so no positions."""
    found = []
    for format, (entry, name, *_) in GROUP_GEMMS.items():
        template = text_of(package / f"data/csrc/group_gemm_{name}_groupwise_sm120_kernel_inst.jinja")
        loops = dict(re.findall(r"{% for (\w+) in (\[.*?\]) %}", template))
        menu = [ast.literal_eval(loops[each]) for each in ("tile_m", "tile_n", "tile_k", "swap_ab")]
        for m, n, k, swap in itertools.product(*menu):
            row = {"entry": entry, "format": format, "tile": [m, n, k], "swap_ab": swap == "true"}
            found.append({**row, "epilogue": "plain"})
    return found


def macro(path: Path, name: str, begin: str, end: str) -> tuple[list[str], str]:
    """Parameters of a macro and the part of its body from ``begin`` up to ``end``, as plain text."""
    lines = [re.sub(r"\s*\\$", "", line) for line in text_of(path).splitlines()]
    whole = "\n".join(lines).split(f"#define {name}(", 1)[1]
    parameters = [each.strip() for each in whole[: whole.index(")")].split(",")]
    body = re.sub(r"/\*.*?\*/", " ", whole[whole.index(begin) : whole.index(end)], flags=re.DOTALL)
    return parameters, body


def as_struct(name: str, parameters: list[str], values: Sequence[Any], body: str) -> str:
    """The declarations of a function's body as those of a struct, macro parameters replaced."""
    for parameter, value in zip(parameters, values, strict=True):
        body = re.sub(rf"\b{parameter}\b", str(value), body)
    body = re.sub(r"\bconstexpr\s+static\b", "static constexpr", body)
    body = re.sub(r"(?<!static )\bconstexpr\b", "static constexpr", body)
    return f"struct {name} {{ {body} }};\n"


def facts(name: str, scope: str) -> str:
    """An array that the PTX shows: the figures of one kernel's types."""
    it = f"{scope}::{name}"
    loop, store = f"typename {it}::CollectiveMainloop", f"typename {it}::CollectiveEpilogue"
    tag = "cutlass::gemm::KernelPtrArrayTmaWarpSpecialized"
    return f"""extern "C" {{ __device__ int fact_{name}[{FACTS}] = {{
    {it}::CollectiveMainloop::DispatchPolicy::Stages, (int)sizeof(typename {it}::GemmKernel::SharedStorage),
    (int)sizeof({loop}::TensorStorage), (int)sizeof({store}::SharedStorage),
    (int){it}::GemmKernel::MaxThreadsPerBlock, (int)cute::size<0>({store}::EpilogueTile{{}}),
    (int)cute::size<1>({store}::EpilogueTile{{}}),
    cute::is_base_of_v<{tag}Cooperative, {loop}::DispatchPolicy::Schedule> ? 1 :
    cute::is_base_of_v<{tag}Pingpong, {loop}::DispatchPolicy::Schedule> ? 2 : 0,
    cute::is_void_v<{store}::ElementC> ? 1 : cute::is_same_v<{store}::ElementC, cutlass::bfloat16_t> ? 2 :
    cute::is_same_v<{store}::ElementC, cutlass::half_t> ? 3 : 4}}; }}
"""


def compile_types(package: Path, compiler: Compiler, scope: str, structs: list[str]) -> list[list[Any]]:
    """COLUMNS from ``schedule`` on, for each of ``structs``."""
    names = [f"t{number}" for number in range(len(structs))]
    text = '#include "launchers/moe_gemm_tma_ws_launcher.inl"\n'  # and with it all of CUTLASS that is used
    text += f"namespace {scope} {{ using namespace cute;\n{''.join(structs)}}}\n"
    with tempfile.TemporaryDirectory() as room:
        (Path(room) / "question.cu").write_text(text + "".join(facts(name, scope) for name in names), encoding="utf-8")
        nvcc(compiler, package / "data", Path(room), ["-ptx", "question.cu", "-o", "answer.ptx"])
        said = re.findall(r"fact_t(\d+)\[(\d+)\] = \{([^}]*)\}", text_of(Path(room) / "answer.ptx"))
    found: dict[int, list[Any]] = {}
    for number, size, values in said:
        raw = bytes(int(value) for value in values.split(",")).ljust(int(size), b"\0")
        stages, total, mainloop, epilogue, threads, m, n, schedule, c = struct.unpack(f"<{FACTS}i", raw)
        word = ("?", "cooperative", "pingpong")[schedule]
        row = [word, ("?", "", "bf16", "fp16", "?")[c], stages, total, mainloop, epilogue, threads, f"{m}x{n}"]
        found[int(number)] = row
    return [found[number] for number in range(len(structs))]


def moe_kernels(package: Path, compiler: Compiler, rows: list[dict[str, Any]]) -> list[list[Any]]:
    path = package / "data" / KERNELS / "moe_gemm/launchers/moe_gemm_tma_ws_launcher.inl"
    name = "INSTANTIATE_TMA_WARP_SPECIALIZED_MOE_GEMM"
    parameters, body = macro(path, name, "using ArchTag = ", "using GemmGrouped =")
    # What is cut out throws when this architecture was not compiled in, or (one condition) under FAST_BUILD.
    before, after = body.split("if constexpr (!COMPILE_HOPPER", 1)
    body = before + after.split("using namespace cute;", 1)[1]
    asked, structs = [], []
    for row, out in itertools.product(rows, OUTS):
        kernel = [row["entry"], row["format"], out, "x".join(map(str, row["tile"])), row["swap_ab"], row["epilogue"]]
        if kernel in asked:
            continue
        asked.append(kernel)
        fusion = "FINALIZE" if row["epilogue"] == "finalize" else "NONE"
        values = ["Sm120", *MOE_FORMATS[row["format"]], OUTS[out], "void", "EpilogueOpDefault", fusion, *row["tile"]]
        mx = str(row["format"] != "nvfp4").lower()
        values += [*row["cluster"].split("x"), mx, "false", "false", str(row["swap_ab"]).lower()]
        structs.append(as_struct(f"t{len(structs) % 32}", parameters, values, body))
    scope = "tensorrt_llm::kernels::cutlass_kernels_oss"
    batches = [structs[start : start + 32] for start in range(0, len(structs), 32)]
    answers = [answer for batch in batches for answer in compile_types(package, compiler, scope, batch)]
    return [kernel + answer for kernel, answer in zip(asked, answers, strict=True)]


def group_kernels(package: Path, compiler: Compiler, rows: list[dict[str, Any]]) -> list[list[Any]]:
    found = []
    for format, (entry, name, activation, scale) in GROUP_GEMMS.items():
        header = f"flashinfer/gemm/group_gemm_{name}_groupwise_sm120.cuh"
        macro_name = f"INSTANTIATE_GROUP_GEMM_{name.upper()}_GROUPWISE_SM120"
        parameters, body = macro(package / "data/include" / header, macro_name, "using ElementA = ", "using Gemm =")
        body = re.sub(r"FLASHINFER_CHECK\(.*?\);", "", body, flags=re.DOTALL)
        asked, structs = [], []
        for row, out in itertools.product((row for row in rows if row["entry"] == entry), OUTS):
            asked.append([entry, format, out, "x".join(map(str, row["tile"])), row["swap_ab"], "plain"])
            result = {"bf16": "cutlass::bfloat16_t", "fp16": "cutlass::half_t"}[out]
            values = [
                *row["tile"],
                str(row["swap_ab"]).lower(),
                activation,
                "cutlass::float_e2m1_t",
                scale,
                scale,
                result,
            ]
            structs.append(as_struct(f"t{len(structs)}", parameters, [*values, *["_"] * 5], body))
        answers = compile_types(package, compiler, "flashinfer::group_gemm", structs)
        found += [kernel + answer for kernel, answer in zip(asked, answers, strict=True)]
    return found


def agree(package: Path, kernels: list[list[Any]]) -> list[str]:
    """Where the project's own description of the same kernels comes to other figures. Empty: nowhere."""
    sys.path.insert(0, str(package.parent))  # found there, not imported
    toolchain = oracle.Found.find(package / "data/cutlass/include")
    questions = []
    for row in kernels:
        tactic = Tactic(tuple(map(int, row[3].split("x"))), schedule=row[6], swap_ab=row[4])
        questions.append(Question(KernelSpec("sm120", row[1], row[2], tactic), row[7] or None, row[5]))
    with tempfile.TemporaryDirectory() as empty:
        said = oracle.ask_all(questions, toolchain, cache_dir=Path(empty), jobs=1)
    wrong = []
    for row, question in zip(kernels, questions, strict=True):
        a = said[question]
        figures = [a.stages, a.smem_bytes, a.mainloop_bytes, a.epilogue_bytes, a.threads]
        if [*figures, "x".join(map(str, a.epilogue_tile))] != row[8:]:
            wrong.append(f"{row[0]} {question.id}: FlashInfer's text says {row[8:]}, tileforge's oracle {a}")
    return wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--flashinfer", type=Path, required=True)
    package = parser.parse_args().flashinfer.resolve()
    compiler = find_compiler()
    lists = moe_lists(package, compiler)
    menu = group_gemms(package)
    kernels = moe_kernels(package, compiler, lists) + group_kernels(package, compiler, menu)
    compiled = {tuple(row[:6]) for row in kernels if row[0] == "cutlass_fused_moe"}
    assert compiled == generated(package), compiled ^ generated(package)
    if wrong := agree(package, kernels):
        raise SystemExit("\n".join(wrong))
    cutlass = oracle.Found.find(package / "data/cutlass/include").cutlass
    head = {
        "made_by": "python tests/data/record_flashinfer_tactics.py",
        "date": datetime.date.today().isoformat(),
        "compiler": f"nvcc {compiler.build}",
        "flashinfer": re.findall(r'__version__ = "([^"]+)"', text_of(package / "_build_meta.py"))[0],
        "cutlass": {"version": cutlass.version, "digest": cutlass.digest},
        "columns": COLUMNS,
    }
    parts = {"lists": lists, "group_gemms": menu, "kernels": kernels}
    text = "".join(
        f', "{name}": [\n' + ",\n".join(json.dumps(row) for row in rows) + "\n]" for name, rows in parts.items()
    )
    TRUTH.write_text(json.dumps(head)[:-1] + text + "}\n", encoding="utf-8")
    print(f"{len(lists)} positions, {len(menu)} group GEMMs, {len(kernels)} kernels: {TRUTH}")


if __name__ == "__main__":
    main()
