"""The edited headers of emulated kernels: every edit finds its one place, or there is no overlay.

What the emulated instructions compute is tests/test_emulated_mma.py's, that none is timed test_measure_backend.py's.
"""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from fake_toolchain import ROOT

from tileforge.errors import ToolchainError
from tileforge.toolchain import Cutlass, cutlass_of
from tileforge.toolchain.lean import EDITS as LEAN_EDITS
from tileforge.toolchain.lean import KEPT
from tileforge.toolchain.overlay import EDITS, VERSIONS, write_overlay

KERNELS = ROOT / "kernels"


# -- the edited headers ----------------------------------------------------------------------------------------


@pytest.fixture(params=VERSIONS)
def cutlass(request: pytest.FixtureRequest) -> Cutlass:
    try:
        return cutlass_of(request.param)
    except ToolchainError as error:
        pytest.skip(str(error))


OPERANDS = "make_uint4(a0, a1, a2, a3), make_uint2(b0, b1), make_float4(c0, c1, c2, c3), sfa0, sfb0"
#: A call where CUTLASS refuses the architecture, and in the other branch the instruction that it stands for.
BRANCH = re.compile(
    r'(#if defined\(CUTE_ARCH_(\w+)\)\s(?:(?!#if)[^#])*?asm volatile\s?\(\s*"([\w.:]+)[^#]*#else\n    )'
    r"\n#if defined\(__CUDA_ARCH__\)\n    const \w+ d = tf::emulated::([^;(]+)\(([^;]+)\);\n    ([^\n]+)\n#endif\n"
)
#: What else is changed: (as written, as it was) by header. ``src_coord`` is one of two, by version.
CHANGES: dict[str, list[tuple[str, str]]] = {
    "cute/arch/mma_sm120.hpp": [('#pragma once\n#include "emulated/device.cuh"\n', "#pragma once\n")],
    "cute/arch/copy_sm100.hpp": [('#pragma once\n#include "emulated/device.cuh"\n', "#pragma once\n")],
    "cute/atom/copy_traits_sm90_tma.hpp": [
        ('#pragma once\n#include "emulated/tma.cuh"\n', "#pragma once\n"),
        ("= tf::emulated::coordinate<Tensor<TD,DLayout>, Args...>(SRC_COORD);", "= SRC_COORD;"),
        ("= tf::emulated::data_type<TmaInternalType>();", "= TMA::to_CUtensorMapDataType<TmaInternalType>();"),
        ("tma_format,\n        tf::emulated::rank<TmaInternalType>(tma_dim),", "tma_format,\n        tma_dim,"),
        (
            "    tf::emulated::in_bytes<TmaInternalType>(gmem_prob_shape, gmem_prob_stride);\n"
            "    tf::emulated::box_in_bytes<TmaInternalType>(smem_box_shape);\n",
            "",
        ),
    ],
    "cutlass/gemm/collective/sm120_blockscaled_mma_array_tma.hpp": [
        (f"    tf::emulated::in_bytes<TmaInternalElement{x}>(prob_shape_{x}, prob_stride_{x});\n", "") for x in "AB"
    ]
    + [(f"tf::emulated::arriving_bits<TmaInternalElement{x}, Element{x}>", f"sizeof_bits<Element{x}>::value")
       for x in "AB"],
    "cutlass/pipeline/sm100_pipeline.hpp": [
        ("pipeline/sm90_pipeline.hpp\"\n", "pipeline/sm90_pipeline.hpp\"\n#include \"sm90_pipeline.hpp\"\n")
    ],
    "cutlass/pipeline/sm90_pipeline.hpp": [("#if defined(__CUDA_ARCH__)\n", "#if (__CUDA_ARCH__ >= 1000)\n")],
}  # fmt: skip
SRC_COORD = {"4.2.0": "src.data().coord_", "4.5.0": "src(Int<0>{})"}


