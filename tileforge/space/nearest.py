"""The legal tactics nearest to one that may not run: what to take instead."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from tileforge import legality, smem
from tileforge.arch import ArchSpec
from tileforge.space.enumerate import enumerate_tactics
from tileforge.tactic import Tactic
from tileforge.verdict import Verdict

#: What a change costs, least first: stages and epilogue tile leave the kernel's work as it is, a tile does not. A step
#: of a tile is a factor of two; operands are swapped only for want of anything else.
_STAGES, _EPILOGUE, _SCHEDULE, _CLUSTER, _TILE, _SWAP = 1.0, 1.5, 3.0, 3.0, 4.0, 10.0


@dataclass(frozen=True)
class Near:
    """A legal tactic, its verdict, and the fields in which it differs, in words."""

    tactic: Tactic
    verdict: Verdict
    changes: tuple[str, ...]


def nearest(
    tactic: Tactic,
    *,
    arch: ArchSpec,
    format: str,
    out: str = "bf16",
    cutlass: str = smem.CUTLASS,
    epilogue: str = "plain",
    c: str | None = None,
    count: int = 3,
) -> list[Near]:
    """At most ``count`` legal tactics of the space, the one with the least change first.

    Of two at the same distance the one that uses more shared memory goes first: it is the closer one in that too.
    Run-time fields are kept where they are legal. Empty where nothing is known (another CUTLASS, a format of another
    SM).
    """
    if format not in arch.formats:
        return []
    found = []
    for each in enumerate_tactics(arch, format, cutlass, out=out, epilogue=epilogue, c=c):
        verdict = legality.check(each, arch=arch, format=format, out=out, cutlass=cutlass, epilogue=epilogue, c=c)
        if verdict:
            far, changes = _difference(tactic, each, verdict.figures["stages"])
            found.append((far, -verdict.figures["smem_bytes"], each.id, Near(each, verdict, changes)))
    found.sort(key=lambda item: item[:3])
    # Stage counts of one shape are variants of one answer, unless it is the count that was wrong.
    shapes: dict[Tactic, Near] = {}
    own = replace(tactic, stages=None)
    for _, _, _, near in found:
        shape = replace(near.tactic, stages=None)
        shapes.setdefault(near.tactic if shape == own else shape, near)
    return list(shapes.values())[:count]


def _difference(asked: Tactic, other: Tactic, stages: int) -> tuple[float, tuple[str, ...]]:
    far, changes = 0.0, []
    for name, mine, theirs in zip("MNK", asked.tile, other.tile, strict=True):
        if mine != theirs:
            far += _TILE * (0.5 + abs(math.log2(mine / theirs)))
            changes.append(f"{name} tile {mine} to {theirs}")
    if asked.schedule != other.schedule:
        far += _SCHEDULE
        changes.append(f"{asked.schedule} to {other.schedule}")
    if asked.cluster != other.cluster:
        far += _CLUSTER
        changes.append("cluster {}x{} to {}x{}".format(*asked.cluster, *other.cluster))
    if asked.epilogue_tile != other.epilogue_tile:
        far += _EPILOGUE
        named = [
            "x".join(map(str, tile)) if tile else "automatic" for tile in (asked.epilogue_tile, other.epilogue_tile)
        ]
        changes.append(f"epilogue tile {named[0]} to {named[1]}")
    if asked.swap_ab != other.swap_ab:
        far += _SWAP
        changes.append("operands swapped" if other.swap_ab else "operands not swapped")
    if asked.stages != other.stages and asked.stages != stages:
        far += _STAGES + (0.1 * abs(asked.stages - stages) if asked.stages else -0.05 * stages)
        changes.append(f"{'automatic' if asked.stages is None else asked.stages} stages to {stages}")
    return far, tuple(changes)
