"""explain and enumerate --explain as people read them: the bar, the figures, what fits instead; JSON says the same."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tileforge import smem
from tileforge.cli import bar, main_group
from tileforge.tactic import Tactic

PROBLEM = ["--m", "512", "--n", "4096", "--k", "6144", "--groups", "32"]


def run(*arguments: str, **environment: str) -> Result:
    return CliRunner().invoke(main_group, list(arguments), env=environment)


def explain(text: str, *options: str, code: int) -> tuple[str, dict[str, Any]]:
    """What it prints, and its JSON; both end with ``code``."""
    asked = ["explain", *text.split(), "--cutlass", "4.5.0", *options]
    shown, said = run(*asked), run(*asked, "--json")
    assert shown.exit_code == said.exit_code == code, shown.output
    return shown.stdout, json.loads(said.stdout)


def test_l4_shows_by_how_many_bytes_and_both_stage_counts() -> None:
    text, said = explain("128x256x128 --epilogue finalize", code=1)
    assert "over: needs 102,400 B of 101,376 B with 3 stages: 1,024 B over" in text
    assert re.search(r"automatic count +3 +102,400 B: 1,024 B over", text)
    assert re.search(r"the most that fit +2 +74,752 B: 26,624 B free", text)
    assert re.search(r"total +102,400 B 101.0% of 101,376 B: 1,024 B over", text)
    assert "rule smem, read in cudaFuncSetAttribute" in text and "blocks per SM" not in text
    assert re.search(r"128x256x128_c1x1_coop_s2 +2 stages, +74,752 B  \(automatic 3 stages to 2: 27,648 B less\)", text)
    figures = {
        "verdict": "over", "stages": 3, "smem_bytes": 102_400, "limit_bytes": 101_376, "excess_bytes": 1_024,
        "automatic_stages": 3, "smem_bytes_of_automatic_stages": 102_400, "most_stages_that_fit": 2,
        "smem_bytes_of_most_stages": 74_752, "blocks_per_sm": 0,
    }  # fmt: skip
    assert {name: said[name] for name in figures} == figures
    assert [each["tactic"] for each in said["nearest"]][0] == "128x256x128_c1x1_coop_s2"


@pytest.mark.parametrize(
    ("text", "code", "says"),
    [
        pytest.param("128x128x128", 0, "fits: needs 84,992 B of 101,376 B with 4 stages", id="L1"),
        pytest.param("128x128x256", 0, "with 2 stages", id="L2"),
        pytest.param("256x128x128", 0, "with 3 stages", id="L3"),
        pytest.param("128x128x512", 1, "illegal: fewer than 2 stages: only 1 stage fits", id="L5"),
        pytest.param("128x128x64 --format mxfp4", 1, "2 scale factors along K, and they are stored 4", id="L6"),
        pytest.param("128x128x128 --format mxfp8_mxfp4", 0, "with 2 stages", id="L7"),
        pytest.param("128x256x128 --format mxfp8_mxfp4", 1, "only 1 stage fits", id="L8"),
        pytest.param("128x8x128_pp", 1, "illegal: pingpong needs an N tile of 16", id="L11"),
        pytest.param("128x128x128_c2x1", 1, "illegal: a cluster of 2x1 needs multicast", id="L12"),
        pytest.param("512x512x128 --format mxfp8_mxfp4", 1, "illegal: fewer than 2 stages: not one stage", id="L13"),
    ],
)
def test_the_cases(text: str, code: int, says: str) -> None:
    shown, said = explain(text, code=code)
    assert says in shown
    assert ("nearest tactics that fit:" in shown) == bool(said["nearest"]) == bool(code)
    if code:
        assert f"rule {said['reason']}, read in {said['source']}" in shown and said["source"]


@pytest.mark.parametrize(
    "asked",
    [
        "128x128x128",
        "128x32x128_coop_s2_swap --out fp32 --c bf16",
        "256x128x128 --epilogue finalize",
        "384x128x128",
        "128x64x128 --format mxfp8_mxfp4 --c fp32",
        "128x128x64_c2x1_pp --format bf16 --c bf16",
    ],
)
def test_text_and_json_have_the_same_figures(asked: str) -> None:
    result = run("explain", *asked.split(), "--cutlass", "4.5.0", "--json")
    said = json.loads(result.stdout)
    text = run("explain", *asked.split(), "--cutlass", "4.5.0").stdout
    assert sum(said["terms"].values()) == said["smem_bytes"]
    for name, size in said["terms"].items():
        assert re.search(rf"{re.escape(name)} +{size:,} B", text), name
    assert re.search(
        rf"automatic count +{said['automatic_stages']} +{said['smem_bytes_of_automatic_stages']:,} B", text
    )
    assert re.search(rf"most that fit +{said['most_stages_that_fit']} +{said['smem_bytes_of_most_stages']:,} B", text)
    if said["blocks_per_sm"]:
        assert f"blocks per SM that shared memory allows: {said['blocks_per_sm']} " in text
    for each in said["nearest"]:
        assert re.search(rf"{each['tactic']} +{each['stages']} stages, +{each['smem_bytes']:,} B", text)


@pytest.mark.parametrize(
    ("tactic", "blocks", "next_one"), [("128x128x128", 1, 50_176), ("128x32x128_coop_s2", 2, 33_109)]
)
def test_blocks_per_sm(tactic: str, blocks: int, next_one: int) -> None:
    """102,400 B of an SM, and 1,024 B of it are kept for each block."""
    text, said = explain(tactic, code=0)
    assert said["blocks_per_sm"] == blocks and f"({blocks + 1} would need {next_one:,} B or less a block)" in text
    assert blocks * (said["smem_bytes"] + 1_024) <= 102_400 < (blocks + 1) * (said["smem_bytes"] + 1_024)


def test_too_few_stages_are_shown_with_the_two_that_it_would_take_l5() -> None:
    text, said = explain("128x128x512", code=1)
    assert re.search(r"automatic count +1 +84,992 B: 16,384 B free, and at least 2 are needed", text)
    assert "at least 2 stages" in text and re.search(r"total +158,720 B", text)
    assert said["smem_bytes_of_two_stages"] == 158_720
    assert "smem_bytes" not in said and "terms" not in said and said["stages"] == 1
    text, said = explain("512x512x128 --format mxfp8_mxfp4", code=1)
    assert re.search(r"automatic count +0  not even one fits", text)
    assert said["automatic_stages"] == said["stages"] == 0 and said["smem_bytes_of_automatic_stages"] is None


def test_an_unknown_cutlass_offers_the_command_that_asks_the_compiler() -> None:
    asked = ["explain", "128x64x128_rm", "--cutlass", "9.9.9", "--c", "fp32", "--format", "mxfp4"]
    command = "tileforge oracle 128x64x128_c1x1_coop --arch sm120 --format mxfp4 --cutlass 9.9.9 --c fp32"
    result = run(*asked)
    assert result.exit_code == 1 and result.stdout.splitlines()[1].startswith("unknown: ")
    assert f"  {command}\n" in result.stdout and "TILEFORGE_CUTLASS=" in result.stdout
    said = json.loads(run(*asked, "--json").stdout)
    assert (said["verdict"], said["reason"], said["oracle"]) == ("unknown", "cutlass_version", command)
    assert said["nearest"] == [] and "smem_bytes" not in said
    # The command is one that the oracle takes: it goes on to look for those headers.
    assert "CUTLASS 9.9.9 is not here" in run(*command.split()[1:]).stderr


def test_a_directory_of_cutlass_stands_for_its_version(tmp_path: Path) -> None:
    (tmp_path / "include" / "cutlass").mkdir(parents=True)
    (tmp_path / "include" / "cute").mkdir()
    version = "".join(
        f"#define CUTLASS_{part} {number}\n" for part, number in (("MAJOR", 4), ("MINOR", 2), ("PATCH", 0))
    )
    (tmp_path / "include" / "cutlass" / "version.h").write_text(version)
    result = run("explain", "128x32x128", "--cutlass", str(tmp_path), TILEFORGE_CACHE=str(tmp_path / "cache"))
    assert result.exit_code == 1 and "CUTLASS 4.2.0 would store scale factors" in result.stdout
    result = run("explain", "128x32x128", "--cutlass", f"{tmp_path}/include/cute")
    assert result.exit_code == 2 and "is not CUTLASS" in result.stderr and len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--out", "int8"], "unknown output type"),
        (["--c", "int8"], "unknown type 'int8' of the C operand"),
        (["--epilogue", "c"], "unknown epilogue 'c'"),
        (["--epilogue", "finalize", "--c", "fp32"], "finalize"),
        (["--format", "int4"], "unknown format"),
    ],
)
def test_bad_options_are_one_line(options: list[str], words: str) -> None:
    result = run("explain", "128x128x128", *options)
    assert result.exit_code == 2 and words in result.stderr and len(result.stderr.splitlines()) == 1
    assert result.stdout == ""


@pytest.mark.parametrize("width", [40, 61, 100, 120])
@pytest.mark.parametrize("stages", [1, 2, 3, 4, 5, 40])
def test_the_bar_is_to_scale(width: int, stages: int) -> None:
    found = smem.breakdown(Tactic((128, 256, 128), stages=stages), arch="sm120", format="nvfp4", epilogue="finalize")
    drawn = bar.stacked(found.terms, found.limit, width)
    assert len(drawn) == width and drawn.count("|") == 1
    before, after = drawn.split("|")
    assert bool(after) == bool(found.excess), "what is over stands after the limit, if only a character"
    assert set(after) <= {bar.letter(name) for name in found.terms}
    whole = max(found.total, found.limit)
    for name, size in found.terms.items():
        assert abs(drawn.count(bar.letter(name)) - size / whole * (width - 1)) <= 1, name
    free = (found.limit - found.total) / whole * (width - 1)
    assert abs(before.count(".") - max(free, 0)) <= 1
    assert abs(len(before) - found.limit / whole * (width - 1)) <= 1


def test_terms_of_one_kernel_have_letters_of_their_own() -> None:
    for epilogue, c, swap_ab in (
        ("plain", None, False),
        ("plain", "bf16", False),
        ("plain", "fp32", True),
        ("finalize", None, True),
    ):
        tactic = Tactic((128, 128, 128), swap_ab=swap_ab)
        terms = smem.breakdown(tactic, arch="sm120", format="nvfp4", epilogue=epilogue, c=c).terms
        letters = {bar.letter(name) for name in terms}
        assert len(letters) == len(terms) and not letters & set("?.|")


@pytest.mark.parametrize("columns", ["20", "60", "100", "500"])
def test_the_bar_takes_the_width_of_the_terminal(columns: str) -> None:
    lines = run("explain", "128x128x128", "--cutlass", "4.5.0", COLUMNS=columns).stdout.splitlines()
    [drawn] = [line for line in lines if "AAAA" in line]
    assert len(drawn) == min(max(int(columns), 40), 120)


def test_colour_is_for_terminals() -> None:
    asked = ["explain", "128x256x128", "--epilogue", "finalize", "--cutlass", "4.5.0"]
    plain = CliRunner().invoke(main_group, asked).stdout
    colour = CliRunner().invoke(main_group, asked, color=True).stdout
    assert "\x1b" not in plain and "\x1b[" in colour
    assert re.sub(r"\x1b\[\d+m", "", colour) == plain


def test_the_waterfall_goes_by_reason_and_shows_near_misses() -> None:
    result = run("enumerate", *PROBLEM, "--cutlass", "4.5.0", "--explain", "--epilogue", "finalize")
    lines = result.stdout.splitlines()
    assert result.exit_code == 0
    left = int(lines[0].split()[0].replace(",", ""))
    steps = [re.match(r" *-([\d,]+) (\w+) \((.+)\): ([\d,]+) left$", line) for line in lines]
    names = []
    for dropped, kind, name, after in (step.groups() for step in steps if step):
        left -= int(dropped.replace(",", ""))
        assert int(after.replace(",", "")) == left
        names.append((kind, name))
    assert names[-1] == ("over", "shared memory") and ("illegal", "stages") in names
    assert f"{left:,} fit" in result.stdout and f"{left} legal of" in lines[-1]
    near = lines[lines.index(next(line for line in lines if "over (shared memory)" in line)) + 2]
    assert (
        near.strip().startswith("128x256x128_c1x1_coop: needs 102,400 B") and "2 stages would fit in 74,752 B" in near
    )
    assert sum(line.startswith("        rule read in ") for line in lines) == len(names)
    assert len(lines) < 30, "counts and a few near misses, not a list"


def test_every_dropped_tactic_can_be_listed() -> None:
    asked = ["enumerate", *PROBLEM, "--cutlass", "4.5.0"]
    said = json.loads(run(*asked, "--explain", "--json").stdout)[0]
    refused = [each for each in said["tactics"] if each["verdict"] != "fits"]
    assert len(refused) == sum(sum(reasons.values()) for reasons in said["dropped"].values()) > 100
    text = run(*asked, "--explain", "--all").stdout
    assert all(
        f"{each['tactic']:<44} {each['verdict']} ({each['reason']}): {each['message']}\n" in text for each in refused
    )
    assert [step["dropped"] for step in said["waterfall"]] and all(
        len(step["near_misses"]) <= 3 for step in said["waterfall"]
    )


def test_enumerate_with_an_unknown_cutlass_offers_the_oracle() -> None:
    for options in ([], ["--explain"], ["--menu"]):
        result = run("enumerate", *PROBLEM, "--cutlass", "9.9.9", *options)
        assert result.exit_code == 1, result.output
        assert "0 legal of" in result.stdout and "tileforge oracle --sample 24 --arch sm120" in result.stdout
        said = json.loads(run("enumerate", *PROBLEM, "--cutlass", "9.9.9", *options, "--json").stdout)[0]
        assert said["dropped"] == {"unknown": {"cutlass_version": said["dropped"]["unknown"]["cutlass_version"]}}
        assert said["oracle"].endswith("--format nvfp4 --cutlass 9.9.9")


def test_enumerate_k_704_l18() -> None:
    result = run("enumerate", "--m", "512", "--n", "4096", "--k", "704", "--groups", "32", "--explain")
    assert result.exit_code == 2 and "K % 128 == 0" in result.stderr and "768" in result.stderr


def test_enumerate_one_row_a_group_l16() -> None:
    asked = ["enumerate", "--m", "256", "--n", "1024", "--k", "3072", "--groups", "256", "--cutlass", "4.5.0", "--json"]
    for options in ([], ["--menu"]):
        [said] = json.loads(run(*asked, *options).stdout)
        tactics = [Tactic.parse(each["tactic"]) for each in said["tactics"]]
        assert any(tactic.swap_ab and tactic.tile[1] <= 32 for tactic in tactics)


def test_enumerate_takes_the_epilogue_and_a_c_operand() -> None:
    counts = [
        json.loads(run("enumerate", *PROBLEM, "--cutlass", "4.5.0", "--json", *options).stdout)[0]["summary"]
        for options in ([], ["--c", "fp32"], ["--epilogue", "finalize"], ["--c", "none"])
    ]
    assert len(set(counts)) == 3 and counts[0] == counts[3]
