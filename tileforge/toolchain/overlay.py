"""SM120 kernels that run on SM90: edited copies of CUTLASS's headers, in which two kinds of instruction are emulated.

SM90 has neither block-scaled MMA nor TMA of 4-bit elements. Where CUTLASS issues one of them, the copies call
kernels/emulated/ instead; all else is the kernel that SM120 runs: tile scheduler, pipelines and barriers, warp
specialisation, layouts in shared memory, per-group descriptors, scale layouts, epilogue. docs/emulation.md says what
a right result then proves and what it does not.

Every edit must find its place exactly once in the CUTLASS at hand, or there is no overlay: a kernel with half of them
would be wrong in a way that looks like the kernel's own fault. Read in CUTLASS 4.2.0 and 4.5.0.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from tileforge.errors import ToolchainError
from tileforge.toolchain.cutlass import Cutlass
from tileforge.toolchain.lean import Edit

#: Versions whose edits were read, compiled and run.
VERSIONS = ("4.2.0", "4.5.0")

_DEVICE = '#include "emulated/device.cuh"\n'
_TMA = '#include "emulated/tma.cuh"\n'


def _include(what: str) -> Edit:
    return Edit(r"(?m)^#pragma once\n", rf"\g<0>{what}")


def _invalid_path(struct: str, macro: str, call: str) -> Edit:
    """In ``struct``, what CUTLASS does where ``macro`` says that the instruction does not exist."""
    return Edit(
        rf"(?s)({struct}(?:(?!\nstruct ).)*?)CUTE_INVALID_CONTROL_PATH\(\"[^\"]*{macro}\.?\"\);",
        rf"\1\n#if defined(__CUDA_ARCH__)\n    {call}\n#endif\n",
    )


def _mma(a: str, b: str, scale: str, k: int, macro: str, call: str) -> Edit:
    return _invalid_path(
        re.escape(f"struct SM120_16x8x{k}_TN_VS<float_{a}_t, float_{b}_t, float, float_{scale}_t, VS>\n"),
        macro,
        f"const float4 d = tf::emulated::{call}(make_uint4(a0, a1, a2, a3), make_uint2(b0, b1), "
        "make_float4(c0, c1, c2, c3), sfa0, sfb0);\n    d0 = d.x, d1 = d.y, d2 = d.z, d3 = d.w;",
    )


def _group_bytes(operand: str) -> Edit:
    """The descriptor of one group: after its strides were made bytes, its dimensions are as well."""
    internal = f"TmaInternalElement{operand}"
    return Edit(
        rf"(for \(uint64_t& stride : prob_stride_{operand}\) \{{\s*"
        rf"stride = \(stride \* sizeof_bits_v<{internal}>\) / 8;\s*\}}\n)",
        rf"\1    tf::emulated::in_bytes<{internal}>(prob_shape_{operand}, prob_stride_{operand});\n",
    )


def _arriving(operand: str) -> Edit:
    """The bytes that a stage's barrier waits for."""
    return Edit(
        rf"(size\(take<0,2>\(SmemLayout{operand}\{{\}}\)\) \* )sizeof_bits<Element{operand}>::value",
        rf"\1tf::emulated::arriving_bits<TmaInternalElement{operand}, Element{operand}>",
    )


