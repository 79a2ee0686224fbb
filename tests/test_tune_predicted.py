"""``tileforge.tune`` without a GPU: predictions that never pass for times, and a compiler that has its say."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fake_tune import (
    H200Bench,
    moe,
    no_gpu_here,  # noqa: F401
    predicted,
)

from tileforge import smem
from tileforge.db import TuningDB
from tileforge.errors import BuildError, ToolchainError
from tileforge.problem import GroupedGemm
from tileforge.search import Event
from tileforge.tactic import DEFAULT
from tileforge.toolchain.oracle import OracleAnswer
from tileforge.toolchain.spec import KernelSpec
from tileforge.tuning import tools as tools_module
from tileforge.tuning import tune

# -- predicted -------------------------------------------------------------------------------------------------


def test_predictions_are_never_times(tmp_path: Path) -> None:
    results = predicted([moe(rows, "nvfp4") for rows in (1, 16, 64)])
    for result in results:
        assert result.provenance == "predicted" and result.gpu is not None and result.gpu.sku == "rtx_pro_6000"
        assert result.time_us is None and result.default_us is None
        assert result.predicted_us and result.default_predicted_us and result.speedup and result.speedup > 1
        assert result.command.startswith("tileforge tune --gpu rtx_pro_6000") and "--timer gpu" in result.command
        values = json.loads(json.dumps(result.as_dict()))
        assert values["time_us"] is None and values["provenance"] == "predicted"
    records = list(TuningDB(tmp_path / "tuning_db").records())
    assert [record.provenance for record in records] == ["predicted"] * 3
    assert all(record.time_us is None and record.predicted_us for record in records)
    text = (tmp_path / "tuning_db" / "rtx_pro_6000" / "nvfp4_bf16_n4096_k6144_g32.yaml").read_text()
    assert "time_us" not in text.replace("predicted_us", "")
    decode = results[0].tactic
    assert decode is not None and decode.swap_ab and decode.tile[1] <= 32


def test_L16_one_row_a_group_gets_a_narrow_swapped_tile() -> None:
    (result,) = predicted(GroupedGemm(256, 1024, 3072, 256, "nvfp4"), save=False)
    assert result.tactic is not None and result.tactic.swap_ab and result.tactic.tile[1] <= 32


def test_the_usual_gpu_of_a_format_is_predicted_for() -> None:
    results = predicted([moe(16, "nvfp4"), moe(16, "bf16")], save=False)
    assert [result.gpu.sku for result in results if result.gpu] == ["rtx_pro_6000", "h200"]
    (spark,) = predicted(moe(16, "mxfp4"), gpu="gb10", save=False)
    assert spark.gpu is not None and spark.gpu.arch == "sm121"


class Oracle:
    """Answers for the compiler: what the rules say, but for those in ``refused`` and ``over``."""

    def __init__(self, refused: Iterable[str] = (), over: Iterable[str] = (), other: Iterable[str] = ()) -> None:
        self.refused, self.over, self.other = set(refused), set(over), set(other)
        self.asked: list[list[KernelSpec]] = []

    def __call__(self, specs: Iterable[KernelSpec], toolchain: Any = None) -> dict[KernelSpec, OracleAnswer]:
        specs = list(specs)
        self.asked.append(specs)
        return {spec: self.answer(spec) for spec in specs}

    def answer(self, spec: KernelSpec) -> OracleAnswer:
        if spec.tactic.id in self.refused:
            return OracleAnswer(error="static assertion failed")
        ours = smem.breakdown(spec.tactic, arch=spec.arch, format=spec.format, out=spec.out)
        if spec.tactic.id in self.over:
            return OracleAnswer(stages=ours.stages, smem_bytes=102_400)
        return OracleAnswer(stages=ours.stages + (spec.tactic.id in self.other), smem_bytes=ours.total)


@pytest.fixture
def oracle(monkeypatch: pytest.MonkeyPatch) -> Callable[[Oracle], Oracle]:
    def put(found: Oracle) -> Oracle:
        monkeypatch.setattr(tools_module, "ask", found)
        monkeypatch.setattr(tools_module, "find_compiler", lambda: SimpleNamespace(build="13.0.88"))
        return found

    return put


def test_the_compiler_confirms_the_leaders(oracle: Callable[[Oracle], Oracle]) -> None:
    asked = oracle(Oracle()).asked
    events: list[Event] = []
    results = predicted([moe(1, "nvfp4"), moe(16, "nvfp4")], confirm=True, save=False, on_event=events.append)
    assert len(asked[0]) == len(set(asked[0])) >= 5  # the leaders of both problems and the default, in one question
    assert any("asking the compiler" in event.message for event in events)
    for result in results:
        said = {each.tactic: each for each in result.confirmed}
        assert result.tactic in said and DEFAULT in said
        ours = smem.breakdown(DEFAULT, arch="sm120", format="nvfp4")
        assert (said[DEFAULT].stages, said[DEFAULT].smem_bytes) == (ours.stages, ours.total)
        assert not result.notes


@pytest.mark.parametrize("way", ["refused", "over"])
def test_leaders_that_the_compiler_refuses_are_passed_over(oracle: Callable[[Oracle], Oracle], way: str) -> None:
    oracle(Oracle())
    (first,) = predicted(moe(16, "nvfp4"), confirm=True, save=False)
    bad = [each.tactic.id for each in first.confirmed if each.tactic != DEFAULT]
    assert first.tactic is not None and len(bad) == 4
    oracle(Oracle(**{way: bad}))  # type: ignore[arg-type]
    (second,) = predicted(moe(16, "nvfp4"), confirm=True, save=False)
    assert second.tactic is not None and second.tactic.id not in bad
    assert sum("the compiler refuses" in note for note in second.notes) == 4


def test_a_compiler_that_disagrees_with_the_rules_is_believed_and_said(oracle: Callable[[Oracle], Oracle]) -> None:
    oracle(Oracle(other=[DEFAULT.id]))
    (result,) = predicted(moe(16, "nvfp4"), confirm=True, save=False)
    assert any(note.startswith(DEFAULT.id) and "please report" in note for note in result.notes)


def test_without_a_compiler_it_says_that_nothing_was_confirmed(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> Any:
        raise ToolchainError("no nvcc found: pip install 'tileforge[toolchain]'")

    monkeypatch.setattr(tools_module, "find_compiler", none)
    (result,) = predicted(moe(16, "nvfp4"), confirm=True, save=False)
    assert result.provenance == "predicted" and result.confirmed == ()
    assert [note for note in result.notes if "not confirmed by the compiler: no nvcc found" in note]


def test_without_cutlass_the_rules_of_the_newest_are_assumed(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: Any) -> Any:
        raise ToolchainError("no CUTLASS headers found: run `tileforge toolchain fetch-headers`")

    monkeypatch.setattr(tools_module, "find_cutlass", none)
    (result,) = predicted(moe(16, "nvfp4"), cutlass=None, save=False)
    assert any("rules of CUTLASS 4.5.0 assumed" in note for note in result.notes)
    monkeypatch.setattr("tileforge.toolchain.build.find_cutlass", none)
    with pytest.raises(BuildError, match="nothing here can build them: no CUTLASS"):
        tune(moe(16), bench=H200Bench(), save=False)
    with pytest.raises(ToolchainError, match="CUTLASS 4.2.1 is not here"):
        tune(moe(16), bench=H200Bench(), save=False, cutlass="4.2.1")


def test_older_cutlass_has_no_narrow_block_scaled_tiles() -> None:
    (result,) = predicted(moe(16, "nvfp4"), cutlass="4.2.0", save=False)
    assert result.tactic is not None and result.tactic.tile[1] >= 128
