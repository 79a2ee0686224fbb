"""The latency model: it must order tactics as the measurements that we have do, and it must not claim more."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from tileforge import space
from tileforge.arch import get_arch
from tileforge.arch.gpus import GPUS
from tileforge.predict import Prediction, constants_for, distinct, leaders, rank, time_us
from tileforge.problem import GroupedGemm
from tileforge.tactic import DEFAULT, Tactic

H200, PRO_6000 = GPUS["h200"], GPUS["rtx_pro_6000"]

#: H200, 2026-11-30, CUTLASS 4.2.0, CUDA graph of 10 calls, median of 7; G 32, N 4096, K 6144, equal groups, bf16:
#: rows per group, time of the best of 16 kernels in us, that kernel.
H200_BEST = [
    (1, 370, "128x16x64_c1x1_coop_swap"),
    (16, 382, "128x16x128_c1x1_coop_swap"),
    (64, 398, "64x256x64_c1x1_pp"),
    (256, 672, "128x256x64_c2x1_coop"),
    (1024, 2562, "128x256x64_c2x1_coop"),
]
#: Field notes of an RTX PRO 6000: dense FP4 GEMM M x N x K, TFLOP/s (128x128x128 tiles, hot).
FIELD_NOTES = [
    (2048, 2048, 6144, 840.2),
    (4096, 2048, 6144, 1188.9),
    (8192, 2048, 6144, 1221.2),
    (1024, 6144, 6144, 904.3),
    (2048, 6144, 6144, 1121.1),
    (4096, 6144, 6144, 1227.2),
]


def moe(rows: int, format: str = "bf16", routing: str = "balanced") -> GroupedGemm:
    return GroupedGemm(rows * 32, 4096, 6144, 32, format=format, routing=routing)


@pytest.fixture(scope="module")
def sm90() -> list[Tactic]:
    return space.prune(moe(16), get_arch("sm90"), "4.2.0").legal


@pytest.fixture(scope="module")
def sm120() -> list[Tactic]:
    return space.prune(moe(16, "nvfp4"), get_arch("sm120"), "4.5.0").legal


@pytest.mark.parametrize(("rows", "measured_us", "best"), H200_BEST, ids=lambda value: str(value))
def test_best_tactics_of_the_h200_are_among_the_first_eight(
    sm90: list[Tactic], rows: int, measured_us: float, best: str
) -> None:
    ranking = rank(moe(rows), sm90, H200, "4.2.0")
    assert len(ranking) > 500
    assert best in [tactic.id for tactic, _ in ranking[:8]]
    assert best in [tactic.id for tactic in leaders(ranking, 8)]
    predicted = {tactic.id: prediction.us for tactic, prediction in ranking}[best]
    assert predicted == pytest.approx(measured_us, rel=0.08)


def test_tactics_that_the_h200_found_slow_are_not_among_the_first(sm90: list[Tactic]) -> None:
    """Clusters of 2 with 256x128 tiles read 1.5 ms at decode, four times the best; 128x128 1.35 to 1.5 times."""
    ranking = rank(moe(16), sm90, H200, "4.2.0")
    us = {tactic.id: prediction.us for tactic, prediction in ranking}
    best = ranking[0][1].us
    assert us["256x128x64_c2x1_coop"] > 2.5 * best
    assert us["128x128x128_c1x1_coop"] > 1.15 * best
    assert ranking[-1][1].us > 4 * best


@pytest.mark.parametrize(("m", "n", "k", "tflops"), FIELD_NOTES, ids=lambda value: str(value))
def test_the_field_notes_are_reproduced(m: int, n: int, k: int, tflops: float) -> None:
    problem = GroupedGemm(m, n, k, 1, "nvfp4")
    prediction = time_us(DEFAULT, problem, PRO_6000, stages=4)
    assert problem.flops / prediction.us / 1e6 == pytest.approx(tflops, rel=0.06)


@pytest.mark.parametrize("rows", [1, 4, 16])
def test_decode_on_sm120_prefers_narrow_swapped_tiles(sm120: list[Tactic], rows: int) -> None:
    first = leaders(rank(moe(rows, "nvfp4"), sm120, PRO_6000), 4)
    assert all(tactic.swap_ab and tactic.tile[1] == 32 for tactic in first), first


def test_prefill_on_sm120_prefers_large_tiles(sm120: list[Tactic]) -> None:
    first = leaders(rank(moe(1024, "nvfp4"), sm120, PRO_6000), 4)
    assert all(tactic.tile[0] * tactic.tile[1] >= 128 * 256 for tactic in first), first


def test_prefill_on_h200_knows_that_clusters_save_l2() -> None:
    alone, pair = Tactic((128, 256, 64)), Tactic((128, 256, 64), (2, 1))
    (a, b) = (time_us(t, moe(1024), H200, stages=4) for t in (alone, pair))
    assert b.terms["l2_bytes"] < 0.7 * a.terms["l2_bytes"]
    assert b.us < a.us
    # At decode there is nobody to share with: half of the blocks have no rows.
    (c, d) = (time_us(t, moe(16), H200, stages=4) for t in (alone, pair))
    assert d.terms["tiles"] == 2 * c.terms["tiles"]
    assert d.terms["l2_bytes"] == c.terms["l2_bytes"]
    assert d.us > c.us


def test_small_groups_pad_to_the_side_that_their_rows_run_along() -> None:
    wide, narrow = Tactic((128, 16, 64)), Tactic((128, 16, 64), swap_ab=True)
    problem = moe(16)
    assert time_us(wide, problem, H200, stages=8).terms["useful"] == pytest.approx(16 / 128)
    assert time_us(narrow, problem, H200, stages=8).terms["useful"] == 1.0
    assert time_us(narrow, problem, H200, stages=8).terms["tiles"] == 32 * 4096 // 128
    assert time_us(wide, problem, H200, stages=8).terms["tiles"] == 32 * 4096 // 16


def test_real_group_sizes_count_and_empty_groups_are_free() -> None:
    tactic = Tactic((128, 64, 64), swap_ab=True)

    def terms(rows: str, total: int) -> Prediction:
        problem = GroupedGemm(total, 4096, 6144, 4, "bf16", routing=f"rows:{rows}")
        return time_us(tactic, problem, H200, stages=4)

    balanced, one, crossing = terms("64,64,64,64", 256), terms("256,0,0,0", 256), terms("63,63,63,65", 254)
    assert balanced.terms["tiles"] == one.terms["tiles"] == 4 * 32
    assert one.terms["dram_bytes"] < 0.3 * balanced.terms["dram_bytes"]
    assert crossing.terms["tiles"] == 5 * 32


def test_weights_are_read_once_where_their_passes_meet_in_l2() -> None:
    problem = moe(16)
    prediction = time_us(Tactic((128, 16, 64), swap_ab=True), problem, H200, stages=8)
    assert prediction.terms["dram_bytes"] == pytest.approx(problem.bytes(), rel=1e-6)
    # 1,024 rows of 4 groups whose weights are far larger than L2, against the wrong raster: read again and again.
    large = GroupedGemm(4096, 32768, 8192, 4, "bf16")
    good = time_us(Tactic((128, 128, 64), raster="m"), large, H200, stages=4)
    bad = time_us(Tactic((128, 128, 64), raster="n"), large, H200, stages=4)
    assert bad.terms["dram_bytes"] > 2 * good.terms["dram_bytes"]


def test_more_bytes_in_flight_are_never_slower() -> None:
    times = [time_us(Tactic((128, 16, 64), swap_ab=True), moe(1), H200, stages=s).us for s in range(2, 13)]
    assert times == sorted(times, reverse=True)
    assert times[0] > 1.1 * times[-1]


def test_narrow_tiles_wait_for_shared_memory() -> None:
    """A tile of 16 columns is 1/16 of the work of one of 256, and takes more than 1/16 of its time: every MMA
    instruction reads its 64 rows of A from shared memory, however few columns it multiplies them with."""
    deep = GroupedGemm(2**20, 64, 8192, 1, "bf16")
    narrow, wide = (time_us(Tactic((64, n, 64), schedule="pingpong"), deep, H200, stages=4) for n in (16, 256))
    per_tile = [each.terms["mma"] / each.terms["waves"] for each in (narrow, wide)]
    assert per_tile[0] > per_tile[1] / 10


def test_pingpong_hides_the_epilogue_where_there_is_a_next_tile() -> None:
    problem = GroupedGemm(128 * 64, 8192, 256, 1, "bf16")
    coop, pingpong = (
        time_us(Tactic((128, 128, 64), schedule=s), problem, H200, stages=4) for s in ("cooperative", "pingpong")
    )
    assert pingpong.terms["waves"] > 1
    assert pingpong.terms["mma"] < coop.terms["mma"]


def test_nothing_to_launch_takes_no_time() -> None:
    assert time_us(DEFAULT, moe(0), H200, stages=4).us == 0.0


def test_the_order_does_not_depend_on_that_of_the_input(sm120: list[Tactic]) -> None:
    problem = moe(64, "nvfp4")
    expected = [tactic.id for tactic, _ in rank(problem, sm120, PRO_6000)]
    shuffled = list(sm120)
    random.Random(1).shuffle(shuffled)
    assert [tactic.id for tactic, _ in rank(problem, shuffled, PRO_6000)] == expected


def test_leaders_differ_in_more_than_a_detail(sm120: list[Tactic]) -> None:
    ranking = rank(moe(16, "nvfp4"), sm120, PRO_6000)
    first = leaders(ranking, 8)
    shapes = {(tactic.tile, tactic.cluster, tactic.schedule, tactic.swap_ab) for tactic in first}
    assert len(first) == len(shapes) == 8
    assert sorted(leaders(ranking, len(ranking)), key=lambda t: t.id) == sorted(sm120, key=lambda t: t.id)


def test_runtime_variants_that_run_alike_are_one_at_decode() -> None:
    variants = space.runtime_variants(Tactic((128, 16, 64), swap_ab=True))
    assert distinct(moe(16), variants) == variants[:1]


def test_runtime_variants_differ_where_groups_have_many_tiles() -> None:
    variants = space.runtime_variants(Tactic((128, 128, 64)))
    kept = distinct(moe(1024), variants)
    # The heuristic runs along N, because sizes are on the device; four swizzles of two orders remain.
    assert [(tactic.raster, tactic.swizzle) for tactic in kept] == [
        (raster, swizzle) for raster in ("heuristic", "m") for swizzle in (1, 2, 4, 8)
    ]
    # Two tiles of rows: a swizzle of more than 2 is one of 2.
    assert {tactic.swizzle for tactic in distinct(moe(256), variants)} == {1, 2}
    # CUTLASS 4.2.0 computes the swizzle from sizes on the host, of which there are none.
    assert {tactic.swizzle for tactic in distinct(moe(1024), variants, "4.2.0")} == {1}


def test_a_swizzle_that_pads_costs_tiles() -> None:
    tactic = Tactic((128, 128, 64))
    problem = GroupedGemm(640 * 4, 4096, 4096, 4, "bf16")  # 5 tiles of rows
    plain, padded = (time_us(replace(tactic, swizzle=s), problem, H200, stages=4).terms["tiles"] for s in (1, 4))
    assert (plain, padded) == (4 * 5 * 32, 4 * 8 * 32)


@pytest.mark.parametrize("sku", sorted(GPUS))
def test_every_gpu_has_constants_that_say_where_they_come_from(sku: str) -> None:
    gpu = GPUS[sku]
    constants = constants_for(gpu)
    assert constants.sources and all(constants.sources.values())
    assert constants.bandwidth <= gpu.bandwidth
    for format in get_arch(gpu.arch).formats:
        assert 0 < constants.rate[format] <= gpu.peak[format]
        assert time_us(DEFAULT, moe(16, format), gpu, stages=2).us > 0


def test_bandwidth_decides_at_decode() -> None:
    """A GPU with a sixth of the bandwidth takes about six times as long for the same weights."""
    tactic, problem = Tactic((128, 32, 128), swap_ab=True), moe(16, "nvfp4")
    spark, desktop = (time_us(tactic, problem, GPUS[sku], stages=4).us for sku in ("gb10", "rtx_5090"))
    assert spark / desktop == pytest.approx(1792 / 273, rel=0.15)
