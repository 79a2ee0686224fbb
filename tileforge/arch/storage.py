"""The shared memory of one CUTLASS 3.x warp-specialized grouped kernel, laid out as the compiler lays it out.

Read in ``gemm/kernel/sm90_gemm_array_tma_warpspecialized_{cooperative,pingpong}.hpp`` and
``epilogue/collective/sm90_epilogue_array_tma_warpspecialized.hpp``, CUTLASS 4.2.0 and 4.5.0 (the same in both; SM120
uses these kernels too). ``GemmKernel::SharedStorage`` is, in this order:

1. tensors: the mainloop's operand (and scale) tiles of all stages, then the epilogue's C and D buffers;
2. pipelines: the barriers of tile scheduler, mainloop, epilogue load, load order and, pingpong only, math order;
3. the tile scheduler's responses;
4. tensor maps: one TMA descriptor for each operand, for C, and for D once per epilogue warp group;

each on its own alignment, the whole rounded up to the largest of them.
"""

from __future__ import annotations

from typing import NamedTuple

#: Tile scheduler stages of grouped kernels (``SchedulerPipelineStageCount``) and bytes of a full + empty barrier pair.
SCHEDULER_STAGES = 8
BARRIER_PAIR = 16
#: Bytes of ``PersistentTileSchedulerSm90Group::WorkTileInfo`` and of ``cute::TmaDescriptor``.
WORK_TILE = 16
TENSOR_MAP = 128
#: Epilogue warp groups of the pointer-array schedules, each with its own tensor map of D.
EPILOGUE_WARP_GROUPS = 2
#: ``OrderedSequenceBarrier<1, 2>`` of the load warps and ``<2, 2>`` of pingpong's math warp groups.
LOAD_ORDER = 16
MATH_ORDER = 32


def up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


class Buffers(NamedTuple):
    """The epilogue's C and D buffers and what its fusion keeps, (name, bytes) in order, with ``stages_c`` load stages.

    ``tensors``: ``sizeof(Epilogue::TensorStorage)``. ``storage``: ``sizeof(Epilogue::SharedStorage)``, which is what
    the builders set aside for the epilogue.
    """

    parts: tuple[tuple[str, int], ...]
    align: int
    stages_c: int
    tensors: int
    storage: int

    @classmethod
    def of(cls, buffers: tuple[tuple[str, int, int], ...], stages_c: int, fusion: str = "", row: int = 0) -> Buffers:
        """``buffers``: (name, bytes, alignment) in order; ``row`` bytes of ``fusion`` follow them.

        An alignment of 0 says that there is no layout. A fusion that keeps nothing still takes a byte.
        """
        offset, aligns = 0, [align for _, _, align in buffers]
        for _, size, align in buffers:
            offset = up(offset, align or 1) + size
        rounded = max(aligns)
        parts = tuple([(name, size) for name, size, _ in buffers]) + (((fusion, row),) if row else ())
        tensors = up(up(offset, rounded or 1) + (row or 1), rounded or 1)
        maps = TENSOR_MAP * (1 + EPILOGUE_WARP_GROUPS)
        storage = up(up(tensors, TENSOR_MAP) + maps + BARRIER_PAIR * stages_c, max(rounded, TENSOR_MAP))
        return cls(parts, rounded if all(aligns) else 0, stages_c, tensors, storage)


class Storage(NamedTuple):
    """One kernel's shared memory before the number of stages is chosen. All sizes in bytes.

    ``parts``: (name, bytes a stage, alignment) of the mainloop's tiles, in order. ``auto_stages``: the count that
    CUTLASS's builder takes by its own reckoning, which may be 0 and may overshoot. ``stage_bytes``: what the builder
    counts for one stage.
    """

    parts: tuple[tuple[str, int, int], ...]
    align: int
    epilogue: Buffers
    epilogue_tile: tuple[int, int]
    pingpong: bool
    maps: int
    stage_bytes: int
    auto_stages: int

    def mainloop_bytes(self, stages: int) -> int:
        """``sizeof(Mainloop::TensorStorage)``."""
        offset = 0
        for _, size, align in self.parts:
            offset = -(-offset // align) * align + size * stages
        return -(-offset // self.align) * self.align

    def total(self, stages: int) -> int:
        """``sizeof(GemmKernel::SharedStorage)``: the bytes that the launch asks for."""
        epilogue = self.epilogue
        align = max(self.align, epilogue.align, TENSOR_MAP)
        tensors = up(up(self.mainloop_bytes(stages), epilogue.align or 1) + epilogue.tensors, align)
        offset = tensors + self._pipelines(stages) + SCHEDULER_STAGES * WORK_TILE
        return up(up(offset, TENSOR_MAP) + self.maps, align)

    def _pipelines(self, stages: int) -> int:
        pairs = SCHEDULER_STAGES + stages + self.epilogue.stages_c
        return BARRIER_PAIR * pairs + LOAD_ORDER + (MATH_ORDER if self.pingpong else 0)

    def terms(self, stages: int) -> dict[str, int]:
        """Named terms that sum to :meth:`total`; ``alignment`` is everything lost to rounding."""
        terms = {name: size * stages for name, size, _ in self.parts}
        terms.update(self.epilogue.parts)
        terms["pipelines"] = self._pipelines(stages)
        terms["tile scheduler"] = SCHEDULER_STAGES * WORK_TILE
        terms["tensor maps"] = self.maps
        terms["alignment"] = self.total(stages) - sum(terms.values())
        return terms

    def most_stages(self, limit: int) -> int:
        """The largest number of stages whose kernel fits into ``limit`` bytes; 0 when not even one does."""
        stages = (limit - self.total(0)) // sum([size for _, size, _ in self.parts]) + 1
        while stages > 0 and self.total(stages) > limit:
            stages -= 1
        return max(stages, 0)


def swizzle_align(contiguous: int, bits: int) -> int:
    """Alignment of an epilogue buffer whose contiguous extent is ``contiguous`` elements of ``bits`` bits.

    ``ss_smem_selector`` in ``gemm/collective/builders/sm90_common.inl`` takes the widest swizzle whose rows of 128,
    64, 32 or 16 bytes divide the extent; ``alignment_for_swizzle`` in ``detail/layout.hpp`` then asks for 8 rows
    (CUTLASS 4.2.0 and 4.5.0). 0 when not even 16 bytes divide it: no such layout exists.
    """
    for row in (128, 64, 32, 16):
        if contiguous * bits % (row * 8) == 0:
            return row * 8
    return 0
