"""The default menu: the few dozen kernels that are worth building before anything has been measured."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

from tileforge import legality, smem
from tileforge.arch import ArchSpec
from tileforge.arch.spec import accumulators
from tileforge.problem import GroupedGemm
from tileforge.space.prune import prune
from tileforge.tactic import DEFAULT, Tactic
from tileforge.verdict import OVER

#: More accumulators than this leave the consumer warps (232 registers) no room to overlap loads with the MMA.
_ACCUMULATORS = 128
_BOTH = ("cooperative", "pingpong")


def menu(problem: GroupedGemm, arch: ArchSpec, cutlass: str = smem.CUTLASS) -> list[Tactic]:
    """Legal tactics worth building for ``problem``: about 50 on SM120, 60 on SM90; the default comes first.

    The whole space is thousands of kernels at a CPU-minute each, and most differ from one of these in a stage count
    or an epilogue tile that seldom decides. How it was chosen:

    - few rows per group (decode): operands swapped, so that the weights fill the tile's 128 or 256 rows and its N is
      as narrow as the rows of a group; both K tiles, both schedules, since such kernels wait for memory and differ in
      bytes in flight;
    - many rows (prefill): tiles of 128 accumulators per thread, with and without swap, on SM90 with clusters of two;
    - between them: one step of N at a time;
    - automatic stages; where that count overshoots shared memory, the largest that fits stands in for it;
    - the automatic epilogue tile, and on SM120 a few others: at decode a smaller one, which frees room for a stage,
      at prefill a larger one, which stores in fewer steps.

    On an H200 (2026-11-30, 16 kernels per format, CUTLASS 4.2.0) the winners at 1, 16, 64, 256 and 1,024 rows per
    group were among these tiles.

    Raises NoLegalTacticError when none of them is legal.
    """
    candidates = _sm90(problem.format) if arch.sm == 90 else _sm120()
    wanted = [DEFAULT, *(tactic for tactic in candidates if accumulators(tactic) <= _ACCUMULATORS)]
    fitting = [_rescued(tactic, problem, arch, cutlass) for tactic in dict.fromkeys(wanted)]
    return prune(problem, arch, cutlass, dict.fromkeys(fitting)).legal


def _rescued(tactic: Tactic, problem: GroupedGemm, arch: ArchSpec, cutlass: str) -> Tactic:
    verdict = legality.check(tactic, arch=arch, format=problem.format, out=problem.out, cutlass=cutlass)
    if verdict.kind == OVER and "stages_that_fit" in verdict.figures:
        return replace(tactic, stages=verdict.figures["stages_that_fit"])
    return tactic


def _sm120() -> Iterator[Tactic]:
    for m, n, k, schedule in itertools.product((128, 256), (16, 32, 64, 128), (128, 256), _BOTH):
        yield Tactic((m, n, k), schedule=schedule, swap_ab=True)
    for m, n, k, schedule in itertools.product((128, 256), (32, 64, 128, 256), (128, 256), _BOTH):
        yield Tactic((m, n, k), schedule=schedule)
    for n, k, schedule in itertools.product((32, 64), (128, 256), _BOTH):
        yield Tactic((128, n, k), schedule=schedule, epilogue_tile=(64, 16), swap_ab=True)
    for schedule in _BOTH:
        yield Tactic((128, 128, 128), schedule=schedule, epilogue_tile=(64, 64))
    yield Tactic((128, 256, 128), swap_ab=True)
    yield Tactic((128, 256, 128), epilogue_tile=(64, 64))
    yield Tactic((256, 128, 128), epilogue_tile=(128, 32))


def _sm90(format: str) -> Iterator[Tactic]:
    line = 64 if format == "bf16" else 128  # elements along K in the 128 B rows that TMA and WGMMA like best
    for m, n, k in itertools.product((64, 128), (16, 32, 64, 128), (line, 2 * line)):
        for schedule in _BOTH:
            yield Tactic((m, n, k), schedule=schedule, swap_ab=True)
    if format == "bf16":  # 128 B rows twice over; fp8's next K tile would be 512
        for m, n, schedule in itertools.product((64, 128), (16, 32), _BOTH):
            yield Tactic((m, n, 4 * line), schedule=schedule, swap_ab=True)
    for n in (16, 32, 64):
        yield Tactic((256, n, line), swap_ab=True)
    yield Tactic((64, 128, line), schedule="pingpong")
    for cluster in ((1, 1), (2, 1)):
        yield Tactic((128, 192, line), cluster)
    for cluster in ((1, 1), (2, 1), (1, 2)):
        yield Tactic((64, 256, line), cluster, "pingpong")
        for m, n in ((128, 128), (128, 256), (256, 128)):
            for schedule, swap_ab in itertools.product(_BOTH, (False, True)):
                yield Tactic((m, n, line), cluster, schedule, swap_ab=swap_ab)
