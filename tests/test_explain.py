"""explain: single, in bulk, nearest tactics; the waterfall."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tileforge import legality, space
from tileforge.arch import get_arch
from tileforge.cli import main_group
from tileforge.problem import GroupedGemm
from tileforge.tactic import Tactic

LINE = {
    "arch": "sm120", "format": "nvfp4", "tile": [128, 64, 256], "schedule": "cooperative", "stages": None,
    "epilogue_tile": None, "c": None, "out": "bf16", "swap_ab": False, "cutlass": "4.5.0",
}  # fmt: skip
KEYS = {"verdict", "reason", "message", "stages", "smem_bytes", "limit_bytes", "terms"}


def batch(*lines: Any) -> tuple[list[dict[str, Any]], Result]:
    text = "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines) + "\n"
    result = CliRunner().invoke(main_group, ["explain", "--batch", "-", "--json"], input=text)
    return [json.loads(line) for line in result.stdout.splitlines()], result


def test_a_line_in_a_line_out() -> None:
    answers, result = batch(LINE, {**LINE, "tile": [128, 128, 512]}, {**LINE, "tile": [128, 256, 128], "stages": 4})
    assert result.exit_code == 0, "refusals are answers"
    assert all(set(answer) >= KEYS for answer in answers)
    fits, illegal, over = answers
    assert (fits["verdict"], fits["reason"], fits["stages"], fits["smem_bytes"]) == ("fits", "", 3, 97_280)
    assert sum(fits["terms"].values()) == fits["smem_bytes"] and fits["limit_bytes"] == 101_376
    assert (illegal["verdict"], illegal["reason"], illegal["smem_bytes"], illegal["terms"]) == (
        "illegal",
        "stages",
        None,
        None,
    )
    assert over["verdict"] == "over" and over["excess_bytes"] == over["smem_bytes"] - 101_376
    assert over["stages_that_fit"] == 3 and sum(over["terms"].values()) == over["smem_bytes"]


def test_l4_in_bulk() -> None:
    [answer], _ = batch({**LINE, "tile": [128, 256, 128], "epilogue": "finalize"})
    assert (answer["verdict"], answer["smem_bytes"], answer["excess_bytes"]) == ("over", 102_400, 1024)
    assert (answer["stages_that_fit"], answer["smem_bytes_that_fit"]) == (2, 74_752)


@pytest.mark.parametrize(
    ("fields", "kind", "reason"),
    [
        pytest.param({"tile": [128, 128, 64], "format": "mxfp4"}, "illegal", "scale_block", id="L6"),
        pytest.param({"tile": [128, 256, 128], "format": "mxfp8_mxfp4"}, "illegal", "stages", id="L8"),
        pytest.param({"tile": [128, 8, 128], "schedule": "pingpong"}, "illegal", "pingpong_n", id="L11"),
        pytest.param({"cluster": [2, 1]}, "illegal", "cluster", id="L12"),
        pytest.param({"tile": [512, 512, 128]}, "illegal", "stages", id="L13"),
        pytest.param({"tile": [128, 32, 128], "cutlass": "4.2.0"}, "illegal", "tile_n", id="L17"),
        pytest.param({"cutlass": "9.9.9"}, "unknown", "cutlass_version", id="version"),
    ],
)
def test_verdicts_in_bulk(fields: dict[str, Any], kind: str, reason: str) -> None:
    [answer], result = batch({**LINE, **fields})
    assert result.exit_code == 0
    assert (answer["verdict"], answer["reason"]) == (kind, reason)
    assert answer["message"] and answer["smem_bytes"] is None and answer["terms"] is None


def test_lines_that_cannot_be_read_are_answered_too() -> None:
    bad = ["x", "[]", {**LINE, "tiles": 1}, {**LINE, "stages": 0}, {**LINE, "tile": [1, 2]}, {**LINE, "arch": "sm13"},
           {**LINE, "format": "int4"}, {**LINE, "c": 3}, {"schedule": "pingpong"}, {**LINE, "tile": "128x128x128"},
           {**LINE, "swap_ab": 1}, "[" * 100_000]  # fmt: skip
    answers, result = batch(LINE, *bad, LINE)
    assert len(answers) == len(bad) + 2
    assert answers[0] == answers[-1] and answers[0]["verdict"] == "fits"
    for number, answer in enumerate(answers[1:-1], 2):
        assert (answer["verdict"], answer["reason"]) == ("invalid", "input"), (bad[number - 2], answer)
        assert answer["message"].startswith(f"line {number}: ") and "\n" not in answer["message"]
        assert answer["stages"] is None and answer["terms"] is None
    assert result.exit_code == 2 and len(result.stderr.splitlines()) == 1


def test_bulk_answers_are_those_of_the_validator() -> None:
    arch, lines, expected = get_arch("sm120"), [], []
    for form, cutlass in (("nvfp4", "4.5.0"), ("mxfp8_mxfp4", "4.2.0")):
        for tactic in space.enumerate_tactics(arch, form, cutlass, c="fp32"):
            fields = {**tactic.as_dict(), "format": form, "cutlass": cutlass, "c": "fp32"}
            lines.append({name: value for name, value in fields.items() if value != "auto"})
            expected.append(legality.check(tactic, arch=arch, format=form, cutlass=cutlass, c="fp32"))
    answers, result = batch(*lines)
    assert result.exit_code == 0 and len(answers) == len(expected) > 800
    for answer, verdict in zip(answers, expected, strict=True):
        assert (answer["verdict"], answer["reason"], answer["message"]) == (
            verdict.kind,
            verdict.reason,
            verdict.message,
        )


def test_it_answers_while_the_pipe_stays_open() -> None:
    command = [sys.executable, "-m", "tileforge", "explain", "--batch", "-", "--json"]
    root = Path(__file__).parents[1]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=root) as process:
        assert process.stdin and process.stdout
        for tile in ([128, 128, 128], [128, 128, 512]):
            process.stdin.write(json.dumps({**LINE, "tile": tile}) + "\n")
            process.stdin.flush()
            assert json.loads(process.stdout.readline())["stages"] == (4 if tile[2] == 128 else 1)
        process.stdin.close()
        assert process.wait(30) == 0


def test_files_and_what_is_none(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_text(json.dumps(LINE) + "\n\n")
    result = CliRunner().invoke(main_group, ["explain", "--batch", str(path)])
    assert result.exit_code == 0 and len(result.stdout.splitlines()) == 1
    for arguments in (
        ["--batch", str(tmp_path / "none")],
        ["--batch", str(tmp_path)],
        [],
        ["128x128x128", "--batch", "-"],
    ):
        result = CliRunner().invoke(main_group, ["explain", *arguments])
        assert result.exit_code == 2 and len(result.stderr.splitlines()) == 1, arguments


def test_a_directory_that_is_not_cutlass(tmp_path: Path) -> None:
    for command in (
        ["explain", "128x128x128"],
        ["enumerate", "--n", "512", "--k", "512", "--groups", "2"],
        ["oracle", "128x128x128"],
    ):
        result = CliRunner().invoke(main_group, command, env={**os.environ, "TILEFORGE_CUTLASS": str(tmp_path)})
        assert result.exit_code == 2 and str(tmp_path) in result.stderr and len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("tactic", "format", "first", "change"),
    [
        ("128x128x64", "mxfp4", "128x128x128_c1x1_coop", "K tile 64 to 128"),
        ("128x128x128_c2x1", "nvfp4", "128x128x128_c1x1_coop", "cluster 2x1 to 1x1"),
        ("64x128x128", "nvfp4", "128x128x128_c1x1_coop", "M tile 64 to 128"),
        ("128x8x128_pp", "nvfp4", "128x32x128_c1x1_pp", "N tile 8 to 32"),
        ("128x128x128_coop_s9", "nvfp4", "128x128x128_c1x1_coop", "9 stages to 4"),
    ],
)
def test_the_nearest_change_least(tactic: str, format: str, first: str, change: str) -> None:
    asked = {"arch": get_arch("sm120"), "format": format}
    found = space.nearest(Tactic.parse(tactic), **asked)  # type: ignore[arg-type]
    assert found[0].tactic.id == first and found[0].changes == (change,)
    assert len(found) == 3 and all(each.verdict for each in found)
    assert all(legality.check(each.tactic, **asked) for each in found)  # type: ignore[arg-type]


def test_nothing_is_near_where_nothing_is_known() -> None:
    assert space.nearest(Tactic.parse("128x128x128"), arch=get_arch("sm120"), format="nvfp4", cutlass="9.9.9") == []
    assert space.nearest(Tactic.parse("128x128x128"), arch=get_arch("sm120"), format="bf16") == []


def test_the_waterfall_adds_up() -> None:
    arch = get_arch("sm120")
    problem = GroupedGemm(512, 4096, 6144, 32, format="nvfp4")
    pruned = space.prune(problem, arch, "4.5.0", epilogue="finalize")
    steps = space.waterfall(pruned, arch)
    left = len(pruned.verdicts)
    for step in steps:
        left -= step.dropped
        assert step.left == left and step.misses
    assert left == len(pruned.legal)
    codes = [rule.code for rule in arch.rules]
    order = [codes.index(step.reason) for step in steps if step.reason in codes]
    assert order == sorted(order) and all(step.source for step in steps)
    over = [verdict.figures["excess_bytes"] for step in steps if step.kind == "over" for _, verdict in step.misses]
    assert over and over == sorted(over)
