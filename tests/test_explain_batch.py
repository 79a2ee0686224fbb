"""explain --batch: every line is answered, in order and at once, whatever the others are."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tileforge import legality, smem
from tileforge.arch import get_arch
from tileforge.cli import main_group
from tileforge.cli.explain_batch import _LONGEST, ASKED_KEYS, KEYS, OVER_KEYS, TACTIC_KEYS, Batch
from tileforge.tactic import Tactic

ROOT = Path(__file__).resolve().parent.parent
LINE: dict[str, Any] = {
    "arch": "sm120", "format": "nvfp4", "tile": [128, 64, 256], "schedule": "cooperative", "stages": None,
    "epilogue_tile": None, "c": None, "out": "bf16", "swap_ab": False, "cutlass": "4.5.0",
}  # fmt: skip


def run(text: str | bytes, *options: str, **environment: str) -> Result:
    return CliRunner().invoke(main_group, ["explain", "--batch", "-", *options], input=text, env=environment)


def line(**changes: Any) -> str:
    """A line of ``LINE``, changed; ``...`` leaves a key out."""
    return json.dumps({name: value for name, value in {**LINE, **changes}.items() if value is not ...})


def ask(*options: str, **changes: Any) -> dict[str, Any]:
    result = run(line(**changes), *options)
    [answer] = [json.loads(said) for said in result.stdout.splitlines()]
    assert result.exit_code == (2 if answer["verdict"] == "invalid" else 0), result.output
    return dict(answer)


@pytest.mark.parametrize(
    ("changes", "kind", "reason", "figures"),
    [
        pytest.param({"tile": [128, 128, 128]}, "fits", "", {"stages": 4}, id="L1"),
        pytest.param({"tile": [128, 128, 256]}, "fits", "", {"stages": 2}, id="L2"),
        pytest.param({"tile": [256, 128, 128]}, "fits", "", {"stages": 3}, id="L3"),
        pytest.param({"tile": [128, 256, 128], "epilogue": "finalize"}, "over", "smem",
                     {"stages": 3, "smem_bytes": 102_400, "excess_bytes": 1_024, "stages_that_fit": 2,
                      "smem_bytes_that_fit": 74_752}, id="L4"),
        pytest.param({"tile": [128, 128, 512]}, "illegal", "stages", {}, id="L5"),
        pytest.param({"tile": [128, 128, 64], "format": "mxfp4"}, "illegal", "scale_block", {}, id="L6"),
        pytest.param({"tile": [128, 128, 128], "format": "mxfp8_mxfp4"}, "fits", "", {"stages": 2}, id="L7"),
        pytest.param({"tile": [128, 256, 128], "format": "mxfp8_mxfp4"}, "illegal", "stages", {}, id="L8"),
        pytest.param({"tile": [256, 128, 128], "format": "mxfp8_mxfp4"}, "illegal", "stages", {}, id="L8_M"),
        pytest.param({"tile": [256, 128, 128], "epilogue": "finalize"}, "over", "smem",
                     {"smem_bytes": 102_400, "excess_bytes": 1_024}, id="L9"),
        pytest.param({"tile": [256, 128, 128], "format": "mxfp8_mxfp4", "stages": 2}, "over", "smem",
                     {"smem_bytes": 112_640, "excess_bytes": 11_264}, id="L10"),
        pytest.param({"tile": [128, 8, 128], "schedule": "pingpong"}, "illegal", "pingpong_n", {}, id="L11"),
        pytest.param({"cluster": [2, 1]}, "illegal", "cluster", {}, id="L12"),
        pytest.param({"tile": [512, 512, 128], "format": "mxfp8_mxfp4"}, "illegal", "stages", {"stages": 0}, id="L13"),
        pytest.param({"tile": [128, 32, 128], "cutlass": "4.2.0"}, "illegal", "tile_n", {}, id="L17"),
        pytest.param({"c": "bf16"}, "fits", "", {"smem_bytes": 101_376}, id="the_last_byte"),
        pytest.param({"cutlass": "9.9.9"}, "unknown", "cutlass_version", {"limit_bytes": 101_376}, id="version"),
        pytest.param({"format": "bf16"}, "illegal", "format", {}, id="format"),
        pytest.param({"tile": [384, 128, 128]}, "unknown", "unconfirmed", {"stages": 2}, id="unconfirmed"),
    ],
)  # fmt: skip
def test_verdicts(changes: dict[str, Any], kind: str, reason: str, figures: dict[str, int]) -> None:
    answer = ask(**changes)
    assert (answer["verdict"], answer["reason"]) == (kind, reason)
    assert {name: answer[name] for name in figures} == figures
    assert list(answer)[: len(KEYS)] == list(KEYS) and answer["limit_bytes"] == 101_376
    assert set(answer) - set(KEYS) == (set(OVER_KEYS) if kind == "over" else set())
    if kind in ("fits", "over") or reason == "unconfirmed":
        assert sum(answer["terms"].values()) == answer["smem_bytes"]
    else:
        assert answer["smem_bytes"] is None and answer["terms"] is None, "a rule was broken: there are no bytes"


def test_over_with_no_number_of_stages_that_fits() -> None:
    answer = ask(tile=[256, 256, 256], format="mxfp8_mxfp4", stages=2)
    assert (answer["verdict"], answer["stages_that_fit"], answer["smem_bytes_that_fit"]) == ("over", None, None)


def test_null_and_missing_and_auto_are_the_same() -> None:
    plain = ask()
    assert plain == ask(stages=..., epilogue_tile=..., c=...) == ask(stages="auto", epilogue_tile="auto", c="none")
    every = {name: None for name in (*TACTIC_KEYS, *ASKED_KEYS) if name not in ("tile", "cutlass")}
    assert plain == ask(**every) == ask(**dict.fromkeys(every, ...))


def test_what_a_line_leaves_out_takes_the_options() -> None:
    bare = {"tile": [128, 128, 128], **dict.fromkeys(("arch", "format", "out", "c", "cutlass"), ...)}
    options = ("--format", "mxfp4", "--out", "fp32", "--c", "bf16", "--cutlass", "4.2.0", "--gpu", "rtx_5090")
    verdict = legality.check(
        Tactic((128, 128, 128)), arch=get_arch("sm120"), format="mxfp4", out="fp32", c="bf16", cutlass="4.2.0"
    )
    assert ask(*options, **bare)["message"] == verdict.message
    assert ask(*options)["message"] == ask()["message"], "what a line says wins; its null c is no C operand"
    assert ask("--format", "bf16", "--cutlass", "4.5.0", **bare)["limit_bytes"] == 232_448, "the SM of the format"
    assert ask("--epilogue", "finalize", tile=[128, 256, 128])["excess_bytes"] == 1_024


def test_a_tactic_by_its_id() -> None:
    fields = dict.fromkeys(("tile", "schedule", "stages", "epilogue_tile", "swap_ab"), ...)
    assert ask(tactic="128x64x256_c1x1_coop_s2_e64x16_swap", **fields) == ask(
        stages=2, epilogue_tile=[64, 16], swap_ab=True
    )
    assert "leave schedule out" in ask(tactic="128x64x256", **{**fields, "schedule": "pingpong"})["message"]


#: What is no question, and what its message says.
NONE = [
    ("x", "not JSON"), ("", "not JSON: empty"), ("[1]", "not an object"), ("null", "not an object"),
    ("{} {}", "not JSON"), ("[" * 60_000, "not JSON"), (b"\xff", "not JSON"), ("x" * 10**6, "longer than 65,536"),
    ('{"tile": [128, 64, %s]}' % ("9" * 5_000), "not JSON"), ('{"tile": [128, 64, NaN]}', "whole numbers"),
    (line(tiles=1), "unknown key 'tiles'"), (line(tile=...), "tile is missing"), (line(tile=[128, 64]), "list of 3"),
    (line(tile="128x64x256"), "list of 3"), (line(tile=[128, 64, 256.0]), "whole numbers"),
    (line(tile=[[128], 64, 256]), "whole numbers"), (line(tile=[128, 0, 256]), "whole numbers"),
    (line(tile=[128, True, 256]), "whole numbers"), (line(schedule="pp"), "cooperative, pingpong"),
    (line(schedule=[]), "schedule [] is not a name"), (line(stages=0), "0 stages"), (line(stages=""), "stages ''"),
    (line(stages=False), "stages False"), (line(stages=[]), "stages []"), (line(stages=3.0), "stages 3.0"),
    (line(stages=-1), "whole numbers"), (line(epilogue_tile=[]), "list of 2"), (line(cluster=2), "list of 2"),
    (line(c="void"), "unknown type 'void'"), (line(c=16), "c 16 is not a name"), (line(out="int8"), "output type"),
    (line(out=""), "out ''"), (line(swap_ab=1), "neither true nor false"), (line(swizzle="2"), "swizzle"),
    (line(arch="sm75"), "unknown architecture"), (line(arch=[120]), "not a name"), (line(format="int4"), "format"),
    (line(epilogue="c"), "unknown epilogue"), (line(epilogue="finalize", c="fp32"), "finalize"),
    (line(raster="x"), "raster"), (line(cutlass=4.5), "cutlass 4.5 is not a name"), (line(tactic="128"), "leave"),
    ('{"tactic": "128x64"}', "is not a tactic"), ('{"%s": 1}' % ("k" * 60_000), "unknown key"),
]  # fmt: skip


def test_every_line_is_answered_whatever_the_others_are() -> None:
    lines = [text if isinstance(text, bytes) else text.encode() for text, _ in NONE]
    whole = b"\n".join([line().encode(), *lines, line().encode()]) + b"\n\n \n"  # blank lines at the end: no questions
    result = run(whole, "--cutlass", "4.5.0")
    answers = [json.loads(said) for said in result.stdout.splitlines()]
    assert len(answers) == len(NONE) + 2
    assert answers[0] == answers[-1] == ask()
    for number, ((_, words), answer) in enumerate(zip(NONE, answers[1:-1], strict=True), 2):
        assert answer["message"].startswith(f"line {number}: ") and words in answer["message"], answer
        assert len(answer["message"]) < 500 and "\n" not in answer["message"]
        assert answer == {**dict.fromkeys(KEYS), "verdict": "invalid", "reason": "input", "message": answer["message"]}
    assert result.exit_code == 2 and result.stderr.splitlines() == [
        f"tileforge: {len(NONE)} of {len(NONE) + 2} lines of standard input could not be read, the first is line 2"
    ]


@pytest.mark.parametrize("end", ["", "\n", "\r\n", "\n\n  \n"])
def test_the_end_of_a_file(end: str, tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    path.write_bytes(("\ufeff" + line() + "\r\n" + line(stages=2) + end).encode())
    result = CliRunner().invoke(main_group, ["explain", "--batch", str(path), "--json"])
    assert result.exit_code == 0
    assert [json.loads(said)["stages"] for said in result.stdout.splitlines()] == [3, 2]
    assert run("").stdout == "" and run("").exit_code == 0


def test_lines_that_arrive_in_pieces() -> None:
    """Reads end anywhere: within a line, within a character of one."""
    text = "\n".join([line(), line(tile=[128, 128, 128], note="é"), line(stages=2)]).encode()
    program = "import sys, time\nfor byte in sys.stdin.buffer.read():\n sys.stdout.buffer.write(bytes([byte]))\n"
    program += " sys.stdout.flush()\n"
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as slow:
        assert slow.stdin
        slow.stdin.write(text)
        slow.stdin.close()
        command = [sys.executable, "-m", "tileforge", "explain", "--batch", "-"]
        found = subprocess.run(command, stdin=slow.stdout, capture_output=True, text=True, cwd=ROOT)
    assert [json.loads(said)["verdict"] for said in found.stdout.splitlines()] == ["fits", "invalid", "fits"]
    assert found.returncode == 2


def test_a_coprocess_is_answered_line_by_line() -> None:
    command = [sys.executable, "-m", "tileforge", "explain", "--batch", "-"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdin and process.stdout
        for stages in (2, 3, 2):
            process.stdin.write(line(stages=stages) + "\n")
            process.stdin.flush()
            assert json.loads(process.stdout.readline())["stages"] == stages
        process.stdin.close()
        assert process.wait(30) == 0


def test_a_reader_that_goes_away_is_no_traceback(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    path.write_text((line() + "\n") * 5_000)
    command = [sys.executable, "-m", "tileforge", "explain", "--batch", str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout and process.stderr
        assert json.loads(process.stdout.readline())["verdict"] == "fits"
        process.stdout.close()
        assert process.stderr.read() == ""


def test_a_line_without_an_end_is_not_kept_in_memory() -> None:
    batch = Batch(cutlass="4.5.0")
    [answer] = batch.answers([b"1" * (_LONGEST + 1)]).splitlines()
    assert "longer than" in json.loads(answer)["message"]
    asked = (
        "import resource, sys\nfrom tileforge.cli import main\n"
        "try: main(['explain', '--batch', '-'])\n"
        "except SystemExit: print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr)"
    )
    peaks = []
    for megabytes in (1, 300):
        program = f"import sys\nfor _ in range({megabytes}): sys.stdout.write('x' * (1 << 20))"
        with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as endless:
            command = [sys.executable, "-c", asked]
            found = subprocess.run(command, stdin=endless.stdout, capture_output=True, text=True, cwd=ROOT)
        assert len(found.stdout.splitlines()) == 1
        peaks.append(int(found.stderr.split()[-1]))
    assert peaks[1] - peaks[0] < 20_000, "kB"


def test_what_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    for source, words in ((tmp_path / "none", "No such file"), (tmp_path, "Is a directory"), ("a\0b", "cannot read")):
        result = CliRunner().invoke(main_group, ["explain", "--batch", str(source), "--json"])
        assert result.exit_code == 2 and result.stdout == "" and words in result.stderr
        assert len(result.stderr.splitlines()) == 1 and result.stderr.startswith("tileforge: ")


def test_a_directory_that_is_not_cutlass(tmp_path: Path) -> None:
    for result in (run(line(), TILEFORGE_CUTLASS=str(tmp_path)), run(line(cutlass=...), "--cutlass", f"{tmp_path}/")):
        assert result.exit_code == 2 and str(tmp_path) in result.stderr and len(result.stderr.splitlines()) == 1
        assert result.stdout == ""
    assert run(line(), "--cutlass", "4.5.0", TILEFORGE_CUTLASS=str(tmp_path)).exit_code == 0, "it is not asked for"


def test_neither_compiler_nor_anything_heavy_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    path.write_text(line() + "\n")
    code = (
        "import sys; from tileforge.cli import main\n"
        f"try: main(['explain', '--batch', {str(path)!r}])\n"
        "except SystemExit: pass\n"
        "names = ('optuna', 'torch', 'numpy', 'cuda', 'rich', 'tileforge.toolchain', 'tileforge.measure')\n"
        "print([name for name in names if name in sys.modules])"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert answer.stdout.splitlines()[-1] == "[]"


def test_ten_thousand_lines_a_second() -> None:
    """A third of what it does on two slow cores, in CPU time, so that a busy machine does not decide."""
    lines = [line(tile=[128, 8 * n, 128], stages=stages).encode() for n in range(1, 33) for stages in range(1, 33)]
    batch, times = Batch(), []
    for _ in range(5):
        start = time.process_time()
        assert batch.answers(lines).count("\n") == len(lines)
        times.append(time.process_time() - start)
    assert len(lines) / min(times) > 10_000


def test_the_terms_are_those_of_smem() -> None:
    answer = ask(tile=[128, 128, 128], out="fp32", c="bf16", swap_ab=True, stages=2, cutlass="4.2.0")
    tactic = Tactic((128, 128, 128), stages=2, swap_ab=True)
    found = smem.breakdown(tactic, arch="sm120", format="nvfp4", out="fp32", c="bf16", cutlass="4.2.0")
    assert answer["terms"] == dict(found.terms) and answer["smem_bytes"] == found.total
