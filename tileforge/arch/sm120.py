"""SM120 and SM121 (RTX PRO 6000, RTX 5090, DGX Spark): block-scaled FP4 grouped kernels.

TMA, mma.sync with block scales, no tensor memory, no multicast. Limits: ``cutlass/arch/arch.h`` 4.5.0 and three
devices measured at 101,376 B per block, 102,400 B per SM.
"""

from __future__ import annotations

from functools import lru_cache

from tileforge.arch.spec import ArchSpec, Context, Menu, Rule, Shape, no_layout, swizzle
from tileforge.arch.storage import BARRIER_PAIR, SCHEDULER_STAGES, TENSOR_MAP, Buffers, Storage, swizzle_align
from tileforge.formats import SCALE_ROWS

SMEM_PER_BLOCK = 101_376
_BUILDER = "gemm/collective/builders/sm120_blockscaled_mma_builder.inl"
_EPILOGUE = "epilogue/collective/builders/sm120_builder.inl"
_STORE = "epilogue/collective/sm90_epilogue_array_tma_warpspecialized.hpp"
_BOTH = "CUTLASS 4.2.0 and 4.5.0"

#: ``sm120_compute_tile_shape_or_override``: the automatic epilogue tile, whatever the tile or the output type.
AUTO_EPILOGUE = (64, 32)
#: What the builder of 4.5.0 sets aside beside the epilogue: scheduler barriers, two tensor maps, three barrier pairs.
#: 4.2.0 sets nothing aside.
RESERVE = {"4.2.0": 0, "4.5.0": BARRIER_PAIR * SCHEDULER_STAGES + 2 * TENSOR_MAP + 3 * BARRIER_PAIR}
#: What the builder counts for the barriers of one stage: 4.5.0 rounds them up to 128 B
#: (``sm100_compute_stage_count_or_override_blockscaled`` in sm100_blockscaled_umma_builder.inl).
STAGE_BARRIERS = {"4.2.0": BARRIER_PAIR, "4.5.0": 128}


def _store_tile(shape: Shape, context: Context) -> tuple[int, int]:
    """Rows and columns that all warps of a tile store at once: 4x2 warps of 16x8 cooperative, 2x2 pingpong.

    16-bit outputs leave through stmatrix, which takes two of the 8 columns together.
    """
    return (64 if shape.schedule == "cooperative" else 32), (16 if context.out_bits == 16 else 8)


def _cluster(shape: Shape, _: Context) -> str:
    if shape.cluster == (1, 1):
        return ""
    return f"a cluster of {shape.cluster[0]}x{shape.cluster[1]} needs multicast, which this SM lacks: it must be 1x1"


def _scale_block(shape: Shape, context: Context) -> str:
    vector = context.form.scale_vector or 1
    k = shape.tile[2]
    if k % (4 * vector) == 0:
        return ""
    if k % vector == 0:
        held = f"holds {k // vector} scale factors along K, and they are stored 4 together"
    else:
        held = f"is not a multiple of the {vector} elements that share a scale factor"
    return f"K tile {k} {held}: with {context.form.name} the K tile must be a multiple of {4 * vector}"


def _tile_m(shape: Shape, _: Context) -> str:
    m = shape.tile[0]
    if m % SCALE_ROWS == 0:
        return ""
    stored = m // SCALE_ROWS * SCALE_ROWS
    return f"M tile {m}: scale factors of A are stored in blocks of {SCALE_ROWS} rows, so only {stored} would have any"


def _pingpong_n(shape: Shape, _: Context) -> str:
    if shape.schedule == "pingpong" and shape.tile[1] < 16:
        return f"pingpong needs an N tile of 16 and more (two warps of 8 columns), not {shape.tile[1]}"
    return ""


def _tile_n(shape: Shape, context: Context) -> str:
    n = shape.tile[1]
    if n % SCALE_ROWS == 0:
        return ""
    if n < 32:
        return f"N tile {n}: CUTLASS {context.cutlass} has 32 and more (8 and 16 came upstream after June 2026)"
    if context.cutlass == "4.2.0" or n > SCALE_ROWS:
        stored = n // SCALE_ROWS * SCALE_ROWS
        return f"N tile {n}: CUTLASS {context.cutlass} would store scale factors of B for {stored} columns only"
    if SCALE_ROWS % n:
        return f"N tile {n} does not divide the {SCALE_ROWS} columns that one block of B's scale factors covers"
    return ""


def _epilogue_tile(shape: Shape, context: Context) -> str:
    m, n = shape.epilogue_tile or AUTO_EPILOGUE
    tile_m, tile_n, _ = shape.tile
    store_m, store_n = _store_tile(shape, context)
    if tile_m % m or tile_n % n:
        return f"epilogue tile {m}x{n} does not divide the tile {tile_m}x{tile_n}"
    if m % store_m:
        return f"epilogue tile {m}x{n}: {shape.schedule} warps store {store_m} rows at once, M must be a multiple"
    if n % store_n:
        return f"epilogue tile {m}x{n}: the warps store {store_n} columns at once, N must be a multiple"
    return no_layout((m, n), shape.swap_ab, context)


