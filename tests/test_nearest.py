"""The tactics that are offered in place of one that may not run: legal, and as near as there are."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace
from typing import Any

import pytest

from tileforge import legality, smem, space
from tileforge.arch import ARCHS, get_arch
from tileforge.arch.spec import accumulators
from tileforge.errors import InputError
from tileforge.space import Near
from tileforge.tactic import RASTERS, SWIZZLES, Tactic


def near(text: str, format: str = "nvfp4", arch: str = "sm120", count: int = 3, **asked: Any) -> list[Near]:
    return space.nearest(Tactic.parse(text), arch=get_arch(arch), format=format, count=count, **asked)


def ids(found: list[Near]) -> list[str]:
    return [each.tactic.id for each in found]


@pytest.mark.parametrize(
    ("text", "asked", "first", "changes"),
    [
        pytest.param(
            "128x256x128", {"epilogue": "finalize"}, "128x256x128_c1x1_coop_s2", ["automatic 3 stages to 2"], id="L4"
        ),
        pytest.param("128x128x512", {}, "128x128x256_c1x1_coop", ["K tile 512 to 256"], id="L5"),
        pytest.param("128x128x64", {"format": "mxfp4"}, "128x128x128_c1x1_coop", ["K tile 64 to 128"], id="L6"),
        pytest.param("128x256x128", {"format": "mxfp8_mxfp4"}, "128x128x128_c1x1_coop", ["N tile 256 to 128"], id="L8"),
        pytest.param("256x128x128", {"format": "mxfp8_mxfp4"}, "256x64x128_c1x1_coop", ["N tile 128 to 64"], id="L8_M"),
        pytest.param("128x8x128_pp", {}, "128x32x128_c1x1_pp", ["N tile 8 to 32"], id="L11"),
        pytest.param("128x128x128_c2x1", {}, "128x128x128_c1x1_coop", ["cluster 2x1 to 1x1"], id="L12"),
        pytest.param(
            "512x512x128", {}, "128x256x128_c1x1_coop", ["N tile 512 to 256", "M tile 512 to 128"], id="L13"
        ),
        pytest.param("128x32x128", {"cutlass": "4.2.0"}, "128x128x128_c1x1_coop", ["N tile 32 to 128"], id="L17"),
        ("64x128x128", {}, "128x128x128_c1x1_coop", ["M tile 64 to 128"]),
        ("128x128x128_coop_s1", {}, "128x128x128_c1x1_coop_s2", ["1 stages to 2"]),
        ("128x128x128_coop_s9", {}, "128x128x128_c1x1_coop", ["9 stages to 4"]),
        ("128x32x128_coop_e64x64", {}, "128x32x128_c1x1_coop", ["epilogue tile 64x64 to automatic"]),
        ("128x128x128_coop_w3", {}, "128x128x128_c1x1_coop_w2", ["swizzle 3 to 2"]),
        ("384x128x128", {}, "256x128x128_c1x1_coop", ["M tile 384 to 256"]),
        ("64x128x64", {"format": "bf16", "arch": "sm90"}, "64x128x64_c1x1_pp", ["cooperative to pingpong"]),
        ("128x128x64_c3x1", {"format": "bf16", "arch": "sm90"}, "128x128x64_c1x1_coop", ["cluster 3x1 to 1x1"]),
        ("64x16x72_c2x1", {}, "128x32x64_c1x1_coop",
         ["cluster 2x1 to 1x1", "K tile 72 to 64", "N tile 16 to 32", "M tile 64 to 128"]),
    ],
)  # fmt: skip
def test_the_least_change(text: str, asked: dict[str, Any], first: str, changes: list[str]) -> None:
    found = near(text, **asked)
    assert (found[0].tactic.id, list(found[0].changes)) == (first, changes)
    assert len(found) == len(set(ids(found))) <= 3


def test_stages_before_the_epilogue_tile_before_the_tile_l4() -> None:
    found = near("128x256x128", epilogue="finalize")
    assert [each.fields for each in found] == [("stages",), ("epilogue_tile",), ("K",)]
    assert [each.verdict.figures["smem_bytes"] for each in found] == [74_752, 94_208, 89_088]
    assert [each.difference for each in found] == [74_752 - 102_400, 94_208 - 102_400, 89_088 - 102_400]


def test_no_bytes_to_compare_with_what_breaks_a_rule() -> None:
    assert all(each.difference is None for each in near("64x128x128"))


def test_of_one_field_the_smaller_step_first() -> None:
    assert ids(near("128x8x128_pp")) == ["128x32x128_c1x1_pp", "128x64x128_c1x1_pp", "128x128x128_c1x1_pp"]


def differing(one: Tactic, other: Tactic) -> int:
    fields = [*zip(one.tile, other.tile, strict=True), (one.cluster, other.cluster), (one.schedule, other.schedule)]
    fields += [(one.epilogue_tile, other.epilogue_tile), (one.stages, other.stages), (one.swizzle, other.swizzle)]
    return sum(mine != theirs for mine, theirs in fields)


@pytest.mark.parametrize(
    ("arch", "format", "asked"),
    [
        ("sm120", "nvfp4", {"epilogue": "finalize"}),
        ("sm120", "mxfp4", {"cutlass": "4.2.0", "c": "fp32"}),
        ("sm120", "mxfp8_mxfp4", {"out": "fp32"}),
        ("sm90", "bf16", {}),
    ],
)
def test_nothing_in_the_space_is_nearer(arch: str, format: str, asked: dict[str, Any]) -> None:
    """Against the whole space: what is offered is legal, and no legal tactic differs in fewer fields."""
    spec = get_arch(arch)
    legal = [
        each
        for each in space.enumerate_tactics(spec, format, asked.get("cutlass", "4.5.0"), **without_cutlass(asked))
        if legality.check(each, arch=spec, format=format, **asked)
    ]
    random_ = random.Random(3)
    for tactic in drawn(random_, 60):
        verdict = legality.check(tactic, arch=spec, format=format, **asked)
        found = space.nearest(tactic, arch=spec, format=format, **asked)
        if verdict:
            assert found == []
            continue
        assert len(found) == 3, tactic
        for each in found:
            assert legality.check(each.tactic, arch=spec, format=format, **asked), (tactic, each.tactic)
            assert (each.tactic.swap_ab, each.tactic.raster) == (tactic.swap_ab, tactic.raster)
            assert len(each.fields) == len(each.changes) >= 1
        # The space keeps run-time fields at their defaults and swaps operands both ways.
        same = [replace(each, raster=tactic.raster) for each in legal if each.swap_ab == tactic.swap_ab]
        wrong_swizzle = tactic.swizzle not in SWIZZLES
        least = min(differing(tactic, replace(each, swizzle=tactic.swizzle)) for each in same) + wrong_swizzle
        assert differing(tactic, found[0].tactic) <= least, (tactic.id, ids(found))


def without_cutlass(asked: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in asked.items() if name != "cutlass"}


def drawn(random_: random.Random, count: int) -> list[Tactic]:
    sizes = (8, 16, 32, 64, 72, 96, 128, 192, 256, 512)
    return [
        Tactic(
            (random_.choice(sizes), random_.choice(sizes), random_.choice(sizes)),
            random_.choice([(1, 1), (2, 1), (3, 1)]),
            random_.choice(["cooperative", "pingpong"]),
            random_.choice([None, 1, 2, 5, 40]),
            random_.choice([None, (64, 32), (48, 8), (128, 64)]),
            random_.random() < 0.5,
            random_.choice(list(RASTERS)),
            random_.choice([1, 3, 4]),
        )
        for _ in range(count)
    ]


def test_tiles_that_would_spill_are_not_offered() -> None:
    most = ARCHS["sm120"].menus["nvfp4"].accumulators
    for m, n, schedule in itertools.product((512, 256), (512, 256), ("coop", "pp")):
        for each in near(f"{m}x{n}x256_{schedule}", count=9):
            changed = {"M", "N"} & set(each.fields)
            assert accumulators(each.tactic) <= most or not changed, each.tactic


def test_the_number_of_stages_is_the_one_nearest_to_what_was_asked_for() -> None:
    for asked, taken in ((1, 2), (5, 4), (999, 4)):
        found = near(f"128x128x128_coop_s{asked}")[0]
        assert found.verdict.figures["stages"] == taken
        # The count that is the automatic one goes by that name: it is the same kernel.
        assert found.tactic.stages == (None if taken == 4 else taken)


def test_nothing_where_nothing_is_known_or_wanted() -> None:
    assert near("128x128x128") == [], "it is legal"
    assert near("64x128x128", count=0) == []
    assert near("64x128x128", cutlass="9.9.9") == []
    assert near("64x128x128", "bf16") == []
    assert near("32x128x64", "bf16", "sm90", epilogue="finalize") == []
    with pytest.raises(InputError, match="unknown output type"):
        near("64x128x128", out="int8")


def test_it_is_plain_data() -> None:
    found = near("128x256x128", epilogue="finalize")[0].as_dict()
    assert found == {
        "tactic": "128x256x128_c1x1_coop_s2", "stages": 2, "smem_bytes": 74_752, "difference_bytes": -27_648,
        "fields": ["stages"], "changes": ["automatic 3 stages to 2"],
    }  # fmt: skip
    assert (
        smem.breakdown(Tactic.parse(found["tactic"]), arch="sm120", format="nvfp4", epilogue="finalize").total == 74_752
    )
