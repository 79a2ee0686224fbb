"""tileforge.smem against what the compiler said, to the byte, and against what is known of these kernels."""

from __future__ import annotations

import pytest

from tileforge import legality, smem
from tileforge.arch import get_arch
from tileforge.errors import InputError
from tileforge.tactic import Tactic


def operands(epilogue: str) -> dict[str, str]:
    return {"c": "bf16"} if epilogue == "c" else {"epilogue": epilogue}


def published(format: str, m: int, n: int, k: int, extra: int, tensors: int) -> tuple[int, int, int]:
    """A closed form that was published for 4.5.0 and 16-bit output: stage, stages, total.

    It was fitted to 44 compiled sizes, all with mainloops of whole KiB; those of mxfp4 and mxfp8_mxfp4 with N = 256
    or M = 256 are not, and the compiler rounds them up before the epilogue as well.
    """
    bits, vector = {"nvfp4": (4, 16), "mxfp4": (4, 32), "mxfp8_mxfp4": (8, 32)}[format]
    stage = bits * m * k // 8 + bits * n * k // 8 + 128 + m * k // vector + max(n, 128) * k // vector
    stages = (101376 - 432 - extra) // stage
    mainloop = -(-stages * (stage - 128) // 1024) * 1024
    return stage, stages, -(-(mainloop + tensors) // 1024) * 1024 + 2048


@pytest.mark.parametrize("format", ["nvfp4", "mxfp4", "mxfp8_mxfp4"])
@pytest.mark.parametrize(
    ("epilogue", "swap_ab", "extra", "tensors"),
    [
        ("plain", False, 9216, 8704),
        ("plain", True, 10240, 9216),
        ("c", False, 13312, 12800),
        ("c", True, 14336, 13312),
        ("finalize", False, 17408, 16896),
        ("finalize", True, 18432, 17408),
    ],
)
def test_closed_form_is_a_special_case(format: str, epilogue: str, swap_ab: bool, extra: int, tensors: int) -> None:
    for m in (128, 256):
        for n in (32, 64, 128, 256):
            for k in (128, 256):
                ours = smem.breakdown(
                    Tactic((m, n, k), swap_ab=swap_ab),
                    arch="sm120",
                    format=format,
                    **operands(epilogue),
                )
                assert (ours.stage_bytes, ours.stages, ours.total) == published(format, m, n, k, extra, tensors)


def test_sm121_is_sm120() -> None:
    ours = [smem.breakdown(Tactic((128, 64, 256)), arch=arch, format="nvfp4") for arch in ("sm120", "sm121")]
    assert ours[0] == ours[1]


def test_420_sets_nothing_aside() -> None:
    """4.2.0 counts stages without the 432 B that 4.5.0 reserves, so it overshoots where 4.5.0 does not."""
    tactic = Tactic((128, 256, 256), epilogue_tile=(64, 64))
    old, new = (smem.breakdown(tactic, arch="sm120", format="mxfp4", cutlass=v, out="fp32") for v in ("4.2.0", "4.5.0"))
    room = old.limit - old.epilogue
    assert old.stages == room // old.stage_bytes
    assert new.stages == (room - 432) // new.stage_bytes


def test_most_stages_is_the_most_that_fit() -> None:
    for m, n, k in ((128, 32, 128), (128, 256, 128), (256, 128, 128), (128, 128, 256)):
        for epilogue in ("plain", "finalize"):
            asked = {"arch": "sm120", "format": "nvfp4", "epilogue": epilogue}
            most = smem.breakdown(Tactic((m, n, k)), **asked).fit_stages
            assert smem.breakdown(Tactic((m, n, k), stages=most), **asked).excess == 0
            assert smem.breakdown(Tactic((m, n, k), stages=most + 1), **asked).excess > 0


def test_case_l4_worked_example() -> None:
    """128x256x128 with finalize: 102,400 of 101,376 B, and where they go."""
    ours = smem.breakdown(Tactic((128, 256, 128)), arch="sm120", format="nvfp4", epilogue="finalize")
    assert (ours.stages, ours.total, ours.limit, ours.excess) == (3, 102400, 101376, 1024)
    assert (ours.fit_stages, ours.fit_total) == (2, 74752)
    assert ours.terms == {
        "A tiles": 3 * 8192,
        "B tiles": 3 * 16384,
        "A scales": 3 * 1024,
        "B scales": 3 * 2048,
        "epilogue C": 8192,
        "epilogue D": 8192,
        "bias row": 256 * 2,
        "pipelines": 16 * (8 + 3 + 2) + 16,
        "tile scheduler": 128,
        "tensor maps": 7 * 128,
        "alignment": 102400 - 3 * 27648 - 16384 - 512 - 224 - 128 - 896,
    }


@pytest.mark.parametrize("size", [102_400, 120_832, 141_312, 117_760, 103_424])
def test_raw_requests_l9_l14(size: int) -> None:
    verdict = smem.request(size, "sm120")
    assert (verdict.kind, verdict.reason) == ("over", "smem")
    assert verdict.figures["excess_bytes"] == size - 101_376
    assert f"{size:,} B of 101,376 B: {size - 101_376:,} B over" in verdict.message


def test_raw_request_at_the_limit_fits() -> None:
    assert smem.request(101_376, "sm120")
    assert not smem.request(101_377, "sm120")
    assert smem.request(232_448, "sm90") and not smem.request(232_449, "sm90")
    with pytest.raises(InputError):
        smem.request(-1, "sm120")


def test_tensors_alone_at_the_limit_l10() -> None:
    """Two stages of 256x128x128 at one byte an element are exactly 101,376 B of tensors: barriers come on top."""
    tactic = Tactic((256, 128, 128), stages=2)
    ours = smem.breakdown(tactic, arch="sm120", format="mxfp8_mxfp4")
    assert ours.mainloop == 101_376
    verdict = legality.check(tactic, arch=get_arch("sm120"), format="mxfp8_mxfp4")
    assert verdict.kind == "over" and verdict.figures["smem_bytes"] == ours.total > 101_376


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"cutlass": "4.3.0"}, "ask the compiler"),
        ({"format": "bf16"}, "sm120 has no bf16"),
        ({"arch": "sm100"}, "sm90, sm120, sm121"),
        ({"out": "fp8"}, "bf16, fp16, fp32"),
        ({"epilogue": "gelu"}, "plain, finalize"),
        ({"c": "fp8"}, "C operand"),
        ({"epilogue": "finalize", "c": "fp32"}, "of the output's type bf16"),
        ({"arch": "sm90", "format": "bf16", "epilogue": "finalize"}, "not known"),
    ],
)
def test_unknown_names_are_refused(asked: dict[str, str], says: str) -> None:
    with pytest.raises(InputError, match=says):
        smem.breakdown(Tactic((128, 128, 128)), **{"arch": "sm120", "format": "nvfp4", **asked})


def test_an_epilogue_tile_without_a_layout_is_refused() -> None:
    with pytest.raises(InputError, match="multiple of 16 bytes"):
        smem.breakdown(Tactic((128, 128, 128), epilogue_tile=(64, 4)), arch="sm120", format="nvfp4")
