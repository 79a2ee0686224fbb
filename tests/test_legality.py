"""The one validator: cases L1 to L18 from public reports, every rule at least once, and what is not known."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tileforge import legality
from tileforge.arch import ARCHS, get_arch
from tileforge.arch.spec import Shape
from tileforge.errors import InputError
from tileforge.problem import GroupedGemm
from tileforge.tactic import Tactic
from tileforge.verdict import Verdict


def verdict(text: str, format: str = "nvfp4", arch: str = "sm120", **asked: str) -> Verdict:
    return legality.check(Tactic.parse(text), arch=get_arch(arch), format=format, **asked)


@pytest.mark.parametrize(
    ("text", "format", "stage", "stages"),
    [
        pytest.param("128x128x128", "nvfp4", 18560, 4, id="L1"),
        pytest.param("128x128x256", "nvfp4", 36992, 2, id="L2"),
        pytest.param("256x128x128_coop", "nvfp4", 27776, 3, id="L3"),
        pytest.param("128x128x128", "mxfp8_mxfp4", 33920, 2, id="L7"),
    ],
)
def test_fits(text: str, format: str, stage: int, stages: int) -> None:
    from tileforge import smem

    answer = verdict(text, format)
    assert answer and answer.kind == "fits" and answer.reason == ""
    assert answer.figures["stages"] == stages
    assert answer.figures["smem_bytes"] <= answer.figures["limit_bytes"] == 101_376
    assert smem.breakdown(Tactic.parse(text), arch="sm120", format=format).stage_bytes == stage


@pytest.mark.parametrize("text", ["128x256x128", "256x128x128"])
def test_finalize_overshoots_l4(text: str) -> None:
    answer = verdict(text, epilogue="finalize")
    assert not answer
    assert (answer.kind, answer.reason) == ("over", "smem")
    assert answer.message == "needs 102,400 B of 101,376 B with 3 stages: 1,024 B over; 2 stages would fit in 74,752 B"
    assert answer.figures == {
        "stages": 3,
        "smem_bytes": 102_400,
        "limit_bytes": 101_376,
        "excess_bytes": 1_024,
        "stages_that_fit": 2,
        "smem_bytes_that_fit": 74_752,
    }
    rescued = verdict(f"{text}_coop_s2", epilogue="finalize")
    assert rescued and rescued.figures["smem_bytes"] == 74_752


@pytest.mark.parametrize(
    ("text", "format", "reason", "says"),
    [
        pytest.param("128x128x512", "nvfp4", "stages", "fewer than 2 stages: only 1 stage fits", id="L5"),
        pytest.param("128x128x64", "mxfp4", "scale_block", "2 scale factors along K, and they are stored 4", id="L6"),
        pytest.param("128x256x128", "mxfp8_mxfp4", "stages", "only 1 stage fits", id="L8a"),
        pytest.param("256x128x128", "mxfp8_mxfp4", "stages", "only 1 stage fits", id="L8b"),
        pytest.param("128x8x128_pp", "nvfp4", "pingpong_n", "needs an N tile of 16", id="L11"),
        pytest.param("128x128x128_c2x1", "nvfp4", "cluster", "multicast", id="L12"),
        pytest.param("512x512x128", "nvfp4", "stages", "only 1 stage fits", id="L13a"),
        pytest.param("512x512x128", "mxfp8_mxfp4", "stages", "not one stage fits", id="L13b"),
    ],
)  # fmt: skip
def test_illegal(text: str, format: str, reason: str, says: str) -> None:
    answer = verdict(text, format)
    assert not answer
    assert (answer.kind, answer.reason) == ("illegal", reason)
    assert says in answer.message
    assert answer.source


def test_zero_stages_stay_zero_l13() -> None:
    assert verdict("512x512x128", "mxfp8_mxfp4").figures["stages"] == 0


def test_420_has_no_scales_below_128_columns_l17() -> None:
    answer = verdict("128x32x128", cutlass="4.2.0")
    assert (answer.kind, answer.reason) == ("illegal", "tile_n")
    assert "CUTLASS 4.2.0 would store scale factors of B for 0 columns only" in answer.message
    assert verdict("128x32x128", cutlass="4.5.0")


def test_k_704_l18() -> None:
    """The problem itself says it; so does the validator, when sizes come from elsewhere."""
    with pytest.raises(InputError, match=r"K % 128 == 0.*768"):
        GroupedGemm(64, 4096, 704, 8, format="nvfp4")
    sizes = SimpleNamespace(format="nvfp4", out="bf16", n=4096, k=704)
    answer = legality.check(
        Tactic((128, 128, 128)), arch=get_arch("sm120"), format="nvfp4", problem=sizes  # type: ignore[arg-type]
    )  # fmt: skip
    assert (answer.kind, answer.reason, answer.figures["padded"]) == ("illegal", "alignment", 768)
    assert "K % 128 == 0" in answer.message and "768" in answer.message


@pytest.mark.parametrize(
    ("text", "format", "arch", "reason", "says"),
    [
        ("64x128x128", "nvfp4", "sm120", "tile_m", "blocks of 128 rows"),
        ("192x128x128", "nvfp4", "sm120", "tile_m", "only 128 would have any"),
        ("128x16x128", "nvfp4", "sm120", "tile_n", "came upstream after June 2026"),
        ("128x96x128", "nvfp4", "sm120", "tile_n", "does not divide the 128 columns"),
        ("128x192x128", "nvfp4", "sm120", "tile_n", "for 128 columns only"),
        ("128x128x72", "nvfp4", "sm120", "scale_block", "is not a multiple of the 16 elements"),
        ("128x128x128_coop_e48x32", "nvfp4", "sm120", "epilogue_tile", "does not divide"),
        ("128x128x128_coop_e32x32", "nvfp4", "sm120", "epilogue_tile", "store 64 rows at once"),
        ("128x128x128_coop_e64x8", "nvfp4", "sm120", "epilogue_tile", "store 16 columns at once"),
        ("128x128x128_coop_s1", "nvfp4", "sm120", "stages", "1 stage is fewer than 2"),
        ("128x128x128_coop_w3", "nvfp4", "sm120", "swizzle", "1, 2, 4, 8"),
        ("64x128x64_coop", "bf16", "sm90", "tile_m", "two warp groups"),
        ("96x128x64_pp", "bf16", "sm90", "tile_m", "one warp group"),
        ("128x12x64", "bf16", "sm90", "tile_n", "multiples of 8 columns"),
        ("128x24x64", "bf16", "sm90", "tile_n", "multiple of 16"),
        ("128x128x40", "bf16", "sm90", "tile_k", "takes 16 along K"),
        ("128x128x48", "fp8", "sm90", "tile_k", "takes 32 along K"),
        ("128x128x64_c3x1", "bf16", "sm90", "cluster", "powers of two"),
        ("128x128x64_c4x4", "bf16", "sm90", "cluster", "at most 8"),
        ("128x8x64_c2x1", "bf16", "sm90", "multicast", "not multiples of 8 rows"),
        ("128x128x64_coop_e64x32", "bf16", "sm90", "epilogue_tile", "M must be 128"),
        ("64x256x64_pp_e64x24", "bf16", "sm90", "epilogue_tile", "does not divide"),
        ("128x192x64_coop_e128x8", "bf16", "sm90", "epilogue_tile", "multiple of 16"),
        ("128x224x64_coop_e128x112", "bf16", "sm90", "epilogue_tile", "cuts across the 32 columns"),
        ("128x128x128_coop_w5", "bf16", "sm90", "swizzle", "1, 2, 4, 8"),
    ],
)
def test_every_rule(text: str, format: str, arch: str, reason: str, says: str) -> None:
    answer = verdict(text, format, arch)
    assert (answer.kind, answer.reason) == ("illegal", reason), answer
    assert says in answer.message
    assert "CUTLASS" in answer.source


def test_every_rule_of_every_sm_is_tested() -> None:
    """So that a rule cannot be added without a case above."""
    marks = [mark for mark in test_every_rule.pytestmark + test_illegal.pytestmark if mark.name == "parametrize"]
    broken = {getattr(value, "values", value)[0] for mark in marks for value in mark.args[1]}
    for arch in ARCHS.values():
        for rule in arch.rules:
            contexts = [legality.smem.context(arch, format, "bf16", "4.5.0", "plain", None) for format in arch.formats]
            assert any(rule.broken(Shape.of(Tactic.parse(text)), ask) for text in broken for ask in contexts), rule.code


def test_rules_come_in_order() -> None:
    """A tactic that breaks several rules is told the first: the cluster before the tile, the tile before the bytes."""
    assert verdict("64x16x72_c2x1").reason == "cluster"
    assert verdict("64x16x72").reason == "scale_block"
    assert verdict("64x16x128").reason == "tile_m"


def test_unknown_cutlass_is_unknown_and_offers_the_oracle() -> None:
    for version in ("4.3.1", "4.2.1", "5.0.0", "dev"):
        answer = verdict("128x128x128", cutlass=version)
        assert not answer
        assert (answer.kind, answer.reason) == ("unknown", "cutlass_version")
        assert version in answer.message and "oracle" in answer.message


def test_what_was_not_compared_is_unknown() -> None:
    assert verdict("384x128x128").kind == "unknown"
    assert verdict("128x128x64_c4x2", "bf16", "sm90").kind == "unknown"
    assert verdict("64x8x64_pp", "bf16", "sm90").kind == "unknown"
    assert verdict("128x128x64", "bf16", "sm90", epilogue="finalize").kind == "unknown"


def test_over_even_with_two_stages() -> None:
    answer = verdict("256x256x256_coop_s2", "mxfp8_mxfp4")
    assert answer.kind == "over" and "no number of stages from 2 fits" in answer.message
    assert "stages_that_fit" not in answer.figures


def test_formats_belong_to_an_sm() -> None:
    for arch, format in (("sm120", "bf16"), ("sm120", "fp8"), ("sm90", "nvfp4"), ("sm121", "bf16")):
        answer = verdict("128x128x128", format, arch)
        assert (answer.kind, answer.reason) == ("illegal", "format")
        assert arch in answer.message


def test_problem_must_be_the_one_asked_about() -> None:
    problem = GroupedGemm(64, 4096, 6144, 8, format="nvfp4")
    sm120 = get_arch("sm120")
    assert legality.check(Tactic((128, 128, 128)), arch=sm120, format="nvfp4", problem=problem)
    assert legality.check(Tactic((128, 128, 128)), arch=sm120, format="mxfp4", problem=problem).reason == "format"
    other = legality.check(Tactic((128, 128, 128)), arch=sm120, format="nvfp4", out="fp16", problem=problem)
    assert other.reason == "format"


def test_runtime_fields_change_nothing_else() -> None:
    assert verdict("128x64x256_coop_rm_w4") == verdict("128x64x256")


def test_names_nobody_knows() -> None:
    for asked in ({"out": "int8"}, {"epilogue": "silu"}):
        with pytest.raises(InputError):
            verdict("128x128x128", **asked)
    with pytest.raises(InputError, match="sm90, sm120, sm121"):
        get_arch("sm100")


def test_a_verdict_is_plain_data() -> None:
    fields = verdict("128x256x128", epilogue="finalize").as_dict()
    assert fields["verdict"] == "over" and fields["excess_bytes"] == 1024 and fields["reason"] == "smem"
