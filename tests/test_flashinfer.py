"""Judged by FlashInfer itself, installed (`make test-flashinfer`): its headers, its entry point's own check."""

from __future__ import annotations

import itertools
import subprocess
import sys
from typing import Any

import pytest

from tileforge import GroupedGemm, Tactic, legality
from tileforge.arch import SM120
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
