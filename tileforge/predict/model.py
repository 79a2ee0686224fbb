"""How long a tactic would take: a roofline with the terms that tell tactics apart. It ranks and nothing else.

    t = (dram^p + l2^p + mma^p)^(1/p) + prologue + tail + epilogue + launch,   p = 5

One persistent block runs on each SM (CUTLASS 4.5.0, ``gemm/kernel/sm90_gemm_array_tma_warpspecialized_*.hpp``
declare MinBlocksPerMultiprocessor 1 and their 384 threads take the register file), so tiles run in waves of as
many as there are SMs. The rows of a group run along tile M, and along tile N with ``swap_ab``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from tileforge.arch.gpus import Gpu
from tileforge.formats import OUT_BITS, SCALE_ROWS
from tileforge.predict.constants import Constants, constants_for
from tileforge.problem import GroupedGemm
from tileforge.tactic import Tactic

_P = 5.0
#: Stages that are multiplied and not yet given back: WGMMA keeps one behind (K_PIPE_MMAS = 1, CUTLASS 4.5.0
#: ``gemm/collective/sm90_mma_array_tma_gmma_ss_warpspecialized.hpp``); mma.sync copies to registers first.
_HELD = {"sm90": 2, "sm120": 1, "sm121": 1}
#: Share of one tile's time for which the slowest SM runs on after the others. Assumed; small enough that it only
#: orders tiles that the other terms cannot tell apart (it puts 128 rows of weights before 256, as the H200 does).
_TAIL = 0.05
#: Rows of A that one instruction's warps cover: B is read from shared memory once per so many rows of the tile.
_MMA_ROWS = {"sm90": 64, "sm120": 32, "sm121": 32}
#: A is read once per so many columns: WGMMA takes the whole width; mma.sync warps split it in two.
_A_READS = {"sm90": 1, "sm120": 2, "sm121": 2}


@dataclass(frozen=True)
class Prediction:
    """A predicted time in microseconds, and the terms that it is made of. Never a measurement.

    ``terms``: ``dram``, ``l2``, ``mma``, ``prologue``, ``tail``, ``epilogue``, ``launch`` in microseconds; ``tiles``,
    ``waves``, ``dram_bytes``, ``l2_bytes``, ``bytes_in_flight`` (a block), ``useful`` (share of the tiles'
    rows that are real), ``bound`` (0 dram, 1 l2, 2 mma: the largest).
    """

    us: float
    terms: Mapping[str, float] = field(default_factory=dict)


@lru_cache(maxsize=64)
def _histogram(problem: GroupedGemm) -> tuple[tuple[int, int], ...]:
    """(rows, how many groups have so many), of groups that have any."""
    return tuple(sorted(Counter(rows for rows in problem.sizes if rows).items()))


def _log_swizzle(rows_tiles: int, columns_tiles: int, most: int) -> int:
    """CUTLASS 4.5.0 ``sm90_tile_scheduler_group.hpp``, get_log_swizzle_size: what a group can use of ``most``."""
    least = min(rows_tiles, columns_tiles)
    for log, need in ((3, 6), (2, 3), (1, 2)):
        if most >= 1 << log and least >= need:
            return log
    return 0


def _tiles(tactic: Tactic, problem: GroupedGemm, rows: int) -> tuple[int, int]:
    """Tiles of a group of ``rows`` rows: along the rows, and along the columns."""
    tile_rows, tile_columns = (tactic.tile[1], tactic.tile[0]) if tactic.swap_ab else tactic.tile[:2]
    return -(-rows // tile_rows), -(-problem.n // tile_columns)


def _along_m(tactic: Tactic) -> bool:
    """Whether tiles run along the kernel's M first.

    The group scheduler is told no sizes on the host, so its heuristic always runs along N: CUTLASS 4.5.0
    ``sm90_tile_scheduler_group.hpp`` (get_tiled_cta_shape_mnl linearises the grid to one column) and
    ``tile_scheduler_params.h`` (get_rasterization_order then prefers N). SM120 uses the same scheduler.
    """
    return tactic.raster == "m"


def order_of(tactic: Tactic, problem: GroupedGemm) -> tuple[object, ...]:
    """What the run-time fields come to on this problem: equal answers mean the same tiles in the same order."""
    tiles = [_tiles(tactic, problem, rows) for rows, _ in _histogram(problem)]
    swizzles = tuple(_log_swizzle(*both, tactic.swizzle) for both in tiles)
    single = tactic.cluster == (1, 1) and not any(swizzles) and all(1 in both for both in tiles)
    return (False, swizzles) if single else (_along_m(tactic), swizzles)


@dataclass
class _Work:
    """Totals over all groups: tiles (padding included), tiles of weights (``streams``), bytes through DRAM and L2."""

    tiles: int = 0
    real_tiles: int = 0
    streams: int = 0
    dram: float = 0.0
    l2: float = 0.0
    padded_rows: int = 0
    groups: int = 0


def _work(tactic: Tactic, problem: GroupedGemm, gpu: Gpu) -> _Work:
    form, swap = problem.form, tactic.swap_ab
    tile_rows = tactic.tile[1] if swap else tactic.tile[0]
    cluster_rows, cluster_columns = (tactic.cluster[1], tactic.cluster[0]) if swap else tactic.cluster
    k = problem.k
    scale = form.scale_columns(k)
    a_row, b_row = k * form.a_bits / 8 + scale, k * form.b_bits / 8 + scale
    rows_first = _along_m(tactic) != swap
    work = _Work()
    for rows, count in _histogram(problem):
        rows_tiles, columns_tiles = _tiles(tactic, problem, rows)
        swizzle = 1 << _log_swizzle(rows_tiles, columns_tiles, tactic.swizzle)
        padded_r = -(-rows_tiles // (cluster_rows * swizzle)) * cluster_rows * swizzle
        padded_c = -(-columns_tiles // (cluster_columns * swizzle)) * cluster_columns * swizzle
        weights, activations = problem.n * b_row, rows * a_row
        # Tiles that run at the same time share what they read through L2. A pass over the weights that starts
        # after the previous one has left the SMs finds only what still is in L2.
        concurrent = max(1, gpu.sms)
        if rows_first:
            passes_b = float(-(-rows_tiles // min(concurrent, rows_tiles)))
            again_a = -(-columns_tiles // max(1, concurrent // max(1, rows_tiles))) - 1
            passes_a = 1 + again_a * _missed(activations, gpu)
        else:
            strips = max(1, concurrent // columns_tiles, swizzle)
            again_b = -(-rows_tiles // strips) - 1
            passes_b = 1 + again_b * _missed(weights, gpu)
            passes_a = 1.0
        work.dram += count * (
            weights * passes_b + activations * passes_a + rows * problem.n * OUT_BITS[problem.out] / 8
        )
        # Every tile brings its real rows and columns; a cluster shares one operand by multicast, as far as the
        # group is large enough to give all its blocks something to do.
        work.l2 += count * (
            weights * -(-rows_tiles // cluster_rows) + activations * -(-columns_tiles // cluster_columns)
        )
        work.tiles += count * padded_r * padded_c
        work.real_tiles += count * rows_tiles * columns_tiles
        work.streams += count * columns_tiles
        work.padded_rows += count * rows_tiles * tile_rows
        work.groups += count
    return work


def _missed(size: float, gpu: Gpu) -> float:
    """Share of ``size`` bytes that a second pass has to read from device memory again."""
    usable = 0.6 * gpu.l2_bytes
    return 0.0 if size <= usable else (size - usable) / size


def _iteration_s(tactic: Tactic, problem: GroupedGemm, gpu: Gpu, constants: Constants) -> float:
    """One tile's step along K: the tensor cores' time, or that of feeding them from shared memory in turns."""
    form, (m, n, k) = problem.form, tactic.tile
    rate = constants.rate.get(problem.format) or min(constants.rate.values())
    mma = 2.0 * m * n * k / (rate / gpu.sms)
    a_bits, b_bits = form.smem_a_bits, form.smem_b_bits
    if tactic.swap_ab:
        a_bits, b_bits = b_bits, a_bits
    read = m * k * a_bits / 8 * _A_READS[gpu.arch] + max(1, m // _MMA_ROWS[gpu.arch]) * n * k * b_bits / 8
    if form.block_scaled:
        read += (m + max(n, SCALE_ROWS)) * k / (form.scale_vector or k)
    feed = read / (constants.smem_bytes_per_clock * constants.clock_hz)
    return max(mma, feed + constants.iteration_s)


def time_us(
    tactic: Tactic, problem: GroupedGemm, gpu: Gpu, *, stages: int, constants: Constants | None = None
) -> Prediction:
    """Predicted time of one launch. ``stages`` is what ``smem.breakdown`` or the compiler says, 1 or more.

    ``constants`` defaults to :func:`constants_for` this GPU. A problem with no rows takes 0 us.
    """
    if not problem.m:
        return Prediction(0.0)
    known = constants or constants_for(gpu)
    form, (tile_m, tile_n, tile_k) = problem.form, tactic.tile
    work = _work(tactic, problem, gpu)
    cluster = tactic.cluster[0] * tactic.cluster[1]
    slots = max(1, gpu.sms // cluster)
    waves = -(-(work.tiles // cluster) // slots)

    busy = min(gpu.sms, work.real_tiles)
    l2 = work.l2 / (known.l2_bandwidth * busy / gpu.sms)
    iterations = -(-problem.k // tile_k)
    tile_epilogue = tile_m * tile_n * OUT_BITS[problem.out] / 8 / known.epilogue_bytes_per_s
    if tactic.swap_ab:
        tile_epilogue *= 1.1  # the output tile is written through a transposed layout
    # Pingpong's second warp group multiplies while the first one stores.
    hidden = tactic.schedule == "pingpong" and waves > 1
    iteration = _iteration_s(tactic, problem, gpu, known)
    per_tile = iterations * iteration + known.tile_s
    mma = waves * (per_tile + (0.0 if hidden else tile_epilogue))

    # Bytes in flight of one block: rows beyond a small group are filled with zeros and never travel, and the
    # stages that the tensor cores work on are not free yet.
    mean_rows = problem.m / max(1, work.groups)
    rows_side, columns_side = (tile_n, tile_m) if tactic.swap_ab else (tile_m, tile_n)
    stage = (min(rows_side, mean_rows) * form.a_bits + min(columns_side, problem.n) * form.b_bits) * tile_k / 8
    dram = work.dram / known.bandwidth
    held = _HELD[gpu.arch] * min(1.0, mma / max(dram, l2, mma))
    in_flight = max(0.5, stages - held) * stage
    dram *= (1.0 + (known.bandwidth * known.latency_s / (busy * in_flight)) ** 2) ** 0.5

    steady = float((dram**_P + l2**_P + mma**_P) ** (1 / _P))
    # Blocks of a cluster wait for each other at every stage; one that ends early waits at the end too.
    steady *= 1.0 + 0.02 * (cluster - 1)
    prologue = known.latency_s * (1.0 + (cluster - 1) * 0.25)
    # SMs do not share bandwidth evenly: the last ones end alone. Then the last stage is still to be multiplied.
    # Where memory decides, tiles that share their weights end together.
    shares = work.tiles if mma > dram else work.streams
    tail = _TAIL * steady / max(1.0, shares / gpu.sms) + iteration
    total = steady + prologue + tail + tile_epilogue + known.launch_s
    terms = {
        "dram": dram * 1e6,
        "l2": l2 * 1e6,
        "mma": mma * 1e6,
        "prologue": prologue * 1e6,
        "tail": tail * 1e6,
        "epilogue": tile_epilogue * 1e6,
        "launch": known.launch_s * 1e6,
        "tiles": work.tiles,
        "waves": waves,
        "dram_bytes": work.dram,
        "l2_bytes": work.l2,
        "bytes_in_flight": in_flight,
        "useful": problem.m / work.padded_rows,
        "bound": max(range(3), key=(dram, l2, mma).__getitem__),
    }
    return Prediction(total * 1e6, terms)
