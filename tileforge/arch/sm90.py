"""SM90 (Hopper: H100, H200): dense bf16 and fp8 grouped kernels, TMA with multicast and WGMMA."""

from __future__ import annotations

from tileforge.arch.spec import ArchSpec, Context, Menu, Rule, Shape, no_layout, swizzle
from tileforge.arch.storage import BARRIER_PAIR, SCHEDULER_STAGES, TENSOR_MAP, Buffers, Storage, swizzle_align, up

SMEM_PER_BLOCK = 232_448
_BUILDER = "gemm/collective/builders/sm90_gmma_builder.inl"
_EPILOGUE = "epilogue/collective/builders/sm90_builder.inl"
_STORE = "epilogue/collective/sm90_epilogue_array_tma_warpspecialized.hpp"
_WGMMA = "cute/arch/mma_sm90.hpp: ss_op_selector"
_BOTH = "CUTLASS 4.2.0 and 4.5.0"

#: N of the WGMMA instructions that ``ss_op_selector`` tries, widest first.
WGMMA_N = (256, 192, 128, 96, 64, 32, 16, 8)
#: What the builder sets aside beside the epilogue: two tensor maps and the scheduler's barriers.
RESERVE = 2 * TENSOR_MAP + BARRIER_PAIR * SCHEDULER_STAGES


def _rows(shape: Shape) -> int:
    """Rows of the tile that the warp groups work on at once: two groups of 64 cooperative, one pingpong."""
    return 128 if shape.schedule == "cooperative" else 64


def _wgmma_n(tile_n: int) -> int:
    return next((n for n in WGMMA_N if tile_n % n == 0), 1)


def auto_epilogue(shape: Shape) -> tuple[int, int]:
    """``sm90_compute_tile_shape_or_override``: gcd(min(32, N), N) columns."""
    n = shape.tile[1]
    return _rows(shape), next(width for width in (32, 16, 8, 4, 2, 1) if n % width == 0)


def _tile_m(shape: Shape, _: Context) -> str:
    m, rows = shape.tile[0], _rows(shape)
    if m % rows == 0:
        return ""
    why = "two warp groups of 64 rows" if shape.schedule == "cooperative" else "one warp group of 64 rows"
    return f"M tile {m}: {shape.schedule} puts {why} on a tile, so M must be a multiple of {rows}"


def _tile_n(shape: Shape, _: Context) -> str:
    n = shape.tile[1]
    if n % 16 == 0 or (n == 8 and not shape.swap_ab):
        return ""
    if n % 8:
        return f"N tile {n}: WGMMA takes multiples of 8 columns"
    return f"N tile {n}: the epilogue's stores cover 16 columns at once, so N must be a multiple of 16"


def _tile_k(shape: Shape, context: Context) -> str:
    step = 256 // context.form.smem_a_bits
    if shape.tile[2] % step == 0:
        return ""
    return f"K tile {shape.tile[2]}: one {context.form.name} WGMMA takes {step} along K, so it must be a multiple"


def _cluster(shape: Shape, _: Context) -> str:
    m, n = shape.cluster
    if m * n <= 8 and m & (m - 1) == 0 and n & (n - 1) == 0:
        return ""
    return f"cluster {m}x{n}: sizes must be powers of two, and at most 8 blocks are portable"


def _multicast(shape: Shape, _: Context) -> str:
    """Each block of a cluster row or column loads its share of the tile and sends it to the others."""
    (tile_m, tile_n, _k), (cluster_m, cluster_n) = shape.tile, shape.cluster
    if tile_m % (8 * cluster_n):
        return f"cluster {cluster_m}x{cluster_n} cuts the M tile {tile_m} into shares that are not multiples of 8 rows"
    if tile_n % (8 * cluster_m):
        return f"cluster {cluster_m}x{cluster_n} cuts the N tile {tile_n} into shares that are not multiples of 8 rows"
    return ""


def _epilogue_tile(shape: Shape, context: Context) -> str:
    m, n = shape.epilogue_tile or auto_epilogue(shape)
    tile_m, tile_n, _ = shape.tile
    rows, columns = _rows(shape), _wgmma_n(tile_n)
    if m != rows:
        return f"epilogue tile {m}x{n}: {shape.schedule} stores {rows} rows at once, so M must be {rows}"
    if tile_m % m or tile_n % n:
        return f"epilogue tile {m}x{n} does not divide the tile {tile_m}x{tile_n}"
    if shape.epilogue_tile is not None and n % 16:
        return f"epilogue tile {m}x{n}: N must be a multiple of 16"
    if n % columns and columns % n:
        return f"epilogue tile {m}x{n} cuts across the {columns} columns of one WGMMA"
    return no_layout((m, n), shape.swap_ab, context)


