"""The space: what is enumerated, what is pruned and how that is told, and the menu."""

from __future__ import annotations

import time
from collections import Counter

import pytest

from tileforge import legality, smem, space
from tileforge.arch import get_arch
from tileforge.errors import InputError, NoLegalTacticError
from tileforge.problem import GroupedGemm
from tileforge.tactic import DEFAULT, Tactic

EVERY = [("sm120", "nvfp4"), ("sm120", "mxfp4"), ("sm120", "mxfp8_mxfp4"), ("sm90", "bf16"), ("sm90", "fp8")]


def problem(format: str = "nvfp4", m: int = 512) -> GroupedGemm:
    return GroupedGemm(m, 4096, 6144, 32, format=format)


@pytest.mark.parametrize(("arch", "format"), EVERY)
def test_every_tactic_once_and_with_its_runtime_defaults(arch: str, format: str) -> None:
    tactics = list(space.enumerate_tactics(get_arch(arch), format))
    assert len({tactic.id for tactic in tactics}) == len(tactics) > 100
    assert all(tactic == tactic.compile_time() for tactic in tactics)
    assert tactics == list(space.enumerate_tactics(get_arch(arch), format)), "the order is fixed"


@pytest.mark.parametrize(("arch", "format"), EVERY)
def test_no_two_tactics_are_the_same_kernel(arch: str, format: str) -> None:
    """An explicit count equal to the automatic one, or the automatic epilogue tile by name, is the same kernel."""
    seen: Counter[tuple[object, ...]] = Counter()
    for tactic in space.prune(problem(format), get_arch(arch)).legal:
        ours = smem.breakdown(tactic, arch=arch, format=format)
        seen[tactic.tile, tactic.cluster, tactic.schedule, tactic.swap_ab, ours.stages, ours.epilogue_tile] += 1
    assert max(seen.values()) == 1


def test_the_menu_of_fields_is_covered() -> None:
    legal = space.prune(problem(), get_arch("sm120")).legal
    assert {t.tile[0] for t in legal} == {128, 256}
    assert {t.tile[1] for t in legal} == {32, 64, 128, 256}
    assert {t.tile[2] for t in legal} == {64, 128, 256}
    assert {t.schedule for t in legal} == {"cooperative", "pingpong"}
    assert {t.swap_ab for t in legal} == {False, True}
    assert {t.stages for t in legal} == {None, 2, 3, 4, 5, 6, 7, 8}
    assert {t.cluster for t in space.prune(problem("bf16"), get_arch("sm90")).legal} == {(1, 1), (2, 1), (1, 2)}


def test_explicit_stages_end_at_what_fits() -> None:
    for tactic in space.enumerate_tactics(get_arch("sm120"), "nvfp4"):
        if tactic.stages is not None:
            assert legality.check(tactic, arch=get_arch("sm120"), format="nvfp4"), tactic


def test_where_automatic_overshoots_the_count_that_fits_is_there() -> None:
    """FINALIZE on 128x256x128: 3 automatic stages are over, 2 are the rescue."""
    tactics = list(space.enumerate_tactics(get_arch("sm120"), "nvfp4", epilogue="finalize"))
    tile = [t for t in tactics if t == Tactic((128, 256, 128), stages=t.stages)]
    assert [t.stages for t in tile] == [None, 2]


def test_runtime_variants() -> None:
    variants = space.runtime_variants(Tactic((128, 64, 256), swap_ab=True))
    assert len(variants) == len(set(variants)) == 12
    assert variants[0] == Tactic((128, 64, 256), swap_ab=True)
    assert {v.compile_time() for v in variants} == {variants[0]}


def test_summary_is_the_one_line() -> None:
    tactics = ["128x128x128", "128x128x64_coop_s20", "128x128x72", "64x128x128", "192x128x128", "128x128x128_coop_s5"]
    pruned = space.prune(problem(), get_arch("sm120"), tactics=[Tactic.parse(text) for text in tactics])
    # 5 stages of 128x128x128 take 103,424 B: 5 x 18,432 + 8,704, rounded up to 1,024, and 2,048
    assert pruned.summary() == (
        "1 legal of 6: 3 illegal (tile M 2, scale block 1), 2 over shared memory (closest: 2,048 B)"
    )
    assert pruned.closest is not None and pruned.closest[0] == Tactic((128, 128, 128), stages=5)
    assert pruned.legal == [Tactic((128, 128, 128))]
    assert pruned.dropped == {"illegal": {"tile_m": 2, "scale_block": 1}, "over": {"smem": 2}}


