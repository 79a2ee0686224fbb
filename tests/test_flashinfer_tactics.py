"""FlashInfer's tactics by structure and position: what its own C++ lists, and what the compiler says of each kernel."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tileforge import smem
from tileforge.arch import SM90, SM120, SM121
from tileforge.cli import main_group
from tileforge.errors import InputError
from tileforge.interop.flashinfer_tactics import (
    MOE,
    RELEASES,
    VERSION,
    FlashInferTactic,
    cannot_launch,
    instead,
    launchable,
    resolve,
    tactics,
    verdicts,
)
from tileforge.tactic import Tactic

TRUTH: dict[str, Any] = json.loads((Path(__file__).parent / "data/flashinfer_tactics.json").read_text(encoding="utf-8"))
KERNELS = [dict(zip(TRUTH["columns"], row, strict=True)) for row in TRUTH["kernels"]]
FORMATS = {"nvfp4": (16, 32), "mxfp8_mxfp4": (6, 12)}
COUNTS = FORMATS["nvfp4"]


def entry_of(tactic: FlashInferTactic) -> str:
    return MOE if tactic.position is not None else tactic.gemm


def every_tactic() -> list[FlashInferTactic]:
    """All that tileforge lists for the recorded release: both entry points, formats and outputs."""
    return [
        tactic
        for entry in (MOE, "group_gemm")
        for format in FORMATS
        for out in ("bf16", "fp16")
        for tactic in tactics(format, out, TRUTH["flashinfer"], entry=entry)
    ]


def test_the_recorded_release_is_the_known_one() -> None:
    assert TRUTH["flashinfer"] == VERSION
    assert TRUTH["cutlass"]["version"] == RELEASES[VERSION].cutlass


@pytest.mark.parametrize("out", ["bf16", "fp16"])
@pytest.mark.parametrize("format", FORMATS)
def test_positions_are_those_that_flashinfers_own_code_lists(format: str, out: str) -> None:
    recorded = [row for row in TRUTH["lists"] if row["format"] == format]
    ours = [
        {
            "entry": MOE, "format": format, "gemm": t.gemm, "position": t.position, "tile": list(t.tile),
            "cluster": "x".join(map(str, (*t.tactic.cluster, 1))), "schedule": "auto", "epilogue": t.epilogue,
            "swap_ab": t.swap_ab,
        }
        for t in tactics(format, out)
    ]  # fmt: skip
    assert ours == recorded
    assert tuple(sum(row["gemm"] == gemm for row in recorded) for gemm in ("gemm1", "gemm2")) == FORMATS[format]


@pytest.mark.parametrize("format", FORMATS)
def test_group_gemms_are_those_that_are_compiled(format: str) -> None:
    recorded = {
        (row["entry"], tuple(row["tile"]), row["swap_ab"]) for row in TRUTH["group_gemms"] if row["format"] == format
    }
    listed = tactics(format, entry="group_gemm")
    assert {(t.gemm, t.tile, t.swap_ab) for t in listed} == recorded
    assert len(listed) == len(recorded) == {"nvfp4": 12, "mxfp8_mxfp4": 6}[format]
    assert {t.position for t in listed} == {None}


def test_the_compiler_agrees_with_every_kernel() -> None:
    """Schedule, C operand, stages, every size and the verdict of each kernel that FlashInfer's own text makes."""
    recorded = {(k["entry"], k["format"], k["out"], k["tile"], k["swap_ab"], k["epilogue"]): k for k in KERNELS}
    assert len(recorded) == len(KERNELS) == 64 + 24 + 24 + 12
    seen = set()
    for tactic in every_tactic():
        tile = "x".join(map(str, tactic.tile))
        key = (entry_of(tactic), tactic.format, tactic.out, tile, tactic.swap_ab, tactic.epilogue)
        kernel = recorded[key]
        seen.add(key)
        assert (tactic.schedule, tactic.c or "") == (kernel["schedule"], kernel["c"]), key
        found = smem.breakdown(
            tactic.tactic, arch=SM120, format=tactic.format, out=tactic.out, epilogue=tactic.epilogue, c=tactic.c
        )
        figures = {
            "stages": found.stages, "smem_bytes": found.total, "mainloop_bytes": found.mainloop,
            "epilogue_bytes": found.epilogue, "threads": found.threads,
            "epilogue_tile": "x".join(map(str, found.epilogue_tile)),
        }  # fmt: skip
        assert figures == {name: kernel[name] for name in figures}, key
        verdict = tactic.verdict(SM120)
        assert verdict.kind == ("fits" if kernel["smem_bytes"] <= SM120.smem_per_block else "over"), key
        assert verdict.figures["smem_bytes"] == kernel["smem_bytes"], key
    assert seen == set(recorded)