def _undone(found: re.Match[str]) -> str:
    """The branch as it was. Whether the call is the right one is judged by the instruction that it stands for."""
    before, macro, instruction, *call = found.groups()
    if "ldmatrix" in instruction:
        assert instruction.endswith(".m8n16.x4.shared.b8x16.b4x16_p64") and macro == "LDSM_SM100A_ENABLED"
        into = "dst0 = d.x, dst1 = d.y, dst2 = d.z, dst3 = d.w;"
        assert call == ["load_nibbles", "cast_smem_ptr_to_uint(&smem_src)", into]
        return f'{before}CUTE_INVALID_CONTROL_PATH("Trying to use ldmatrix without CUTE_ARCH_{macro}.");'
    k, a, b, scale = re.findall(r"m16n8k(\d+)\.row\.col\.f32\.(\w+)\.(\w+)\.f32\.(\w+)$", instruction)[0]
    function = f"mma_k32<tf::emulated::Element::{a}, tf::emulated::Element::{b}>"
    if k == "64":
        function = f"mma_k64<VS, tf::emulated::Scale::{scale}>"
        assert a == b == "e2m1" and {"ue4m3": "scale_vec::4X", "ue8m0": "scale_vec::2X"}[scale] in instruction
    assert call == [function, OPERANDS, "d0 = d.x, d1 = d.y, d2 = d.z, d3 = d.w;"]
    struct = f"SM120::BLOCKSCALED::SM120_16x8x{k}_TN_VS"
    return f'{before}CUTE_INVALID_CONTROL_PATH("Attempting to use {struct} without CUTE_ARCH_{macro}");'


def test_nothing_else_is_changed(cutlass: Cutlass, tmp_path: Path) -> None:
    """All changes undone, each of them once, a header is CUTLASS's again."""
    assert write_overlay(cutlass, tmp_path) == sorted(CHANGES) == sorted(EDITS)
    files = [path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()]
    assert sorted(files) == sorted(CHANGES)
    for name, changes in CHANGES.items():
        text, calls = BRANCH.subn(_undone, (tmp_path / name).read_text())
        assert calls == {"cute/arch/mma_sm120.hpp": 4, "cute/arch/copy_sm100.hpp": 1}.get(name, 0)
        for pair in changes:
            written, was = (part.replace("SRC_COORD", SRC_COORD[cutlass.version]) for part in pair)
            assert text.count(written) == 1, (name, written)
            text = text.replace(written, was)
        assert text == (cutlass.include / name).read_text(), name


def test_no_header_reaches_an_original_of_an_edited_one(cutlass: Cutlass, tmp_path: Path) -> None:
    """An include is looked for beside the includer first, where the original lies, or beside the copy nothing."""
    write_overlay(cutlass, tmp_path)
    quoted = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)
    names = {Path(name).name for name in EDITS}
    for path in cutlass.include.rglob("*.h*"):
        name = path.relative_to(cutlass.include)
        if str(name) not in EDITS:
            beside = [(name.parent / i).as_posix() for i in quoted.findall(path.read_text()) if i in names]
            assert not set(beside) & set(EDITS), f"{name} includes {beside}"
    for edited in EDITS:
        for wanted in quoted.findall((tmp_path / edited).read_text()):
            assert any((at / wanted).is_file() for at in (tmp_path, cutlass.include, KERNELS)), f"{edited}: {wanted}"


def test_no_header_is_edited_twice() -> None:
    """Of two copies of one header the compiler would see the first only."""
    assert not set(EDITS) & {name for names in (LEAN_EDITS, *KEPT.values()) for name in names}


def _copied(cutlass: Cutlass, target: Path) -> Cutlass:
    for name in EDITS:
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(cutlass.include / name, target / name)
    return replace(cutlass, include=target)


def _refusal(cutlass: Cutlass, target: Path) -> str:
    with pytest.raises(ToolchainError) as error:
        write_overlay(cutlass, target)
    assert not target.exists() and "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize("name", EDITS)
def test_a_place_or_header_that_is_missing_or_a_place_twice_is_refused(
    name: str, cutlass: Cutlass, tmp_path: Path
) -> None:
    include = _copied(cutlass, tmp_path / "include")
    assert write_overlay(include, tmp_path / "whole") == sorted(EDITS)
    whole = (include.include / name).read_text()
    for number, edit in enumerate(EDITS[name], start=1):
        found = re.search(edit.old, whole)
        assert found is not None
        # Also what follows: some edits look ahead, and match nothing themselves.
        end = found.end() + 120
        for times, text in ((0, whole[: found.start()] + whole[end:]), (2, f"{whole}\n{whole[found.start() : end]}\n")):
            (include.include / name).write_text(text)
            line = _refusal(include, tmp_path / "overlay")
            assert f"edit {number} of {Path(name).name} finds its place {times} times" in line
    (include.include / name).unlink()
    assert f"{name} cannot be read" in _refusal(include, tmp_path / "overlay")


@pytest.mark.parametrize("version", ["4.1.0", "4.3.0", "4.5.1", "5.0.0"])
def test_a_version_that_nobody_read_is_refused(version: str, tmp_path: Path) -> None:
    line = _refusal(Cutlass(tmp_path, version, "0" * 12, "test"), tmp_path / "overlay")
    assert f"CUTLASS {version} has no overlay" in line and "4.2.0 and 4.5.0" in line