def test_summary_when_nothing_is_dropped() -> None:
    assert space.prune(problem(), get_arch("sm120"), tactics=[DEFAULT]).summary() == "1 legal of 1"


def test_one_reason_is_not_counted_twice() -> None:
    tactics = [Tactic((128, 128, 64)), DEFAULT]
    pruned = space.prune(problem("mxfp4"), get_arch("sm120"), tactics=tactics)
    assert pruned.summary() == "1 legal of 2: 1 illegal (scale block)"


def test_nothing_left_is_an_error_with_everything_in_it_l15() -> None:
    tactics = [Tactic((128, 128, 512)), Tactic((128, 128, 128), stages=5), Tactic((128, 256, 128), stages=9)]
    with pytest.raises(NoLegalTacticError) as caught:
        space.prune(problem(), get_arch("sm120"), tactics=tactics)
    message = str(caught.value)
    assert "\n" not in message
    assert "0 legal of 3: 1 illegal (stages), 2 over shared memory (closest: 2,048 B)" in message
    assert "the closest is 128x128x128_c1x1_coop_s5, which needs 103,424 B" in message
    assert "4 stages would fit in 84,992 B" in message


def test_nothing_left_without_a_close_one_l15() -> None:
    with pytest.raises(NoLegalTacticError, match=r"1 illegal \(tile M\); the first is 64x128x128_c1x1_coop: M tile 64"):
        space.prune(problem(), get_arch("sm120"), tactics=[Tactic((64, 128, 128))])
    with pytest.raises(NoLegalTacticError, match="2 unknown .cutlass version."):
        space.prune(problem(), get_arch("sm120"), "4.4.0", tactics=[DEFAULT, Tactic((128, 64, 128))])
    with pytest.raises(NoLegalTacticError, match="no tactic was given"):
        space.prune(problem(), get_arch("sm120"), tactics=[])


def test_a_format_of_another_sm() -> None:
    with pytest.raises(InputError, match="sm90 has no nvfp4 kernels"):
        list(space.enumerate_tactics(get_arch("sm90"), "nvfp4"))


@pytest.mark.parametrize("candidates", [space.menu, lambda *asked: space.prune(*asked).legal], ids=["menu", "space"])
def test_one_row_a_group_has_a_narrow_swapped_tile_l16(candidates: object) -> None:
    small = GroupedGemm(256, 1024, 3072, 256, format="nvfp4")
    tactics = candidates(small, get_arch("sm120"), "4.5.0")  # type: ignore[operator]
    assert any(tactic.swap_ab and tactic.tile[1] <= 32 for tactic in tactics)


@pytest.mark.parametrize(("arch", "format"), EVERY)
@pytest.mark.parametrize("cutlass", ["4.2.0", "4.5.0"])
def test_menu(arch: str, format: str, cutlass: str) -> None:
    tactics = space.menu(problem(format), get_arch(arch), cutlass)
    assert tactics[0] == DEFAULT
    assert len(set(tactics)) == len(tactics)
    for tactic in tactics:
        assert legality.check(tactic, arch=get_arch(arch), format=format, cutlass=cutlass)
    if arch == "sm90":
        assert 40 <= len(tactics) <= 65
        assert {t.cluster for t in tactics} == {(1, 1), (2, 1), (1, 2)}
    elif cutlass == "4.5.0" and format != "mxfp8_mxfp4":
        assert 45 <= len(tactics) <= 65
    assert {t.swap_ab for t in tactics} == {False, True}
    if cutlass == "4.5.0" or format != "mxfp8_mxfp4":
        assert {t.schedule for t in tactics} == {"cooperative", "pingpong"}


def test_menu_takes_the_stages_that_fit_where_automatic_overshoots() -> None:
    """256x128x128 with a 128x32 epilogue tile comes to 3 stages, 1,024 B over: the menu has it with 2."""
    automatic, rescued = (Tactic.parse(f"256x128x128_c1x1_coop{stages}_e128x32") for stages in ("", "_s2"))
    assert legality.check(automatic, arch=get_arch("sm120"), format="nvfp4").figures["excess_bytes"] == 1024
    menu = space.menu(problem(), get_arch("sm120"))
    assert rescued in menu and automatic not in menu


def test_enumerating_and_pruning_takes_under_50_ms() -> None:
    """The whole SM120 space of one problem; the best of five, in CPU time, so that a busy machine does not decide."""
    times = []
    for _ in range(5):
        start = time.process_time()
        space.prune(problem(), get_arch("sm120"))
        times.append(time.process_time() - start)
    assert min(times) < 0.050