@lru_cache(maxsize=4096)
def _buffers(
    tile_m: int, tile_n: int, epilogue_tile: tuple[int, int] | None, swap_ab: bool, context: Context
) -> Buffers:
    """``sm120_get_tma_dispatch_policy`` and ``CollectiveEpilogue::SharedStorage``: how many buffers C and D have."""
    m, n = epilogue_tile or AUTO_EPILOGUE
    tiles = (tile_m // m) * (tile_n // n)
    contiguous = m if swap_ab else n
    stages = min(tiles, 2)
    d = ("epilogue D", stages * (m * n * context.out_bits // 8), swizzle_align(contiguous, context.out_bits))
    if context.epilogue == "finalize":
        # D is void and scattered to global memory, so nothing is shared and C, of the output's type, has buffers of
        # its own; what runs along the tile's N is kept as a row, the bias of the output's type or, with swapped
        # operands, the float32 scales (Sm90RowBroadcast in epilogue/fusion/sm90_visitor_load_tma_warpspecialized.hpp)
        fusion, bits = ("scale row", 32) if swap_ab else ("bias row", context.out_bits)
        return Buffers.of((("epilogue C", *d[1:]), d), stages, fusion, tile_n * bits // 8)
    if not context.c:  # C is void
        return Buffers.of((d,), stages)
    if context.c_bits == context.out_bits:  # C and D share their buffers
        shared = stages + 1
        return Buffers.of((("epilogue C and D", d[1] // stages * shared, d[2]),), shared)
    c = ("epilogue C", stages * (m * n * context.c_bits // 8), swizzle_align(contiguous, context.c_bits))
    return Buffers.of((c, d), stages)


@lru_cache(maxsize=4096)
def _parts(tile: tuple[int, int, int], swap_ab: bool, context: Context) -> tuple[tuple[tuple[str, int, int], ...], int]:
    """The mainloop's tiles, (name, bytes a stage, alignment), and what the builder counts for one stage."""
    m, n, k = tile
    form = context.form
    vector = form.scale_vector or 1
    columns = n // SCALE_ROWS * SCALE_ROWS if context.cutlass == "4.2.0" else max(n, SCALE_ROWS)
    bits_a, bits_b = form.smem_a_bits, form.smem_b_bits
    if swap_ab:
        bits_a, bits_b = bits_b, bits_a
    parts = (
        ("A tiles", m * k * bits_a // 8, 1024),
        ("B tiles", n * k * bits_b // 8, 1024),
        ("A scales", m * k // vector, 16),
        ("B scales", columns * k // vector, 16),
    )
    return parts, sum([size for _, size, _ in parts]) + STAGE_BARRIERS[context.cutlass]


def storage(shape: Shape, context: Context) -> Storage:
    parts, stage_bytes = _parts(shape.tile, shape.swap_ab, context)
    epilogue = _buffers(shape.tile[0], shape.tile[1], shape.epilogue_tile, shape.swap_ab, context)
    room = SMEM_PER_BLOCK - RESERVE[context.cutlass] - epilogue.storage
    return Storage(
        parts=parts,
        align=1024,
        epilogue=epilogue,
        epilogue_tile=shape.epilogue_tile or AUTO_EPILOGUE,
        pingpong=shape.schedule == "pingpong",
        maps=TENSOR_MAP * (4 + 3),
        stage_bytes=stage_bytes,
        auto_stages=max(room // stage_bytes, 0),
    )


def unconfirmed(shape: Shape, _: Context) -> str:
    m, n, k = shape.tile
    if m not in (128, 256) or n not in (32, 64, 128, 256) or k not in (64, 128, 256):
        return f"tile {m}x{n}x{k} was not compared with the compiler (M 128, 256; N 32 to 256; K 64 to 256 were)"
    return ""


_FP4 = Menu(
    tile_m=(128, 256),
    tile_n=(8, 16, 32, 64, 128, 256),
    tile_k=(64, 128, 256),
    clusters=((1, 1),),
    schedules=("cooperative", "pingpong"),
    epilogue_tiles=(None, (64, 16), (64, 64), (128, 32), (32, 32)),
    most_stages=8,
)

SM120 = ArchSpec(
    name="sm120",
    sm=120,
    nvcc_arch="sm_120a",
    kernels="sm120",
    formats=("nvfp4", "mxfp4", "mxfp8_mxfp4"),
    smem_per_block=SMEM_PER_BLOCK,
    smem_per_sm=102_400,
    smem_reserved=1024,
    cutlass=("4.2.0", "4.5.0"),
    epilogues=("plain", "finalize"),
    menus={"nvfp4": _FP4, "mxfp4": _FP4, "mxfp8_mxfp4": _FP4},
    rules=(
        Rule("cluster", _cluster, f"{_BUILDER}: no programmatic multicast on this arch, {_BOTH}"),
        Rule("scale_block", _scale_block, f"{_BUILDER}: sSF_shapeK counts whole blocks of 4 (Blk_SF), {_BOTH}"),
        Rule("tile_m", _tile_m, f"{_BUILDER}: sSFA_shapeM counts whole blocks of 128 (Blk_MN), {_BOTH}"),
        Rule("pingpong_n", _pingpong_n, "upstream CUTLASS after 4.5.0, NVIDIA/cutlass#3292"),
        Rule("tile_n", _tile_n, f"{_BUILDER}: N >= 32; sSFBTileShape_N, CUTLASS 4.5.0; N / Blk_MN, CUTLASS 4.2.0"),
        Rule("epilogue_tile", _epilogue_tile, f"{_EPILOGUE}: must divide the tile; {_STORE}: store(), {_BOTH}"),
        Rule("swizzle", swizzle, "kernels/abi.h: max_swizzle; gemm/kernel/tile_scheduler_params.h, CUTLASS 4.5.0"),
    ),
    storage=storage,
    unconfirmed=unconfirmed,
)