@pytest.mark.parametrize("arch", [SM120, SM121], ids=lambda arch: str(arch.name))
@pytest.mark.parametrize("out", ["bf16", "fp16"])
def test_l4_the_two_that_cannot_launch(arch: Any, out: str) -> None:
    dead = cannot_launch(arch, "nvfp4", out)
    assert {t.position: t.structure for t, _ in dead} == {
        26: "gemm2 256x128x128_c1x1_coop finalize",
        27: "gemm2 128x256x128_c1x1_coop finalize",
    }
    for _, verdict in dead:
        assert verdict.kind == "over"
        assert (verdict.figures["smem_bytes"], verdict.figures["excess_bytes"]) == (102_400, 1024)
        assert (verdict.figures["stages_that_fit"], verdict.figures["smem_bytes_that_fit"]) == (2, 74_752)
    safe = launchable(arch, "nvfp4", out)
    assert [t.position for t, _ in safe] == [p for p in range(48) if p not in (26, 27)]


def test_the_other_format_and_the_group_gemms_all_launch() -> None:
    assert not cannot_launch(SM120, "mxfp8_mxfp4")
    assert len(launchable(SM120, "mxfp8_mxfp4")) == 18
    for format in FORMATS:
        assert all(verdict for _, verdict in verdicts(SM120, format, entry="group_gemm"))


def test_what_launches_instead_is_of_the_same_gemm_and_tile() -> None:
    judged = verdicts(SM120, "nvfp4")
    assert [other.position for other in instead(judged[26][0], judged)] == [18, 34, 42]
    assert [other.position for other in instead(judged[27][0], judged)] == [19, 35, 43]


def test_without_fused_finalize_positions_move() -> None:
    unfused = tactics("nvfp4", fused_finalize=False)
    assert len(unfused) == 32
    assert {t.epilogue for t in unfused} == {"plain"}
    assert unfused[24].swap_ab
    assert not tactics("nvfp4")[24].swap_ab
    assert all(t.verdict() for t in unfused)


def test_a_cutlass_that_nobody_knows_is_in_neither_list() -> None:
    assert cannot_launch(SM120, "nvfp4", cutlass="4.9.0") == ()
    assert launchable(SM120, "nvfp4", cutlass="4.9.0") == ()
    assert {verdict.kind for _, verdict in verdicts(SM120, "nvfp4", cutlass="4.9.0")} == {"unknown"}


@pytest.mark.parametrize("text", ["128x64x128", "128x64x128_s5", "128x64x128_s5_e64x32", "128x64x128_rm_w4"])
def test_resolve_finds_a_position_by_structure(text: str) -> None:
    # 5 stages and 64x32 are what CUTLASS takes on its own beside a finalize epilogue: the same kernel
    assert resolve(Tactic.parse(text), "gemm2", COUNTS, format="nvfp4", epilogue="finalize") == 31


@pytest.mark.parametrize("format", FORMATS)
def test_resolve_gives_back_every_position_that_launches(format: str) -> None:
    for tactic, _ in launchable(SM120, format):
        found = resolve(tactic.tactic, tactic.gemm, FORMATS[format], format=format, epilogue=tactic.epilogue)
        assert found == tactic.position


