"""The command line as people meet it: one-line errors with exit code 2, --json that is JSON, nothing half-written."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import tileforge
from tileforge.cli import COMMANDS, main_group
from tileforge.cli.progress import Progress
from tileforge.search import Event

SIZES = ["--n", "4096", "--k", "6144", "--groups", "32"]
PROBLEM = ["--m", "512", *SIZES]


def run(*arguments: str, **environment: str) -> Result:
    return CliRunner().invoke(main_group, list(arguments), env=environment)


def payload(*arguments: str) -> Any:
    """Standard output of a command with --json, which must be JSON and nothing else."""
    result = run(*arguments, "--json")
    assert result.exit_code in (0, 1), result.output
    return json.loads(result.stdout)


BAD: dict[str, tuple[list[str], str]] = {
    "format": (["enumerate", *PROBLEM, "--format", "int4"], "unknown format 'int4': use one of bf16"),
    "K_704_L18": (["tune", "--m", "8", "--n", "512", "--k", "704", "--groups", "8"], "pad to 768"),
    "N": (["tune", "--m", "8", "--n", "500", "--k", "768", "--groups", "8"], "N % 8 == 0"),
    "negative": (["tune", "--m", "-1", *SIZES], "M = -1"),
    "zero_groups": (["tune", "--m", "8", "--n", "512", "--k", "768", "--groups", "0"], "groups = 0"),
    "routing": (["tune", "--m", "9", "--n", "512", "--k", "768", "--groups", "2", "--routing", "rows:4,4"], "M = 9"),
    "routing_word": (["tune", *PROBLEM, "--routing", "even"], "unknown routing 'even'"),
    "no_sizes": (["tune", "--m", "8"], "say which problem"),
    "both_rows": (["tune", *PROBLEM, "--rows", "4"], "give one of them"),
    "rows": (["tune", *SIZES, "--rows", "a"], "--rows 'a' is not a list"),
    "model": (["tune", "--model", "no-such-model.yaml"], "no-such-model"),
    "model_and_sizes": (["tune", "--model", "examples/models/glm-5.yaml", *PROBLEM], "leave out"),
    "tactic": (["explain", "128x64"], "is not a tactic"),
    "gpu": (["pick", *PROBLEM, "--gpu", "rtx_9999"], "unknown GPU 'rtx_9999'"),
    "arch": (["explain", "128x128x128", "--arch", "sm75"], "unknown architecture 'sm75'"),
    "gpu_against_arch": (["explain", "128x128x128", "--gpu", "rtx_5090", "--arch", "sm90"], "is sm120, not sm90"),
    "budget": (["tune", *PROBLEM, "--budget", "many"], "is not a budget"),
    "timer": (["tune", *PROBLEM, "--timer", "sundial"], "unknown timer"),
    "illegal_build": (["build", "--tactic", "128x128x512"], "is illegal on sm120"),
    "format_on_gpu": (["tune", *PROBLEM, "--gpu", "h200", "--timer", "predict"], "has no nvfp4 kernels"),
    "unpack": (["build", "--unpack", "no-such-file.tar.gz"], "no-such-file.tar.gz"),
    "huge_groups": (["tune", "--m", "1", "--n", "8", "--k", "128", "--groups", "2000000000"], "more than the 65,536"),
    "huge_draw": (["tune", "--m", "2000000000", *SIZES, "--routing", "uniform"], "draws each row"),
    "ep": (["tune", "--model", "examples/models/glm-5.yaml", "--ep", "1000000007"], "EP256 does"),
    "empty_rows": (["tune", *SIZES, "--rows", ""], "--rows '' is not a list"),
    "no_database": (["db", "show", "no-such-database"], "no database no-such-database"),
    "verify_pack": (["verify", "--pack", "kernels.tar.gz"], "--pack goes with --build-only"),
    "verify_part": (["verify", "--case", "K 96", "--table", "t.json"], "leave out --table"),
    "verify_illegal": (["verify", "--tactic", "64x128x128"], "--force runs it all the same"),
    "verify_format": (["verify", "--format", "int4"], "unknown format 'int4'"),
    "verify_table": (
        ["verify", "--tactic", "128x128x128", "--table", "no-such-dir/t.json"],
        "no directory no-such-dir",
    ),
    "seed": (["measure", *PROBLEM, "--timer", "fake", "--samples", "0"], "--samples 0"),
}


@pytest.mark.parametrize(("arguments", "words"), BAD.values(), ids=BAD)
def test_bad_input_is_one_line_and_exit_code_2(arguments: list[str], words: str, tmp_path: Path) -> None:
    before = sorted(tmp_path.rglob("*"))
    result = run(*arguments)
    assert result.exit_code == 2, result.output
    assert words in result.stderr and result.stderr.startswith("tileforge: ")
    assert len(result.stderr.splitlines()) == 1 and result.stdout == ""
    assert sorted(tmp_path.rglob("*")) == before


def test_no_gpu_when_one_was_asked_for() -> None:
    for arguments in (["tune", *PROBLEM, "--timer", "gpu"], ["measure", *PROBLEM], ["verify", "--limit", "1"]):
        result = run(*arguments)
        assert result.exit_code == 2 and "GPU" in result.stderr and len(result.stderr.splitlines()) == 1


def test_an_unwritable_database_is_one_line_before_anything_is_done(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")
    result = run("tune", *PROBLEM, "--timer", "predict", "--no-confirm", "--db", str(tmp_path / "file"))
    assert result.exit_code == 2 and "is not a directory" in result.stderr
    assert (tmp_path / "file").read_text() == "not a directory"


def test_a_named_cutlass_or_nvcc_that_is_none_is_one_line(tmp_path: Path) -> None:
    result = run(
        "build", "--tactic", "128x128x128", TILEFORGE_CUTLASS=str(tmp_path), TILEFORGE_CACHE=str(tmp_path / "c")
    )
    assert result.exit_code == 2 and str(tmp_path) in result.stderr and len(result.stderr.splitlines()) == 1
    result = run("build", "--tactic", "128x128x128", TILEFORGE_NVCC=str(tmp_path / "nvcc"))
    assert result.exit_code == 2 and "nvcc" in result.stderr and len(result.stderr.splitlines()) == 1


def test_explain_l4() -> None:
    result = run("explain", "128x256x128", "--epilogue", "finalize", "--cutlass", "4.5.0")
    assert result.exit_code == 1
    assert "over: needs 102,400 B of 101,376 B with 3 stages: 1,024 B over" in result.stdout
    assert "128x256x128_c1x1_coop_s2       2 stages,  74,752 B" in result.stdout
    found = payload("explain", "128x256x128", "--epilogue", "finalize", "--cutlass", "4.5.0")
    assert found["verdict"] == "over" and found["excess_bytes"] == 1024
    assert sum(found["terms"].values()) == found["smem_bytes"] == 102_400
    assert payload("explain", "128x128x128", "--cutlass", "4.5.0")["verdict"] == "fits"
    assert payload("explain", "128x128x128", "--cutlass", "9.9.9")["verdict"] == "unknown"


@pytest.mark.parametrize("tactic", ["128x16x128_swap", "64x128x128", "128x128x128_c2x1", "128x128x64_e48x32"])
def test_explain_shows_no_bytes_of_what_breaks_a_rule(tactic: str) -> None:
    found = payload("explain", tactic, "--cutlass", "4.5.0", "--format", "mxfp4")
    assert found["verdict"] == "illegal" and found["message"] and found["source"]
    assert "smem_bytes" not in found and "terms" not in found


def test_enumerate_counts_what_it_drops() -> None:
    [found] = payload("enumerate", *PROBLEM, "--cutlass", "4.5.0", "--explain")
    legal, whole = map(int, re.match(r"(\d+) legal of (\d+): ", found["summary"]).groups())  # type: ignore[union-attr]
    assert len(found["tactics"]) == whole > legal > 500
    assert sum(sum(reasons.values()) for reasons in found["dropped"].values()) == whole - legal
    assert [step["left"] for step in found["waterfall"]][-1] == legal
    [menu] = payload("enumerate", *PROBLEM, "--cutlass", "4.5.0", "--menu")
    assert 40 <= len(menu["tactics"]) <= 60 and all(each["verdict"] == "fits" for each in menu["tactics"])


def test_tune_predicts_says_so_and_pick_finds_it(tmp_path: Path) -> None:
    db = str(tmp_path / "db")
    tune = ["tune", *SIZES, "--rows", "1,16", "--gpu", "rtx_pro_6000", "--timer", "predict", "--no-confirm", "--db", db]
    result = run(*tune)
    assert result.exit_code == 0, result.output
    assert result.stdout.count("│ predicted │") == 2 and "nothing was timed" in result.stdout
    assert " measured" not in result.stdout
    found = payload("pick", *PROBLEM, "--gpu", "rtx_pro_6000", "--db", db)
    assert found[0]["provenance"] == "predicted" and "time_us" not in found[0]["record"]
    shown = payload("db", "show", db)
    assert [record["m"] for record in shown["records"]] == [32, 512] and shown["refused"] == []
    # The same tune again changes no byte.
    before = {path: path.read_bytes() for path in Path(db).rglob("*.yaml")}
    assert run(*tune).exit_code == 0
    assert {path: path.read_bytes() for path in Path(db).rglob("*.yaml")} == before


def test_tune_on_a_fake_device_never_passes_for_a_measurement(tmp_path: Path) -> None:
    fake = ["tune", *PROBLEM, "--timer", "fake", "--budget", "12", "--cutlass", "4.5.0"]
    result = run(*fake)
    assert result.exit_code == 0, result.output
    assert "FAKE DEVICE" in result.stdout and " measured" not in result.stdout
    assert not Path(os.environ["TILEFORGE_DB"]).exists()


def test_times_of_a_fake_device_are_never_picked_or_shown_as_measured(tmp_path: Path) -> None:
    db = str(tmp_path / "db")
    [found] = payload("tune", *PROBLEM, "--timer", "fake", "--budget", "6", "--cutlass", "4.5.0", "--db", db)
    assert found["provenance"] == "fake"
    assert run("pick", *PROBLEM, "--gpu", "rtx_pro_6000", "--db", db).exit_code == 1
    shown = run("db", "show", db).stdout
    assert "FAKE DEVICE" in shown and "measured" not in shown


def test_what_data_says_is_printed_as_it_is(tmp_path: Path) -> None:
    """Brackets in paths, model names and compiler messages are no markup."""
    odd = tmp_path / "[red]x[/] [/foo]"
    odd.mkdir(parents=True)
    result = run("tune", *PROBLEM, "--gpu", "rtx_5090", "--timer", "predict", "--no-confirm", "--db", str(odd / "db"))
    assert result.exit_code == 0 and f"1 records in {odd}/db" in result.stdout
    model = tmp_path / "odd.yaml"
    model.write_text('name: "[red]x[/] [/foo]"\nhidden: 256\nmoe_intermediate: 128\nexperts: 8\ntop_k: 2\n')
    result = run("tune", "--model", str(model), "--rows", "1", "--timer", "predict", "--no-confirm", "--no-save")
    assert result.exit_code == 0 and "[/foo]" in result.stderr
    problem = tileforge.GroupedGemm(8, 256, 256, 2)
    with Progress() as progress:
        progress.on_event(Event("note", problem, message="static assertion [with T=int] of a[i] [/tmp/y]"))


@pytest.mark.parametrize(
    "text",
    ["source: 2020-13-45", "hidden: !!int foo", "top_k: 3\ntop_k: 4", "name: " + "[" * 3000],
    ids=["date", "tag", "twice", "nested"],
)
def test_a_hostile_model_file_is_one_line(text: str, tmp_path: Path) -> None:
    model = tmp_path / "model.yaml"
    model.write_text(f"{text}\nmoe_intermediate: 128\nexperts: 8\n")
    result = run("enumerate", "--model", str(model), "--rows", "1")
    assert result.exit_code == 2 and len(result.stderr.splitlines()) == 1 and str(model) in result.stderr


def test_a_named_cutlass_that_is_not_here_builds_nothing(tmp_path: Path) -> None:
    result = run("build", "--tactic", "128x128x128", "--cutlass", "9.9.9", TILEFORGE_CACHE=str(tmp_path / "c"))
    assert result.exit_code == 2 and "CUTLASS 9.9.9 is not here" in result.stderr
    result = run("explain", "128x128x128", TILEFORGE_CUTLASS=str(tmp_path))
    assert result.exit_code == 2 and str(tmp_path) in result.stderr


def test_a_gpu_without_the_format_is_no_command_that_fails() -> None:
    result = run("pick", *PROBLEM, "--gpu", "h200")
    assert result.exit_code == 1 and "NVIDIA H200 (sm90) has no nvfp4 kernels" in result.stdout
    assert "create it" not in result.stdout


def test_doctor_lives_with_a_broken_database(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    result = run("doctor", TILEFORGE_DB=str(tmp_path / "file"))
    assert result.exit_code == 0 and "is not a directory" in result.stdout


def test_measure_with_nothing_to_launch_p3() -> None:
    result = run("measure", "--m", "0", *SIZES, "--timer", "fake")
    assert result.exit_code == 0 and "nothing to launch" in result.stdout and " us" not in result.stdout


def test_a_miss_names_the_command_and_nothing_to_launch_is_no_miss_p3(tmp_path: Path) -> None:
    result = run("pick", *PROBLEM, "--gpu", "rtx_5090")
    assert result.exit_code == 1
    command = "tileforge tune --gpu rtx_5090 --m 512 --n 4096 --k 6144 --groups 32 --format nvfp4"
    assert f"create it: {command}" in result.stdout
    result = run("pick", "--m", "0", *SIZES, "--gpu", "rtx_5090")
    assert result.exit_code == 0 and "nothing to launch" in result.stdout


def test_pick_finds_a_shipped_record() -> None:
    [found] = payload("pick", "--m", "500", *SIZES, "--format", "bf16", "--gpu", "h200")
    assert found["provenance"] == "measured" and found["layer"] == "shipped" and found["record"]["m"] == 512


def test_db_show_refuses_a_broken_file_and_says_so(tmp_path: Path) -> None:
    broken = tmp_path / "h200" / "bf16_bf16_n4096_k6144_g32.yaml"
    broken.parent.mkdir()
    broken.write_text("---\nschema: 1\nrecords: [\n")
    result = run("db", "show", str(tmp_path))
    assert result.exit_code == 1 and f"refused: {broken}:" in result.stderr


def test_measure_on_a_fake_device() -> None:
    found = payload("measure", *PROBLEM, "--timer", "fake", "--tactic", "128x64x128_swap", "--tactic", "128x128x512")
    assert [each["status"] for each in found] == ["ok", "illegal"]
    result = run("measure", *PROBLEM, "--timer", "fake")
    assert result.exit_code == 0 and "FAKE DEVICE" in result.stdout


def test_doctor_names_what_is_missing_and_its_remedy(tmp_path: Path) -> None:
    found = payload("doctor")
    assert {"gpu", "cutlass", "compiler", "cache", "databases", "missing"} <= set(found)
    assert all(item["command"] for item in found["missing"])
    result = run("doctor", TILEFORGE_NVCC=str(tmp_path / "nvcc"))
    assert result.exit_code == 0 and "mend it: unset TILEFORGE_NVCC" in result.stdout


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help(command: str) -> None:
    result = run(*([command] if command else []), "--help")
    assert result.exit_code == 0 and result.stdout.startswith("Usage:")


def test_explain_starts_without_optuna_torch_or_numpy() -> None:
    code = (
        "import sys; from tileforge.cli import main\n"
        "try: main(['explain', '128x128x128', '--cutlass', '4.5.0'])\n"
        "except SystemExit: pass\n"
        "print([name for name in ('optuna', 'torch', 'numpy') if name in sys.modules])"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.splitlines()[-1] == "[]"
