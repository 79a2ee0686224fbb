"""``tileforge verify`` with kernels that compute on the CPU (cpu_kernel.cpp): right ones pass, faults are noticed."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tileforge.errors import DeviceError, InputError
from tileforge.measure.worker import Timeouts, WorkerBench
from tileforge.tactic import Tactic
from tileforge.toolchain import BuildOutcome, Kernel, KernelSpec
from tileforge.toolchain.compiler import find_host_compiler
from tileforge.toolchain.library import Library
from tileforge.verify import Case, Row, Table, Verifier, cases, how_to_run
from tileforge.verify.cases import EXACT, RANDOM

pytest.importorskip("torch")
from tileforge.verify.backend import VerifyBackend

HERE = Path(__file__).resolve().parent
TILE = "128x128x128_c1x1_coop"
#: Small, since the kernels are slow; among them what each fault needs in order to show.
CASES = [
    Case("ragged", (5, 0, 3, 1, 66), 136, 160, spare=70),
    Case("ragged", (5, 0, 3, 1, 66), 136, 160, RANDOM, spare=70),
    Case("N 200", (3, 2), 200, 64),
    Case("2 SMs", (9, 4), 136, 64, sm_count=2),
    Case("swizzle", (9, 4), 136, 64, raster="m", swizzle=4),
    Case("many groups", (1,) * 130, 64, 32),
    Case("all empty", (0, 0), 64, 64, spare=3),
]
#: In the order of cpu_kernel.cpp.
PLANTS = [
    "right", "plain_scales", "second_group_lost", "row_off", "column_tail", "depth_tail", "next_alpha", "before_output",
    "beyond_rows", "beyond_workspace", "into_operands", "small_grid", "swizzle", "many_groups", "scale_padding",
    "half_precision", "crash", "hang", "refuses",
]  # fmt: skip
Make = Callable[..., Kernel]


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory) -> Make:
    room = tmp_path_factory.mktemp("kernels")

    def compiled(plant: str = "right", format: str = "nvfp4", out: str = "bf16") -> Kernel:
        arch = "sm90" if format in ("bf16", "fp8") else "sm120"
        spec = KernelSpec(arch, format, out, Tactic.parse(TILE))
        path = room / f"{spec.id}_{plant}.so"
        if not path.exists():
            command = [
                str(find_host_compiler()),
                "-std=c++17",
                "-O3",
                "-shared",
                "-fPIC",
                f"-I{HERE.parent / 'kernels'}",
            ]
            command += [
                *spec.defines(),
                f"-DTF_PLANT={PLANTS.index(plant)}",
                str(HERE / "cpu_kernel.cpp"),
                "-o",
                str(path),
            ]
            subprocess.run(command, check=True)
        return Kernel(spec, path, Library(path).query(), "0" * 24)

    return compiled


def said(kernel: Kernel, chosen: list[Case]) -> dict[str, Any]:
    spec, phases = kernel.spec, []
    found = VerifyBackend("cpu").verify(
        path=kernel.path, format=spec.format, out=spec.out, cases=chosen, phase=phases.append
    )
    assert phases[0] == "load" and len(phases) >= found["cases"]
    return found


@pytest.mark.parametrize(
    ("format", "out"),
    [
        ("nvfp4", "bf16"),
        ("nvfp4", "fp16"),
        ("mxfp4", "fp32"),
        ("mxfp8_mxfp4", "bf16"),
        ("bf16", "bf16"),
        ("fp8", "fp16"),
    ],
)
def test_a_right_kernel_has_no_wrong_bit_and_every_planted_fault_is_noticed(make: Make, format: str, out: str) -> None:
    multiple = 128 if format == "mxfp8_mxfp4" else 32
    chosen = [replace(case, k=-(-case.k // multiple) * multiple) for case in CASES]
    found = said(make(format=format, out=out), chosen)
    assert found["failed"] == [] and not found["stopped"]
    assert (found["mismatches"], found["signed_zeros"], found["over_bound"]) == (0, 0, 0)
    assert 0 < found["worst_ratio"] <= 1
    assert len(found["faults"]) == (16 if format not in ("bf16", "fp8") else 10)
    assert all(found["faults"].values()), found["faults"]


def test_the_whole_set_of_cases_that_a_cpu_can_do(make: Make) -> None:
    small = [case for case in cases(32) if case.m * case.n * case.k < 6_000_000]
    assert len(small) >= 12
    found = said(make(), small)
    assert found["failed"] == [] and found["cases_right"] == len(small)


NOTICED = {
    "plain_scales": "ragged",
    "second_group_lost": "not written",
    "row_off": "ragged",
    "column_tail": "not written",
    "depth_tail": "ragged",
    "next_alpha": "ragged",
    "before_output": "guard row -1, column 135",
    "beyond_rows": "after the last group",
    "beyond_workspace": "wrote beyond its workspace",
    "into_operands": "wrote into its operands",
    "small_grid": "2 SMs",
    "swizzle": "swizzle",
    "many_groups": "many groups",
    "scale_padding": "nan",
    "half_precision": "ragged",
}


@pytest.mark.parametrize("plant", NOTICED)
def test_a_kernel_with_a_fault_is_wrong_and_the_fault_is_named(make: Make, plant: str) -> None:
    found = said(make(plant), CASES)
    assert found["failed"] and found["cases_right"] < found["cases"]
    assert any(NOTICED[plant] in line for line in found["failed"]), found["failed"]
    if plant in ("small_grid", "swizzle", "many_groups"):  # these show in the one case that is there for them
        assert {line.split(",")[0] for line in found["failed"]} == {NOTICED[plant]}


def test_random_data_alone_notices_what_rounding_does_not_explain(make: Make) -> None:
    only = [replace(case, data=RANDOM) for case in CASES]
    for plant in ("row_off", "next_alpha", "depth_tail"):
        assert said(make(plant), only)["over_bound"] > 0, plant


def test_cases_cover_what_they_are_for() -> None:
    found = cases(32)
    assert {case.data for case in found} == {EXACT, RANDOM} and len(found) == 2 * len({case.name for case in found})
    assert len({replace(case, name="") for case in found}) == len(found)
    assert {case.k for case in found} >= {64, 96, 128, 1504, 4096} and {case.n for case in found} >= {136, 200}
    assert {(c.raster, c.swizzle) for c in found} >= {(r, s) for r in "mn" for s in (1, 2, 4, 8)}
    assert {case.sm_count for case in found} >= {0, 2, 188}
    assert any(len(c.sizes) == 256 and set(c.sizes) == {1} for c in found)
    assert any(c.sizes[0] == 0 for c in found) and any(c.sizes[-1] == 0 for c in found)
    assert any(not sum(c.sizes) and c.spare for c in found)
    rounded = cases(128, 16)
    assert all(case.k % 128 == 0 and case.n % 16 == 0 for case in rounded)
    assert len(rounded) < len(found)  # K 64, 96 and 128 are one


def test_a_kernel_of_another_format_is_not_launched(make: Make) -> None:
    from tileforge.errors import BuildError

    with pytest.raises(BuildError, match="another format"):
        VerifyBackend("cpu").verify(path=make().path, format="mxfp4", out="bf16", cases=CASES, phase=lambda _: None)


class _NoBuilder:
    """Of a builder only what judging an outcome needs."""

    cutlass_version = "4.5.0"


def judged(kernel: Kernel, chosen: list[Case], monkeypatch: pytest.MonkeyPatch, step: float = 60.0) -> tuple[Row, int]:
    monkeypatch.setattr("tileforge.verify.run.cases", lambda k, n: chosen)
    timeouts = Timeouts(step=step)
    with WorkerBench("tileforge.verify.start:backend", {"device": "cpu"}, timeouts=timeouts) as bench:
        verifier = Verifier(_NoBuilder(), bench)  # type: ignore[arg-type]
        row = verifier.judge(BuildOutcome(kernel.spec, kernel, seconds=1.5))
        return row, bench.restarts


def test_rows_of_right_wrong_and_refused_kernels(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    row, restarts = judged(make(), CASES, monkeypatch)
    assert row.ok and row.status == "right" and row.noticed == row.faults == 16 and not restarts
    assert (row.cases, row.cases_right, row.mismatches, row.how, row.verdict) == (7, 7, 0, "native", "fits")
    assert (row.stages, row.smem_bytes, row.device, row.build_s) == (3, 90112, "cpu", 1.5)
    assert "7 of 7 cases" in row.line() and "16 of 16 planted faults noticed" in row.line()
    row, _ = judged(make("next_alpha"), CASES, monkeypatch)
    assert row.status == "wrong" and row.mismatches and not row.ok and "more cases" in row.message
    row, restarts = judged(make("refuses"), CASES, monkeypatch)
    assert (row.status, restarts) == ("refused", 0) and row.message == "load: needs 12 B more than there is"


def test_a_crash_and_a_hang_cost_their_own_row_and_name_the_case(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    row, restarts = judged(make("crash"), CASES, monkeypatch)
    assert row.status == "crashed" and restarts == 1
    assert row.message.startswith("N 200, exact data: the worker died") and "SIGSEGV" in row.message
    row, restarts = judged(make("hang"), CASES[2:3], monkeypatch, step=3.0)
    assert row.status == "hung" and restarts == 1 and row.message.startswith("N 200, exact data: no answer")


def test_without_planted_faults_nothing_counts_as_right(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    row, _ = judged(make(), [CASES[-1]], monkeypatch)  # no rows, so nothing can be planted
    assert row.status == "blind" and not row.ok and "no fault was planted" in row.message


def test_how_to_run() -> None:
    assert how_to_run("sm120", "sm120") == "native"
    assert how_to_run("sm121", "sm90") == how_to_run("sm120", "sm90") == "emulated"
    assert how_to_run("sm90", "sm90") == "native"
    with pytest.raises(DeviceError, match="sm120 kernels cannot run here, on sm80: verify them on sm120 or sm90"):
        how_to_run("sm120", "sm80")
    with pytest.raises(DeviceError, match="verify them on sm90"):
        how_to_run("sm90", "sm120")


def row(tactic: str = TILE, **fields: Any) -> Row:
    values = {"arch": "sm120", "format": "nvfp4", "out": "bf16", "how": "emulated", "cutlass": "4.5.0"}
    return Row(**{**values, "tactic": tactic, "status": "right", "key": "k1", **fields})


def test_a_table_is_whole_after_every_row_and_read_back(tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    table = Table.read(path)
    table.add(row())
    table.add(row("128x32x128_c1x1_coop", key="k2", status="wrong", message="x"))
    table.add(row(key="k3"))  # the same kernel again: the newer row counts
    text = path.read_text()
    assert len(json.loads(text)["rows"]) == 2 and len(text.splitlines()) == 4
    again = Table.read(path)
    assert again.rows == table.rows
    known = again.known("k3")
    assert known is not None and known.ok and again.known("k1") is None
    again.add(replace(known, checks=0))
    assert again.known("k3") is None  # judged by other cases than today's


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"schema": 9, "rows": []}', '{"schema": 1, "rows": [{}]}'])
def test_another_file_is_refused_and_left_alone(tmp_path: Path, text: str) -> None:
    path = tmp_path / "table.json"
    path.write_text(text)
    with pytest.raises(InputError, match="name another file"):
        Table.read(path)
    assert path.read_text() == text