def test_resolve_follows_the_counts_of_the_running_library() -> None:
    swapped = Tactic.parse("128x128x256_coop_swap")
    assert resolve(swapped, "gemm2", (16, 32), format="nvfp4") == 32
    assert resolve(swapped, "gemm2", (16, 16), format="nvfp4") == 24


@pytest.mark.parametrize(
    ("text", "gemm", "counts", "epilogue", "message"),
    [
        ("128x128x128", "gemm1", (8, 16), "plain", "lists 8 . 16 nvfp4 tactics"),  # a fast build's counts
        ("128x128x128", "gemm1", (32, 16), "plain", "positions are not known"),
        ("256x128x128", "gemm2", (16, 32), "finalize", "cannot launch: needs 102,400 B"),
        ("256x128x128_s2", "gemm2", (16, 32), "finalize", "automatic stages"),
        ("128x128x128_pp", "gemm1", (16, 32), "plain", "has no nvfp4 gemm1 128x128x128"),
        ("128x64x128_e64x64", "gemm1", (16, 32), "plain", "has no nvfp4 gemm1"),
        ("128x64x128", "gemm1", (16, 32), "finalize", "has no nvfp4 gemm1"),
        ("128x64x128", "gemm2", (16, 16), "finalize", "has no nvfp4 gemm2"),
    ],
)
def test_resolve_refuses(text: str, gemm: str, counts: tuple[int, int], epilogue: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        resolve(Tactic.parse(text), gemm, counts, format="nvfp4", epilogue=epilogue)


def test_bad_names_are_one_line() -> None:
    for call, message in (
        (lambda: tactics("nvfp4", version="0.8.0"), "of FlashInfer 0.8.0 and their positions are not known"),
        (lambda: tactics("mxfp4"), "has no mxfp4 to bf16 kernels"),
        (lambda: tactics("nvfp4", "fp32"), "has no nvfp4 to fp32 kernels"),
        (lambda: tactics("int4"), "unknown format 'int4'"),
        (lambda: tactics("nvfp4", entry="mm"), "unknown entry point 'mm'"),
        (lambda: cannot_launch(SM90, "nvfp4"), "not of sm90"),
    ):
        with pytest.raises(InputError, match=message) as caught:
            call()  # type: ignore[no-untyped-call]
        assert "\n" not in str(caught.value)


def run(*arguments: str) -> str:
    result = CliRunner().invoke(main_group, ["flashinfer", *arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_the_command_names_what_cannot_launch_and_what_is_safe() -> None:
    text = run()
    assert "cannot launch: position 26, gemm2 256x128x128_c1x1_coop finalize" in text
    assert "2 stages would fit in 74,752 B" in text
    assert "18 (gemm2 256x128x128_c1x1_coop plain)" in text
    assert "safe profile_ids of gemm1: 0-15\nsafe profile_ids of gemm2: 16-25, 28-47" in text
    assert "all of them fit" in run("--unfused")
    assert "safe profile_ids" not in run("--entry", "group_gemm", "--format", "mxfp8_mxfp4")


def test_the_command_gives_the_same_figures_as_json() -> None:
    answer = json.loads(run("--json"))
    assert (answer["flashinfer"], answer["cutlass"]) == (VERSION, "4.5.0")
    assert answer["safe_profile_ids"] == {"gemm1": list(range(16)), "gemm2": [*range(16, 26), *range(28, 48)]}
    assert [t["position"] for t in answer["tactics"]] == list(range(48))
    dead = {t["position"]: t for t in answer["tactics"] if not t["launches"]}
    assert set(dead) == {26, 27}
    assert dead[27]["smem_bytes"] == 102_400
    assert dead[27]["instead"] == [19, 35, 43]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--version", "0.8.0"], "positions are not known"),
        (["--gpu", "h200"], "not of sm90"),
        (["--gpu", "no_such"], "unknown GPU"),
    ],
)
def test_the_command_refuses_in_one_line(arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(main_group, ["flashinfer", *arguments])
    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stderr.count("\n") == 1
