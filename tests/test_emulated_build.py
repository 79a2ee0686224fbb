"""Emulated kernels as kernels: names, keys, builds, packs. Nothing takes one for SM120's own."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_toolchain import ENTRY, ROOT, Fake, fake, headers
from fake_tune import H200Bench

from tileforge import smem
from tileforge.errors import BuildError, InputError, ToolchainError
from tileforge.problem import GroupedGemm
from tileforge.search import KernelSource
from tileforge.tactic import DEFAULT, Tactic
from tileforge.toolchain import Builder, Kernel, KernelSpec, overlay, pack, unpack
from tileforge.toolchain.cache import KernelCache, key_of
from tileforge.toolchain.lean import Edit
from tileforge.toolchain.library import FORMATS as FORMAT_CODES
from tileforge.toolchain.library import Library
from tileforge.toolchain.overlay import EDITS, overlay_digest
from tileforge.toolchain.spec import compile_flags, kernel_command, sources_digest
from tileforge.tuning import tune

KERNELS = ROOT / "kernels"
PRODUCT = KernelSpec("sm120", "nvfp4", "bf16", Tactic.parse("128x64x128_c1x1_pp_swap"))
EMULATED = replace(PRODUCT, emulated=True)


# -- names, flags and keys -------------------------------------------------------------------------------------


@pytest.mark.parametrize("arch", ["sm120", "sm121"])
@pytest.mark.parametrize("format_", ["nvfp4", "mxfp4", "mxfp8_mxfp4"])
@pytest.mark.parametrize("text", ["128x64x256_c1x1_coop", "256x32x128_c1x1_pp_s3_e64x32_swap"])
def test_an_emulated_kernel_has_a_name_of_its_own(arch: str, format_: str, text: str) -> None:
    product = KernelSpec(arch, format_, "fp32", Tactic.parse(text))
    emulated = replace(product, emulated=True)
    assert emulated != product and emulated.id == f"{product.id}_emulated"
    assert KernelSpec.parse(emulated.id) == emulated and KernelSpec.parse(product.id) == product
    assert KernelSpec.from_dict(emulated.as_dict()) == emulated and KernelSpec.from_dict(product.as_dict()) == product
    assert emulated.as_dict() == {**product.as_dict(), "emulated": True}
    assert "emulated" not in product.as_dict()  # it would be another key for every product kernel
    assert (emulated.sm, product.sm) == (90, int(arch[2:])) and emulated.macros() == product.macros()


@pytest.mark.parametrize("format_", ["bf16", "fp8"])
def test_a_kernel_of_sm90_is_not_emulated(format_: str) -> None:
    fields = {**KernelSpec("sm90", format_, "bf16", DEFAULT).as_dict(), "emulated": True}
    text = f"sm90_{format_}_bf16_{DEFAULT.kernel_id}_emulated"
    for make in (lambda: KernelSpec.from_dict(fields), lambda: KernelSpec.parse(text)):
        with pytest.raises(InputError, match="sm90 kernels are not emulated"):
            make()


def test_an_emulated_kernel_is_compiled_for_sm90a_only(tmp_path: Path) -> None:
    flags, product = compile_flags(EMULATED), compile_flags(PRODUCT)
    assert [flag for flag in flags if "arch" in flag] == ["-gencode=arch=compute_90a,code=sm_90a"]
    assert "-DTF_SM=120" in flags and "-DTF_EMULATED" in flags and "-DCUTE_ARCH_TMA_SM120_ENABLED" in flags
    assert set(product) - set(flags) == {"-gencode=arch=compute_120a,code=sm_120a"}
    assert not [flag for flag in product if "EMULATED" in flag or "TMA_SM120" in flag]
    before = [tmp_path / "overlay", tmp_path / "lean"]
    command = kernel_command(EMULATED, tmp_path / "include", KERNELS, tmp_path / "k.so", before)
    found = [part for part in command if part.startswith("-I")]
    assert found == [f"-I{path}" for path in (*before, tmp_path / "include", KERNELS)]
    assert str(KERNELS / "emulated.cu") in command and str(KERNELS / "entry.cu") not in command


def test_keys_of_product_kernels_do_not_depend_on_emulation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tools = fake(tmp_path)
    kernels = tmp_path / "copy"
    shutil.copytree(KERNELS, kernels)

    def seen() -> tuple[dict[str, Any], dict[str, Any]]:
        builder = tools.builder(kernels_dir=kernels)
        assert sources_digest("sm120", kernels) == builder.inputs(PRODUCT)["sources"]
        assert sources_digest("sm120", kernels, emulated=True) == builder.inputs(EMULATED)["sources"]
        return builder.inputs(PRODUCT), builder.inputs(EMULATED)

    product, emulated = seen()
    assert {name for name in emulated if emulated.get(name) != product.get(name)} == {
        "flags", "overlay", "sources", "spec"
    }  # fmt: skip
    assert "overlay" not in product and emulated["overlay"] == overlay_digest()
    keys = {key_of(emulated)}
    for name in ("emulated.cu", "emulated/device.cuh", "emulated/mma.cuh", "emulated/tma.cuh"):
        with (kernels / name).open("a") as file:
            file.write("// changed\n")
        keys.add(key_of(seen()[1]))
        assert seen()[0] == product, name
    monkeypatch.setattr(overlay, "EDITS", {**EDITS, "cute/another.hpp": (Edit("a", "b"),)})
    keys.add(key_of(seen()[1]))
    assert seen()[0] == product and len(keys) == 6
    # Of SM120's header, which computes it, an emulated kernel is made as well; of the other entry file not.
    for name, both in (("sm120.cuh", True), ("entry.cu", False)):
        before = seen()
        with (kernels / name).open("a") as file:
            file.write("// changed\n")
        after = seen()
        assert after[0] != before[0] and (after[1] != before[1]) is both, name


# -- the cache -------------------------------------------------------------------------------------------------

ASKING = """
#include "emulated/device.cuh"
#include "cute/tensor.hpp"
#if !defined(TF_EMULATED) || !defined(TF_OVERLAID)
#error "not as an emulated kernel is to be compiled"
#endif
"""


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fake:
    """A toolchain of scripts that compiles emulated kernels too, on headers with one edit."""
    made = fake(tmp_path)
    (made.kernels / "emulated").mkdir()
    (made.kernels / "emulated" / "device.cuh").write_text("#pragma once\n")
    (made.kernels / "emulated.cu").write_text(ASKING + ENTRY.replace("TF_SM, TF_FORMAT", "90, TF_FORMAT"))
    monkeypatch.setattr(overlay, "EDITS", {"cute/tensor.hpp": (Edit("// \n", "#define TF_OVERLAID\n"),)})
    return made


def _built(builder: Builder, wanted: KernelSpec) -> Kernel:
    (outcome,) = builder.build([wanted])
    assert outcome.kernel is not None and not outcome.cached, outcome.message
    return outcome.kernel


def _bare(tools: Fake, cache: Path | None = None) -> Builder:
    """A builder where there is neither compiler nor CUTLASS: kernels are found by what they say of themselves."""
    builder = tools.builder(cache_dir=cache or tools.root / "cache")
    builder.cutlass, builder.compiler, builder.missing = None, None, ToolchainError("not here")
    return builder


@pytest.mark.parametrize("first", [PRODUCT, EMULATED], ids=["product", "emulated"])
def test_one_never_answers_for_the_other(tools: Fake, first: KernelSpec) -> None:
    second = replace(first, emulated=not first.emulated)
    one = _built(tools.builder(), first)
    for builder in (tools.builder(), _bare(tools)):
        assert builder.lookup(first) == one and builder.lookup(second) is None
    other = _built(tools.builder(), second)
    for builder in (tools.builder(), _bare(tools)):
        assert builder.lookup(first) == one and builder.lookup(second) == other
    assert one.key != other.key and one.path != other.path and tools.compiles == 2
    assert (one.info["sm"], other.info["sm"]) == (first.sm, second.sm)


def test_the_entry_file_of_an_emulated_kernel_says_sm90_or_there_is_no_kernel(tools: Fake) -> None:
    """What runs on SM90 and says SM120 would pass for a product kernel wherever a kernel is asked what it is."""
    (tools.kernels / "emulated.cu").write_text(ASKING + ENTRY)
    (outcome,) = tools.builder().build([EMULATED])
    assert outcome.kernel is None and "its sm is 120, asked was 90" in outcome.message


def test_headers_that_are_not_to_be_edited_end_a_build_in_one_line(tools: Fake) -> None:
    """Those of another version, or with another text; a product kernel is built on them all the same."""
    for change in ({"version": "4.3.0"}, {"include": headers(tools.root / "other", content="another CuTe")}):
        object.__setattr__(tools, "cutlass", replace(tools.cutlass, **change))
        with pytest.raises(ToolchainError) as error:
            tools.builder(cache_dir=tools.root / "none").build([EMULATED])
        assert "overlay" in str(error.value) and "\n" not in str(error.value)
        assert list((tools.root / "none").iterdir()) == []
        _built(tools.builder(cache_dir=tools.root / "other" / change.popitem()[0]), PRODUCT)


def test_a_pack_keeps_them_apart(tools: Fake, tmp_path: Path) -> None:
    emulated, product = _built(tools.builder(), EMULATED), _built(tools.builder(), PRODUCT)
    assert pack([emulated], tmp_path / "one.tar.gz") == 1 and pack([emulated, product], tmp_path / "two.tar.gz") == 2
    one, two = KernelCache(tmp_path / "one"), KernelCache(tmp_path / "two")
    (back,) = unpack(tmp_path / "one.tar.gz", one)
    assert back.spec == EMULATED and back.key == emulated.key and Library(back.path).query()["sm"] == 90
    assert {kernel.spec: kernel.key for kernel in unpack(tmp_path / "two.tar.gz", two)} == {
        EMULATED: emulated.key, PRODUCT: product.key
    }  # fmt: skip
    for builder in (tools.builder(cache_dir=one.root), _bare(tools, one.root)):
        assert builder.lookup(PRODUCT) is None and builder.lookup(EMULATED) == back
    for builder in (tools.builder(cache_dir=two.root), _bare(tools, two.root)):
        assert [builder.lookup(each).key for each in (PRODUCT, EMULATED)] == [product.key, emulated.key]


# -- those who look kernels up ---------------------------------------------------------------------------------

PROBLEM = GroupedGemm(512, 4096, 6144, 32, format="nvfp4")


def test_a_search_compiles_its_own_kernel(tools: Fake) -> None:
    _built(tools.builder(), KernelSpec("sm120", "nvfp4", "bf16", DEFAULT, True))
    source = KernelSource(tools.builder(), "sm120")
    source.build(source.missing(PROBLEM, [DEFAULT]))
    kernel = source.kernel(PROBLEM, DEFAULT)
    assert not kernel.spec.emulated and kernel.info["sm"] == 120 and tools.compiles == 2


class RtxBench(H200Bench):
    def facts(self) -> dict[str, Any]:
        return {**super().facts(), "name": "NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "sms": 188}


def test_tuning_where_nothing_compiles_does_not_count_emulated_kernels(tools: Fake, tmp_path: Path) -> None:
    other = Tactic.parse("128x64x128_c1x1_pp_swap")
    for tactic in (DEFAULT, other):
        _built(tools.builder(), KernelSpec("sm120", "nvfp4", "bf16", tactic, True))
    options: dict[str, Any] = {"builder": _bare(tools), "budget": 4, "save": False, "journals": tmp_path}
    with pytest.raises(BuildError, match=r"(\d+) of \1 kernels are missing"):
        tune(PROBLEM, bench=RtxBench(), **options)
    product = _built(tools.builder(), KernelSpec("sm120", "nvfp4", "bf16", other))
    bench = RtxBench()
    (result,) = tune(PROBLEM, bench=bench, **options)
    assert any("1 of " in note and "candidates have a kernel" in note for note in result.notes), result.notes
    assert result.tactic is not None and result.tactic.compile_time() == product.spec.tactic
    assert {Tactic.parse(text).compile_time() for _, text, _ in bench.calls} == {other}


def test_the_cutlass_of_emulated_kernels_is_not_whose_rules_hold(tools: Fake) -> None:
    """Without a toolchain the kernels that were brought here say which CUTLASS's rules hold: those that can be used."""
    new = tools.cutlass
    object.__setattr__(tools, "cutlass", replace(new, version="4.2.0", digest="0" * 12))
    _built(tools.builder(), PRODUCT)
    assert _bare(tools).cutlass_version == "4.2.0"
    object.__setattr__(tools, "cutlass", new)
    _built(tools.builder(), EMULATED)
    assert _bare(tools).cutlass_version == "4.2.0"


