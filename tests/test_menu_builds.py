"""The default SM120 menus, compiled in full once: the recorded table is of today's menu, and says what we say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tileforge import smem, space
from tileforge.arch import get_arch
from tileforge.problem import GroupedGemm
from tileforge.tactic import Tactic

TABLE: dict[str, Any] = json.loads((Path(__file__).parent / "data" / "menu_builds_sm120.json").read_text())
REGISTERS_PER_SM = 65_536


def test_every_kernel_of_the_menus_was_compiled() -> None:
    built = {(row["format"], row["tactic"]) for row in TABLE["rows"] if not row["error"]}
    for name in get_arch("sm120").formats:
        problem = GroupedGemm(512, 4096, 6144, 32, format=name)
        menu = {(name, tactic.kernel_id) for tactic in space.menu(problem, get_arch("sm120"), TABLE["cutlass"])}
        assert menu <= built
    assert len(built) == TABLE["kernels_of_the_menus"] >= 60
    tactics = [Tactic.parse(name) for _, name in built]
    assert any(t.swap_ab and t.tile[1] == 32 for t in tactics) and any(t.tile[2] == 256 for t in tactics)
    assert any(t.schedule == "pingpong" for t in tactics)
    assert {3, 4, 5, 6, 7} <= {row["stages"] for row in TABLE["rows"]}


def test_the_compiled_kernels_have_the_estimated_stages_and_bytes() -> None:
    for row in TABLE["rows"]:
        ours = smem.breakdown(Tactic.parse(row["tactic"]), arch="sm120", format=row["format"], cutlass=TABLE["cutlass"])
        assert (row["stages"], row["smem_bytes"], row["threads"]) == (ours.stages, ours.total, ours.threads), row


def test_registers_allow_one_block_on_an_sm() -> None:
    """Whatever shared memory would allow: docs/shared_memory.md says so."""
    for row in TABLE["rows"]:
        assert REGISTERS_PER_SM // (row["registers"] * row["threads"]) == 1, row
