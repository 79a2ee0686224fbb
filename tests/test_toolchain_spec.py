"""What names a kernel, and how it is said to nvcc."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from fake_toolchain import fake

from tileforge.errors import InputError, ToolchainError
from tileforge.formats import FORMATS
from tileforge.tactic import Tactic
from tileforge.toolchain.spec import KernelSpec, compile_flags, kernel_command, sources_digest


@pytest.mark.parametrize("format_", FORMATS)
@pytest.mark.parametrize("text", ["128x64x256_c1x1_coop", "64x16x128_c2x1_pp_s3_e64x32_swap"])
def test_id_parses_back(format_: str, text: str) -> None:
    spec = KernelSpec("sm120", format_, "fp16", Tactic.parse(text))
    assert KernelSpec.parse(spec.id) == spec
    assert KernelSpec.from_dict(spec.as_dict()) == spec


@pytest.mark.parametrize("text", ["", "sm120_nvfp4_bf16", "sm120_int3_bf16_128x128x128", "nvfp4_bf16_128x128x128"])
def test_other_ids_are_refused(text: str) -> None:
    with pytest.raises(InputError):
        KernelSpec.parse(text)


def test_run_time_fields_do_not_make_another_kernel() -> None:
    one = KernelSpec("sm90", "bf16", "bf16", Tactic.parse("128x128x64_c1x1_coop_rm_w4"))
    two = KernelSpec("sm90", "bf16", "bf16", Tactic.parse("128x128x64_c1x1_coop_rn"))
    assert one == two and hash(one) == hash(two) and one.defines() == two.defines()


def test_macros_say_every_compile_time_field() -> None:
    tactic = Tactic.parse("128x64x256_c2x1_pp_s3_e64x32_swap")
    macros = KernelSpec("sm121", "mxfp8_mxfp4", "fp32", tactic).macros()
    assert macros == {
        "TF_SM": "121",
        "TF_FORMAT": "TF_FORMAT_MXFP8_MXFP4",
        "TF_OUT": "TF_OUT_FP32",
        "TF_TILE_M": "128",
        "TF_TILE_N": "64",
        "TF_TILE_K": "256",
        "TF_CLUSTER_M": "2",
        "TF_CLUSTER_N": "1",
        "TF_SCHEDULE": "TF_SCHEDULE_PINGPONG",
        "TF_STAGES": "3",
        "TF_EPI_M": "64",
        "TF_EPI_N": "32",
        "TF_SWAP_AB": "1",
    }
    automatic = KernelSpec("sm90", "fp8", "bf16", Tactic(tile=(128, 128, 64))).macros()
    assert (automatic["TF_STAGES"], automatic["TF_EPI_M"], automatic["TF_EPI_N"]) == ("0", "0", "0")


def test_macros_are_those_of_the_entry_file(root: Path) -> None:
    """Every macro that entry.cu tests with #ifndef or !defined is given, and every value's name is in abi.h."""
    entry, abi = (root / "kernels" / "entry.cu").read_text(), (root / "kernels" / "abi.h").read_text()
    asked = set(re.findall(r"#ifndef (TF_\w+)|!defined\((TF_\w+)\)", entry))
    names = {name for pair in asked for name in pair if name}
    spec = KernelSpec("sm120", "nvfp4", "bf16", Tactic(tile=(128, 128, 128)))
    assert names == set(spec.macros())
    for format_ in FORMATS:
        for out in ("bf16", "fp16", "fp32"):
            for value in KernelSpec("sm120", format_, out, spec.tactic).macros().values():
                assert value.isdigit() or re.search(rf"#define {value} \d", abi), value


def test_flags_in_the_key_hold_no_paths(tmp_path: Path) -> None:
    spec = KernelSpec("sm120", "nvfp4", "bf16", Tactic(tile=(128, 128, 128)))
    flags = compile_flags(spec)
    assert "-gencode=arch=compute_120a,code=sm_120a" in flags and "-cudart=static" in flags
    assert not [flag for flag in flags if "/" in flag] and "-lcuda" not in flags
    command = kernel_command(spec, tmp_path / "include", tmp_path, tmp_path / "k.so")
    assert "-Xptxas=-v" in command and "-Xptxas=-v" not in flags
    assert command[: len(flags)] == flags and command[-2:] == ["-o", str(tmp_path / "k.so")]


def test_sources_digest_is_of_what_the_kernel_is_made_of(tmp_path: Path) -> None:
    kernels = fake(tmp_path).kernels
    before = {arch: sources_digest(arch, kernels) for arch in ("sm90", "sm120", "sm121")}
    assert before["sm120"] == before["sm121"] != before["sm90"]

    (kernels / "oracle.cuh").write_text("// asked of the compiler, in no kernel\n")
    assert sources_digest("sm120", kernels) == before["sm120"]

    (kernels / "sm120.cuh").write_text('#pragma once\n#include "deeper.cuh"\n')
    (kernels / "deeper.cuh").write_text("// 1\n")
    after = sources_digest("sm120", kernels)
    assert after != before["sm120"] and sources_digest("sm90", kernels) == before["sm90"]
    (kernels / "deeper.cuh").write_text("// 2\n")
    assert sources_digest("sm121", kernels) != after

    (kernels / "exports.map").write_text("{ global: tf_*; local: *; };\n")
    assert sources_digest("sm90", kernels) != before["sm90"]


def test_no_sources_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ToolchainError, match="reinstall tileforge"):
        sources_digest("sm90", tmp_path)