# -- the compiler ----------------------------------------------------------------------------------------------


@pytest.mark.compile
def test_one_real_emulated_kernel() -> None:
    """Compiled in full by whatever toolchain is here; kept for the next run. 4-bit weights are unpacked: all edits.

    What it says of itself must be what the shared-memory arithmetic says of SM120's kernel.
    """
    cache = Path(os.environ.get("TILEFORGE_TEST_CACHE") or ROOT / ".cache" / "tests")
    wanted = KernelSpec.parse("sm120_mxfp8_mxfp4_bf16_128x128x128_c1x1_pp_swap_emulated")
    builder = Builder(cache_dir=cache / "kernels")
    (outcome,) = builder.build([wanted])
    assert outcome.kernel is not None and builder.cutlass is not None, outcome.message
    info = outcome.kernel.info
    assert info == Library(outcome.kernel.path).query()
    assert info["sm"] == 90 and info["format"] == FORMAT_CODES[wanted.format] and info["swap_ab"] == 1
    assert (info["tile_m"], info["tile_n"], info["tile_k"]) == wanted.tactic.tile
    said = smem.breakdown(wanted.tactic, arch="sm120", format=wanted.format, cutlass=builder.cutlass.version)
    assert (said.stages, said.total) == (info["stages"], info["smem_bytes"])
    assert (said.mainloop, said.epilogue) == (info["mainloop_bytes"], info["epilogue_bytes"])
    if dump := shutil.which("cuobjdump"):
        listed = subprocess.run([dump, "-lelf", "-lptx", outcome.kernel.path], capture_output=True, text=True).stdout
        assert set(re.findall(r"sm_\w+", listed)) == {"sm_90a"}, listed