EDITS: dict[str, tuple[Edit, ...]] = {
    "cute/arch/mma_sm120.hpp": (
        _include(_DEVICE),
        _mma("e2m1", "e2m1", "ue4m3", 64, "MXF4NVF4_4X_UE4M3_MMA_ENABLED", "mma_k64<VS, tf::emulated::Scale::ue4m3>"),
        _mma("e2m1", "e2m1", "ue8m0", 64, "MXF4NVF4_2X_UE8M0_MMA_ENABLED", "mma_k64<VS, tf::emulated::Scale::ue8m0>"),
        _mma(
            "e4m3",
            "e2m1",
            "ue8m0",
            32,
            "MXF8F6F4_MMA_ENABLED",
            "mma_k32<tf::emulated::Element::e4m3, tf::emulated::Element::e2m1>",
        ),
        _mma(
            "e2m1",
            "e4m3",
            "ue8m0",
            32,
            "MXF8F6F4_MMA_ENABLED",
            "mma_k32<tf::emulated::Element::e2m1, tf::emulated::Element::e4m3>",
        ),
    ),
    "cute/arch/copy_sm100.hpp": (
        _include(_DEVICE),
        _invalid_path(
            r"struct SM100_SU4_DU8x16_x4_LDSM_N\n",
            "LDSM_SM100A_ENABLED",
            "const uint4 d = tf::emulated::load_nibbles(cast_smem_ptr_to_uint(&smem_src));\n"
            "    dst0 = d.x, dst1 = d.y, dst2 = d.z, dst3 = d.w;",
        ),
    ),
    "cute/atom/copy_traits_sm90_tma.hpp": (
        _include(_TMA),
        Edit(
            r"(?s)(struct TMA_LOAD_Unpack\n.*?auto src_coord = )(src\(Int<0>\{\}\)|src\.data\(\)\.coord_);",
            r"\1tf::emulated::coordinate<Tensor<TD,DLayout>, Args...>(\2);",
        ),
        Edit(
            r"TMA::to_CUtensorMapDataType<TmaInternalType>\(\)(?=;\n\s*CUtensorMapInterleave)",
            r"tf::emulated::data_type<TmaInternalType>()",
        ),
        Edit(
            r"(?=CUresult result = CUTLASS_CUDA_DRIVER_WRAPPER_CALL\(cuTensorMapEncodeTiled\)\()",
            "tf::emulated::in_bytes<TmaInternalType>(gmem_prob_shape, gmem_prob_stride);\n"
            "    tf::emulated::box_in_bytes<TmaInternalType>(smem_box_shape);\n    ",
        ),
        Edit(r"(tma_format,\s+)tma_dim(,\s+gmem_address)", r"\1tf::emulated::rank<TmaInternalType>(tma_dim)\2"),
    ),
    "cutlass/gemm/collective/sm120_blockscaled_mma_array_tma.hpp": (
        _group_bytes("A"),
        _group_bytes("B"),
        _arriving("A"),
        _arriving("B"),
    ),
    # Named relative to its own directory, it would find the header that is not edited.
    "cutlass/pipeline/sm100_pipeline.hpp": (Edit(r'(?m)^#include "sm90_pipeline.hpp"\n', ""),),
    "cutlass/pipeline/sm90_pipeline.hpp": (Edit(r"#if \(__CUDA_ARCH__ >= 1000\)\n", "#if defined(__CUDA_ARCH__)\n"),),
}


def write_overlay(cutlass: Cutlass, target: Path) -> list[str]:
    """Writes the edited headers of ``cutlass`` below ``target``; returns their names.

    Raises ToolchainError, one line, for a CUTLASS of another version, or in which an edit does not find its place
    exactly once; nothing is written then.
    """
    if cutlass.version not in VERSIONS:
        raise ToolchainError(
            f"CUTLASS {cutlass.version} has no overlay: emulation knows {' and '.join(VERSIONS)} "
            "(docs/emulation.md says how to add a version)"
        )
    edited = {name: _edited(cutlass.include / name, edits) for name, edits in EDITS.items()}
    for name, text in edited.items():
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        (target / name).write_text(text, encoding="utf-8")
    return sorted(edited)


def _edited(path: Path, edits: tuple[Edit, ...]) -> str:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise ToolchainError(f"{path} cannot be read, so there is no overlay for it: fetch CUTLASS again") from None
    for number, edit in enumerate(edits, start=1):
        text, count = re.subn(edit.old, edit.new, text)
        if count != 1:
            raise ToolchainError(
                f"edit {number} of {path.name} finds its place {count} times in {path}, not once: these headers are "
                "not the ones that the overlay was read in (docs/emulation.md)"
            )
    return text


def overlay_digest() -> str:
    """Twelve hex digits over the edits: a part of an emulated kernel's cache key, beside its sources and flags."""
    return hashlib.sha256(repr(EDITS).encode()).hexdigest()[:12]
