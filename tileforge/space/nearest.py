"""The legal tactics nearest to one that may not run: what to take instead, and what it changes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from tileforge import legality, smem
from tileforge.arch import ArchSpec
from tileforge.arch.spec import accumulators
from tileforge.tactic import SWIZZLES, Tactic
from tileforge.verdict import OVER, Verdict

#: What may change, and what a change of it weighs: the number of stages and the epilogue tile leave the work of a
#: block as it is, schedule, cluster and swizzle change how blocks share it, the tile changes it. Operands are never
#: swapped and raster orders never changed: every value of those is legal.
FIELDS = {"stages": 0, "epilogue_tile": 1, "schedule": 2, "cluster": 2, "swizzle": 2, "K": 3, "N": 3, "M": 3}
_TILE = "MNK"
_ORDER = {field: place for place, field in enumerate(FIELDS)}


@dataclass(frozen=True)
class Near:
    """A legal tactic, its verdict, the fields in which it differs and how, in words.

    ``difference``: bytes that it takes more (or, below 0, less) than the tactic that it replaces; None where that one
    has no bytes to compare with, because it breaks a rule.
    """

    tactic: Tactic
    verdict: Verdict
    fields: tuple[str, ...]
    changes: tuple[str, ...]
    difference: int | None

    def as_dict(self) -> dict[str, Any]:
        return {
            "tactic": self.tactic.id,
            "stages": self.verdict.figures["stages"],
            "smem_bytes": self.verdict.figures["smem_bytes"],
            "difference_bytes": self.difference,
            "fields": list(self.fields),
            "changes": list(self.changes),
        }


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
    """At most ``count`` legal tactics that take the place of ``tactic``; none when it is legal itself.

    In this order: as few fields changed as possible; of equally many, those of less weight in ``FIELDS`` (stages,
    then the epilogue tile, then schedule, cluster or swizzle, then a tile size); of the same weight the smaller step
    (a factor of two of a tile size is one). The first of each way to mend it goes before the second of any, and what
    changes more than is needed comes last. Values are the menu's; the number of stages is the one nearest to what was
    asked for that fits. Tiles whose accumulators would spill are not offered.

    Empty where nothing is known: another CUTLASS version, a format or an epilogue of another SM. Raises InputError on
    names that nobody knows.
    """
    asked: dict[str, Any] = {"format": format, "out": out, "cutlass": cutlass, "epilogue": epilogue, "c": c}
    own = legality.check(tactic, arch=arch, **asked)
    known = format in arch.formats and cutlass in arch.cutlass and epilogue in arch.epilogues
    if own or not known or count < 1:
        return []
    values = _values(tactic, arch, format)
    ways: dict[frozenset[str], list[tuple[float, Near]]] = {}
    for changing in range(len(values) + 1):
        for fields in itertools.combinations(values, changing):
            for steps in itertools.product(*(values[field] for field in fields)):
                other = _with(tactic, dict(zip(fields, (value for _, value in steps), strict=True)))
                if ("M" in fields or "N" in fields) and accumulators(other) > arch.menus[format].accumulators:
                    continue
                near = _near(tactic, own, other, fields, arch, asked)
                if near is not None:
                    far = sum(distance for distance, _ in steps)
                    ways.setdefault(frozenset(near.fields), []).append((far, near))
        # What was found with the number of stages on top has one change more than this round, like the next round.
        if sum(len(found) for way, found in ways.items() if len(way) <= changing) >= count:
            break
    return _ordered(ways)[:count]


def _ordered(ways: dict[frozenset[str], list[tuple[float, Near]]]) -> list[Near]:
    ranked = []
    for way, each in ways.items():
        needless = any(less < way for less in ways)
        each.sort(key=lambda pair: (pair[0], -pair[1].verdict.figures["smem_bytes"], pair[1].tactic.id))
        weights = sorted((FIELDS[field] for field in way), reverse=True)
        for place, (far, near) in enumerate(each):
            order = [_ORDER[field] for field in near.fields]
            ranked.append(((needless, place, len(way), weights, far, order), near))
    ranked.sort(key=lambda pair: pair[0])
    return [near for _, near in ranked]


def _values(tactic: Tactic, arch: ArchSpec, format: str) -> dict[str, list[tuple[float, Any]]]:
    """For each field but the stages its other values, each with its distance from the tactic's."""
    menu = arch.menus[format]
    listed: dict[str, tuple[Any, list[Any]]] = {
        "epilogue_tile": (tactic.epilogue_tile, list(menu.epilogue_tiles)),
        "schedule": (tactic.schedule, list(menu.schedules)),
        "cluster": (tactic.cluster, list(menu.clusters)),
        "swizzle": (tactic.swizzle, [max(swizzle for swizzle in SWIZZLES if swizzle <= tactic.swizzle)]),
    }
    values = {
        field: [(float(place), value) for place, value in enumerate(others) if value != own]
        for field, (own, others) in listed.items()
    }
    for field, sizes in (("K", menu.tile_k), ("N", menu.tile_n), ("M", menu.tile_m)):
        mine = tactic.tile[_TILE.index(field)]
        values[field] = [(abs(math.log2(size / mine)), size) for size in sizes if size != mine]
    return {field: others for field, others in values.items() if others}


def _with(tactic: Tactic, chosen: dict[str, Any]) -> Tactic:
    tile = tuple(chosen.pop(name, size) for name, size in zip(_TILE, tactic.tile, strict=True))
    return replace(tactic, tile=tile, **chosen)


def _near(
    tactic: Tactic, own: Verdict, other: Tactic, fields: tuple[str, ...], arch: ArchSpec, asked: dict[str, Any]
) -> Near | None:
    """``other``, or ``other`` with the number of stages that fits, when it is legal."""
    verdict = legality.check(other, arch=arch, **asked)
    if verdict.kind == OVER or verdict.reason == "stages":
        kernel = smem.storage(other, smem.context(arch, **asked))
        wanted = kernel.auto_stages if tactic.stages is None else tactic.stages
        fit = min(max(wanted, legality.LEAST_STAGES), kernel.most_stages(arch.smem_per_block))
        if fit < legality.LEAST_STAGES:
            return None
        other, fields = replace(other, stages=None if fit == kernel.auto_stages else fit), ("stages", *fields)
        verdict = legality.check(other, arch=arch, **asked)
    if not verdict:
        return None
    fields = tuple(sorted(fields, key=_ORDER.__getitem__))
    before = own.figures.get("smem_bytes")
    difference = None if before is None else verdict.figures["smem_bytes"] - before
    return Near(other, verdict, fields, tuple(_changes(tactic, own, other, verdict, fields)), difference)


def _changes(tactic: Tactic, own: Verdict, other: Tactic, verdict: Verdict, fields: tuple[str, ...]) -> Iterator[str]:
    for field in fields:
        if field == "stages":
            automatic = f"automatic {own.figures['stages']}" if "stages" in own.figures else "automatic"
            yield f"{automatic if tactic.stages is None else tactic.stages} stages to {verdict.figures['stages']}"
        elif field in _TILE:
            place = _TILE.index(field)
            yield f"{field} tile {tactic.tile[place]} to {other.tile[place]}"
        elif field == "schedule":
            yield f"{tactic.schedule} to {other.schedule}"
        else:
            yield f"{field.replace('_', ' ')} {_said(getattr(tactic, field))} to {_said(getattr(other, field))}"


def _said(value: Any) -> str:
    if value is None:
        return "automatic"
    return "x".join(map(str, value)) if isinstance(value, tuple) else str(value)
