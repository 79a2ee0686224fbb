"""Every tactic of one SM and format, legal or not, in a fixed order."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import partial

from tileforge import legality, smem
from tileforge.arch import ArchSpec
from tileforge.arch.spec import accumulators
from tileforge.errors import InputError
from tileforge.tactic import RASTERS, SWIZZLES, Tactic
from tileforge.verdict import FITS, OVER


def enumerate_tactics(
    arch: ArchSpec,
    format: str,
    cutlass: str = smem.CUTLASS,
    *,
    out: str = "bf16",
    epilogue: str = "plain",
    c: str | None = None,
) -> Iterator[Tactic]:
    """The compile-time fields of the menu of ``format``, run-time fields at their defaults.

    For each combination of tile, cluster, schedule, swap_ab and epilogue tile: automatic stages first, then, where
    the rules allow the tile at all, every explicit count from 2 to what fits (and to the menu's end). A second name
    for the same kernel is left out: the explicit count that the automatic one comes to when it fits, and the explicit
    epilogue tile that CUTLASS takes anyway. A tile that no choice of stages and epilogue tile can mend is listed once.
    Tiles whose accumulators would spill (:class:`~tileforge.arch.Menu`) are not listed.

    Raises InputError when ``arch`` has no such format.
    """
    if format not in arch.formats:
        raise InputError(f"{arch.name} has no {format} kernels: its formats are {', '.join(arch.formats)}")
    menu = arch.menus[format]
    ask = smem.context(arch, format, out, cutlass, epilogue, c)
    check = partial(legality.check, arch=arch, format=format, out=out, cutlass=cutlass, epilogue=epilogue, c=c)
    limit = arch.smem_per_block
    for tile in itertools.product(menu.tile_m, menu.tile_n, menu.tile_k):
        for schedule, cluster, swap_ab in itertools.product(menu.schedules, menu.clusters, (False, True)):
            automatic: tuple[int, int] | None = None
            for epilogue_tile in menu.epilogue_tiles:
                if epilogue_tile is not None and epilogue_tile == automatic:
                    continue
                base = Tactic(tile, cluster, schedule, None, epilogue_tile, swap_ab)
                if accumulators(base) > menu.accumulators:
                    break
                yield base
                verdict = check(base)
                if verdict.kind not in (FITS, OVER):
                    if verdict.reason in ("epilogue_tile", "stages"):
                        continue
                    break
                kernel = smem.storage(base, ask)
                if epilogue_tile is None:
                    automatic = kernel.epilogue_tile
                same = kernel.auto_stages if verdict.kind == FITS else 0
                for stages in range(legality.LEAST_STAGES, min(kernel.most_stages(limit), menu.most_stages) + 1):
                    if stages != same:
                        yield Tactic(tile, cluster, schedule, stages, epilogue_tile, swap_ab)


def runtime_variants(tactic: Tactic) -> list[Tactic]:
    """``tactic`` with every raster order and max swizzle: 12 ways to run one kernel, the defaults first."""
    return [
        Tactic(
            tactic.tile,
            tactic.cluster,
            tactic.schedule,
            tactic.stages,
            tactic.epilogue_tile,
            tactic.swap_ab,
            raster,
            swizzle,
        )
        for raster in RASTERS
        for swizzle in SWIZZLES
    ]
