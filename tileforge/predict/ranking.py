"""Orders tactics by predicted time, and takes leaders that differ in more than a detail."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from tileforge import smem
from tileforge.arch.gpus import Gpu
from tileforge.predict.constants import constants_for
from tileforge.predict.model import Prediction, order_of, time_us
from tileforge.problem import GroupedGemm
from tileforge.tactic import DEFAULT, Tactic

Ranking = list[tuple[Tactic, Prediction]]


def rank(problem: GroupedGemm, tactics: Iterable[Tactic], gpu: Gpu, cutlass: str = "4.5.0") -> Ranking:
    """``tactics`` with their predictions, fastest first.

    Equal predictions are ordered by: the default, automatic before explicit choices, fewer blocks in a cluster,
    least shared memory, id; so the order never depends on that of the input.
    """
    known = constants_for(gpu)
    derived: dict[Tactic, tuple[int, int]] = {}
    keyed = []
    for tactic in tactics:
        kernel = tactic.compile_time()
        if kernel not in derived:
            found = smem.breakdown(kernel, arch=gpu.arch, format=problem.format, out=problem.out, cutlass=cutlass)
            derived[kernel] = (found.stages, found.total)
        stages, total = derived[kernel]
        prediction = time_us(_as_run(tactic, cutlass), problem, gpu, stages=max(1, stages), constants=known)
        explicit = (tactic.stages is not None) + (tactic.epilogue_tile is not None)
        runtime = (tactic.raster != "heuristic") + (tactic.swizzle != 1)
        order = (round(prediction.us, 3), tactic != DEFAULT, explicit, runtime, tactic.cluster, total, tactic.id)
        keyed.append((order, tactic, prediction))
    keyed.sort(key=lambda entry: entry[0])
    return [(tactic, prediction) for _, tactic, prediction in keyed]


def _as_run(tactic: Tactic, cutlass: str) -> Tactic:
    """CUTLASS before 4.5.0 computes a group's swizzle from sizes on the host and has none here: it is always 1
    (4.2.0 ``gemm/kernel/sm90_tile_scheduler_group.hpp``: one log_swizzle_size for all groups, of the linear grid).
    """
    old = tuple(int(part) for part in cutlass.split(".")[:2]) < (4, 5)
    return replace(tactic, swizzle=1) if old and tactic.swizzle != 1 else tactic


def distinct(problem: GroupedGemm, tactics: Iterable[Tactic], cutlass: str = "4.5.0") -> list[Tactic]:
    """``tactics`` without those that would run the tiles of ``problem`` in the same order as one before them.

    Of a kernel's 12 run-time variants most are the same where groups have few tiles: at decode, all of them.
    """
    kept: dict[tuple[object, ...], Tactic] = {}
    for tactic in tactics:
        kept.setdefault((tactic.compile_time(), *order_of(_as_run(tactic, cutlass), problem)), tactic)
    return list(kept.values())


def _shape(tactic: Tactic) -> tuple[object, ...]:
    return (tactic.tile, tactic.cluster, tactic.schedule, tactic.swap_ab)


def leaders(ranking: Sequence[tuple[Tactic, Prediction]], count: int) -> list[Tactic]:
    """The first ``count`` tactics to try: the best of each tile, cluster, schedule and swap, then the rest.

    Variants of one shape (stages, epilogue tile, raster, swizzle) are predicted within a percent of each other,
    so the first few of a plain ranking would be one idea tried many times.
    """
    seen: set[tuple[object, ...]] = set()
    first: list[Tactic] = []
    rest: list[Tactic] = []
    for tactic, _ in ranking:
        shape = _shape(tactic)
        (rest if shape in seen else first).append(tactic)
        seen.add(shape)
    return (first + rest)[:count]