def _buffers(shape: Shape, context: Context) -> Buffers:
    """``sm90_get_tma_dispatch_policy`` and ``CollectiveEpilogue::SharedStorage``: how many buffers C and D have."""
    m, n = shape.epilogue_tile or auto_epilogue(shape)
    tiles = (shape.tile[0] // m) * (shape.tile[1] // n)
    contiguous = m if shape.swap_ab else n
    stages_c, stages_d = min(tiles, 4), min(tiles, 2)
    d = ("epilogue D", stages_d * (m * n * context.out_bits // 8), swizzle_align(contiguous, context.out_bits))
    if not context.c:  # C is void
        return Buffers.of((d,), stages_c)
    if context.c_bits == context.out_bits:  # C and D share their buffers
        stages_c = max(stages_c, stages_d + 1)
        return Buffers.of((("epilogue C and D", d[1] // stages_d * stages_c, d[2]),), stages_c)
    c = ("epilogue C", stages_c * (m * n * context.c_bits // 8), swizzle_align(contiguous, context.c_bits))
    return Buffers.of((c, d), stages_c)


def storage(shape: Shape, context: Context) -> Storage:
    m, n, k = shape.tile
    form = context.form
    parts = (("A tiles", m * k * form.smem_a_bits // 8, 128), ("B tiles", n * k * form.smem_b_bits // 8, 128))
    epilogue = _buffers(shape, context)
    stage_bytes = up(sum([size for _, size, _ in parts]), 128) + BARRIER_PAIR
    room = (SMEM_PER_BLOCK - RESERVE) // 128 * 128 - up(epilogue.storage, 128)
    return Storage(
        parts=parts,
        align=128,
        epilogue=epilogue,
        epilogue_tile=shape.epilogue_tile or auto_epilogue(shape),
        pingpong=shape.schedule == "pingpong",
        maps=TENSOR_MAP * (2 + 3),
        stage_bytes=stage_bytes,
        auto_stages=max(room // stage_bytes, 0),
    )


def unconfirmed(shape: Shape, context: Context) -> str:
    m, n, k = shape.tile
    if m > 256 or n > 256 or k * context.form.smem_a_bits > 256 * 16:
        return f"tile {m}x{n}x{k} was not compared with the compiler (M, N and K up to 256 were)"
    if shape.cluster not in ((1, 1), (2, 1), (1, 2)):
        return f"cluster {shape.cluster[0]}x{shape.cluster[1]} was not compared with the compiler (1x1, 2x1, 1x2)"
    if n % 16:
        return f"an N tile of {n} with stores of 8 columns was not compiled in full"
    return ""


def _menu(*tile_k: int) -> Menu:
    return Menu(
        tile_m=(64, 128, 256),
        tile_n=(16, 32, 64, 96, 128, 192, 256),
        tile_k=tile_k,
        clusters=((1, 1), (2, 1), (1, 2)),
        schedules=("cooperative", "pingpong"),
        epilogue_tiles=(None,),
        most_stages=8,
    )


SM90 = ArchSpec(
    name="sm90",
    sm=90,
    nvcc_arch="sm_90a",
    kernels="sm90",
    formats=("bf16", "fp8"),
    smem_per_block=SMEM_PER_BLOCK,
    smem_per_sm=233_472,
    smem_reserved=1024,
    cutlass=("4.2.0", "4.5.0"),
    epilogues=("plain",),
    menus={"bf16": _menu(64, 128, 256), "fp8": _menu(64, 128, 256)},
    rules=(
        Rule("cluster", _cluster, f"CUDA programming guide, thread block clusters; {_BUILDER}, {_BOTH}"),
        Rule("tile_m", _tile_m, f"{_BUILDER}: AtomLayoutMNK, and size<0>(TileShape) >= 128 cooperative, {_BOTH}"),
        Rule("tile_n", _tile_n, f"{_WGMMA}; {_EPILOGUE}: CopyAtomC, {_BOTH}"),
        Rule("tile_k", _tile_k, f"{_WGMMA}, {_BOTH}"),
        Rule("multicast", _multicast, f"{_BUILDER}: sm90_cluster_shape_to_tma_atom, swizzle atoms of 8 rows, {_BOTH}"),
        Rule("epilogue_tile", _epilogue_tile, f"{_EPILOGUE}: Unsupported tile shape; {_STORE}: store(), {_BOTH}"),
        Rule("swizzle", swizzle, "kernels/abi.h: max_swizzle; gemm/kernel/tile_scheduler_params.h, CUTLASS 4.5.0"),
    ),
    storage=storage,
    unconfirmed=unconfirmed,
)
