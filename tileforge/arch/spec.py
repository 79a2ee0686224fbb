"""What an SM is to tileforge: limits, menus, ordered rules and the layout of its kernels' shared memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from tileforge.arch.storage import Storage, swizzle_align
from tileforge.formats import Format
from tileforge.tactic import SWIZZLES, Tactic

#: What the epilogue does beside scaling by alpha (and adding a C operand): nothing, or FlashInfer's fused MoE finalize.
EPILOGUES = ("plain", "finalize")


class Shape(NamedTuple):
    """The fields of a tactic that rules and layouts look at, by the names that Tactic gives them.

    All but ``stages``, which only the bytes depend on, and ``raster``, of which every value is legal: so one answer
    serves all stage counts.
    """

    tile: tuple[int, int, int]
    cluster: tuple[int, int]
    schedule: str
    epilogue_tile: tuple[int, int] | None
    swap_ab: bool
    swizzle: int

    @classmethod
    def of(cls, tactic: Tactic) -> Shape:
        return cls(
            tactic.tile, tactic.cluster, tactic.schedule, tactic.epilogue_tile, tactic.swap_ab, tactic.swizzle
        )  # fmt: skip


@dataclass(frozen=True, eq=False, slots=True)
class Context:
    """Everything a rule looks at beside the tactic.

    ``out`` is the output type, ``out_bits`` its size; ``c`` the C operand's type, ``c_bits`` its size ("" and 0: none).
    """

    arch: ArchSpec
    form: Format
    out: str
    out_bits: int
    cutlass: str
    epilogue: str
    c: str
    c_bits: int


@dataclass(frozen=True)
class Rule:
    """One reason why a tactic cannot be built or would be wrong.

    ``broken(shape, context)`` answers ``""`` or one sentence with the figures; ``source`` names the file and the
    CUTLASS versions that the rule was read in.
    """

    code: str
    broken: Callable[[Shape, Context], str]
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
    that the rules hold. ``unconfirmed(shape, context)`` says why a tactic that breaks no rule is still outside what
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
    unconfirmed: Callable[[Shape, Context], str]


def accumulators(tactic: Tactic | Shape) -> int:
    """Float32 accumulators per thread: cooperative spreads the tile over 256 threads, pingpong over 128."""
    return tactic.tile[0] * tactic.tile[1] // (256 if tactic.schedule == "cooperative" else 128)


def swizzle(shape: Shape, _: Context) -> str:
    """The rule on a run-time field; all SMs share it."""
    if shape.swizzle in SWIZZLES:
        return ""
    return f"max swizzle {shape.swizzle}: use one of {', '.join(map(str, SWIZZLES))}"


def no_layout(epilogue_tile: tuple[int, int], swap_ab: bool, context: Context) -> str:
    """Why a buffer of the epilogue tile has no layout in shared memory, or ``""``; all SMs share this rule."""
    m, n = epilogue_tile
    for name, bits in ((context.out, context.out_bits), (context.c, context.c_bits)):
        if bits and not swizzle_align(m if swap_ab else n, bits):
            return f"epilogue tile {m}x{n}: a row of {name} must be a multiple of 16 bytes"
    return ""
