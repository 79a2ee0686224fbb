"""What an SM is to tileforge: limits, menus, ordered rules and the layout of its kernels' shared memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from tileforge.arch.storage import Storage
from tileforge.formats import Format
from tileforge.tactic import SWIZZLES, Tactic

#: What the epilogue does beside scaling by alpha: nothing, read a C operand, or FlashInfer's fused MoE finalize.
EPILOGUES = ("plain", "c", "finalize")


class Shape(NamedTuple):
    """The fields of a tactic that the layout of shared memory depends on, by the names that Tactic gives them."""

    tile: tuple[int, int, int]
    schedule: str
    swap_ab: bool
    epilogue_tile: tuple[int, int] | None


@dataclass(frozen=True, eq=False, slots=True)
class Context:
    """Everything a rule looks at beside the tactic. ``out`` is the output type, ``out_bits`` its size."""

    arch: ArchSpec
    form: Format
    out: str
    out_bits: int
    cutlass: str
    epilogue: str


@dataclass(frozen=True)
class Rule:
    """One reason why a tactic cannot be built or would be wrong.

    ``broken(tactic, context)`` answers ``""`` or one sentence with the figures; ``source`` names the file and the
    CUTLASS versions that the rule was read in.
    """

    code: str
    broken: Callable[[Tactic, Context], str]
    source: str


@dataclass(frozen=True)
class Menu:
    """The values that the space of one format takes for each compile-time field.

    ``epilogue_tiles``: None is CUTLASS's own choice. ``most_stages``: explicit stage counts end here even where more
    would fit. ``accumulators``: float32 accumulators per thread that leave registers for the rest; tiles above it
    instantiate, and then spill them all in the main loop, so they are left out of the space (they are not illegal).
    """

    tile_m: tuple[int, ...]
    tile_n: tuple[int, ...]
    tile_k: tuple[int, ...]
    clusters: tuple[tuple[int, int], ...]
    schedules: tuple[str, ...]
    epilogue_tiles: tuple[tuple[int, int] | None, ...]
    most_stages: int
    accumulators: int = 192


@dataclass(frozen=True, eq=False)
class ArchSpec:
    """One SM. Shared-memory figures in bytes; ``smem_reserved`` is what the driver keeps per resident block.

    ``cutlass`` lists the versions that rules and storage were read in and checked against the compiler; for any
    other version the answer is ``unknown``. ``epilogues`` are those checked. ``storage(shape, context)`` assumes
    that the rules hold. ``unconfirmed(tactic, context)`` says why a tactic that breaks no rule is still outside what
    was compared with the compiler, or ``""``.
    """

    name: str
    sm: int
    nvcc_arch: str
    kernels: str
    formats: tuple[str, ...]
    smem_per_block: int
    smem_per_sm: int
    smem_reserved: int
    cutlass: tuple[str, ...]
    epilogues: tuple[str, ...]
    menus: Mapping[str, Menu]
    rules: tuple[Rule, ...]
    storage: Callable[[Shape, Context], Storage]
    unconfirmed: Callable[[Tactic, Context], str]


def accumulators(tactic: Tactic) -> int:
    """Float32 accumulators per thread: cooperative spreads the tile over 256 threads, pingpong over 128."""
    return tactic.tile[0] * tactic.tile[1] // (256 if tactic.schedule == "cooperative" else 128)


def swizzle(tactic: Tactic, _: Context) -> str:
    """The one rule that all SMs share."""
    if tactic.swizzle in SWIZZLES:
        return ""
    return f"max swizzle {tactic.swizzle}: use one of {', '.join(map(str, SWIZZLES))}"
