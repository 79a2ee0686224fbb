"""Judged by FlashInfer itself, installed (`make test-flashinfer`): its headers, its entry point's own check."""

from __future__ import annotations

import importlib.util
import itertools
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tileforge import GroupedGemm, Tactic, legality
from tileforge.arch import SM120
from tileforge.errors import ToolchainError
from tileforge.interop.flashinfer_tactics import tactics
from tileforge.toolchain.compiler import find_compiler
from tileforge.toolchain.fetch import DEFAULT_VERSION

pytestmark = pytest.mark.flashinfer
torch = pytest.importorskip("torch")

#: The headers of FlashInfer 0.7.4's wheel: what `tileforge toolchain fetch-headers` stores must be the same.
DIGEST = "cb0c69455636"
#: Every tactic that its nvfp4 group GEMM takes, found by asking it.
TILES = list(itertools.product((64, 128, 256), (8, 16, 32, 64, 128, 256), (64, 128, 256)))


def accepted_by_flashinfer(problem: GroupedGemm, tile: tuple[int, int, int], swap_ab: bool) -> bool:
    """FlashInfer's own check of our operands with this tile."""
    from flashinfer.gemm import gemm_base

    from tileforge.measure.inputs import make_inputs

    inputs = make_inputs(problem, torch.device("cpu"))
    operands = inputs.sets[0]
    try:
        answer: Any = gemm_base._check_group_gemm_nvfp4_nt_groupwise_problem_size(
            operands.a,
            operands.b.view(problem.groups, problem.n, problem.k // 2),
            operands.sfa,
            operands.sfb,
            inputs.offsets,
            inputs.alpha,
            *tile,
            swap_ab,
            out=operands.output.rows,
        )
    except ValueError as error:
        assert "tile_" in str(error), f"our operands are refused: {error}"
        return False
    return bool(answer)


def test_its_headers_are_found_without_importing_it() -> None:
    code = (
        "import sys; from tileforge.toolchain import find_cutlass; found = find_cutlass(); "
        "print(found.version, found.digest, found.origin, 'flashinfer' in sys.modules, 'torch' in sys.modules)"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert answer[:2] == ["4.5.0", DIGEST], answer
    assert answer[-2:] == ["False", "False"], "finding the headers imported FlashInfer or torch"


def test_the_installed_version_is_the_pinned_one() -> None:
    from importlib.metadata import version

    assert version("flashinfer-python") == DEFAULT_VERSION


def test_it_takes_our_operands_and_its_tactics_are_legal_here() -> None:
    problem = GroupedGemm(24, 136, 256, 3, "nvfp4", routing="rows:4,0,20")
    taken = [
        (tile, swap_ab)
        for tile, swap_ab in itertools.product(TILES, (False, True))
        if accepted_by_flashinfer(problem, tile, swap_ab)
    ]
    assert len(taken) == 12, taken
    for tile, swap_ab in taken:
        verdict = legality.check(Tactic(tile, swap_ab=swap_ab), arch=SM120, format="nvfp4", cutlass="4.5.0")
        assert verdict, f"{tile} swap {swap_ab}: {verdict.message}"


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """tests/data/record_flashinfer_tactics.py, which reads and compiles FlashInfer's sources."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent / "data"))
    return importlib.import_module("record_flashinfer_tactics")


@pytest.fixture
def package() -> Path:
    spec = importlib.util.find_spec("flashinfer")
    assert spec is not None
    assert spec.submodule_search_locations
    return Path(spec.submodule_search_locations[0])


def test_the_kernels_that_it_compiles_are_those_we_list(recorder: ModuleType, package: Path) -> None:
    """Its own generator of MoE kernels and its templates of group GEMMs, as installed."""
    formats, outs = ("nvfp4", "mxfp8_mxfp4"), ("bf16", "fp16")
    moe = {
        ("cutlass_fused_moe", format, out, "x".join(map(str, t.tile)), t.swap_ab, t.epilogue)
        for format, out in itertools.product(formats, outs)
        for t in tactics(format, out, DEFAULT_VERSION)
    }
    assert recorder.generated(package) == moe
    groups = {(r["entry"], r["format"], tuple(r["tile"]), r["swap_ab"]) for r in recorder.group_gemms(package)}
    ours = [t for format in formats for t in tactics(format, version=DEFAULT_VERSION, entry="group_gemm")]
    assert {(t.gemm, t.format, t.tile, t.swap_ab) for t in ours} == groups
    assert len(groups) == 12 + 6


def test_its_own_code_lists_the_positions_that_we_give(recorder: ModuleType, package: Path) -> None:
    try:
        compiler = find_compiler()
    except ToolchainError as error:
        pytest.skip(f"needs nvcc: {error}")
    listed = recorder.moe_lists(package, compiler)
    for format, counts in (("nvfp4", (16, 32)), ("mxfp8_mxfp4", (6, 12))):
        rows = [row for row in listed if row["format"] == format]
        assert tuple(sum(row["gemm"] == gemm for row in rows) for gemm in ("gemm1", "gemm2")) == counts
        assert [(r["gemm"], r["position"], tuple(r["tile"]), r["swap_ab"], r["epilogue"]) for r in rows] == [
            (t.gemm, t.position, t.tile, t.swap_ab, t.epilogue) for t in tactics(format, version=DEFAULT_VERSION)
        ]
