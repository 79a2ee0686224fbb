"""The tactics of FlashInfer's grouped GEMMs on SM120 and SM121, by structure, and which of them cannot launch.

``cutlass_fused_moe(..., profile_ids=[gemm1, gemm2])`` takes positions in one list: GEMM1's tactics, then GEMM2's.
GEMM1 has each tile plain, then each with swapped operands; GEMM2 has plain, finalize, and both again swapped. Positions
change between releases, so a position is given only for a release whose list is known, and :func:`resolve` refuses when
the running library counts differently. ``group_gemm_*_nt_groupwise`` takes the tile as arguments: no positions.

What each becomes, read in 0.7.4 and held by ``tests/data/flashinfer_tactics.json``, where FlashInfer's own C++ lists
the tactics and the compiler says what its types come to: cooperative (``KernelScheduleAuto``), cluster 1x1, automatic
epilogue tile, automatic stages beside the epilogue's SharedStorage, which nobody can override. MoE epilogues have a C
operand of the output's type, fused or not, and never read it; the group GEMMs have none. Scale factors are
ue4m3 over 16 elements (nvfp4) or ue8m0 over 32 (mxfp8_mxfp4). There is no mxfp4 x mxfp4.

Sources in FlashInfer 0.7.4's ``data/csrc``, MoE ones in ``nv_internal/tensorrt_llm/kernels/cutlass_kernels``:
``cutlass_heuristic.cpp`` (get_candidate_configs_sm120), ``moe_gemm/moe_gemm_template_dispatch.h``
(getTmaWarpSpecializedConfigs), ``moe_gemm/launchers/moe_gemm_tma_ws_launcher.inl``;
``fused_moe/cutlass_backend/flashinfer_cutlass_fused_moe_binding.cu`` (setRunnerProfiles);
``group_gemm_{nvfp4,mxfp4}_groupwise_sm120_kernel_inst.jinja``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from tileforge import legality, smem
from tileforge.arch import SM120, ArchSpec
from tileforge.errors import InputError
from tileforge.formats import get_format
from tileforge.tactic import Tactic
from tileforge.verdict import ILLEGAL, OVER, Verdict

Tile = tuple[int, int, int]

#: The entry point whose tactics have positions.
MOE = "cutlass_fused_moe"
#: The release spoken of when none is named.
VERSION = "0.7.4"
#: Both entry points write 16-bit outputs only.
OUTS = ("bf16", "fp16")


@dataclass(frozen=True)
class Release:
    """What one FlashInfer release has for SM120. Tiles in elements, in FlashInfer's order, by format.

    ``cutlass``: the CUTLASS that it ships and compiles with. ``group_gemms``: entry point and tiles.
    """

    cutlass: str
    moe: Mapping[str, tuple[Tile, ...]]
    group_gemms: Mapping[str, tuple[str, tuple[Tile, ...]]]


_NVFP4_MOE = (
    (128, 128, 256), (128, 128, 128), (256, 128, 128), (128, 256, 128),
    (128, 32, 256), (128, 32, 128), (128, 64, 256), (128, 64, 128),
)  # fmt: skip

RELEASES: dict[str, Release] = {
    "0.7.4": Release(
        cutlass="4.5.0",
        moe={"nvfp4": _NVFP4_MOE, "mxfp8_mxfp4": ((128, 128, 128), (128, 32, 128), (128, 64, 128))},
        group_gemms={
            "nvfp4": (
                "group_gemm_nvfp4_nt_groupwise",
                tuple((128, n, k) for n in (32, 64, 128) for k in (128, 256)),
            ),
            "mxfp8_mxfp4": ("group_gemm_mxfp8_mxfp4_nt_groupwise", tuple((128, n, 128) for n in (32, 64, 128))),
        },
    )
}


@dataclass(frozen=True, slots=True)
class FlashInferTactic:
    """One kernel of FlashInfer, by structure.

    ``gemm``: ``gemm1`` or ``gemm2`` of ``cutlass_fused_moe``, or the name of a group GEMM's entry point. ``position``:
    what ``profile_ids`` takes, counted over both GEMMs; None where tactics are chosen by argument. ``tile``: MNK in
    elements, of the kernel (with ``swap_ab`` M runs over the weights' rows). ``c``: type of the C operand, or None.
    """

    gemm: str
    position: int | None
    format: str
    out: str
    tile: Tile
    swap_ab: bool
    epilogue: str
    c: str | None
    schedule: str = "cooperative"

    @property
    def tactic(self) -> Tactic:
        """The same as a tileforge tactic; stages and epilogue tile automatic, as FlashInfer has them."""
        return Tactic(self.tile, schedule=self.schedule, swap_ab=self.swap_ab)

    @property
    def structure(self) -> str:
        """``gemm2 256x128x128_c1x1_coop finalize``: what names it in every release."""
        return f"{self.gemm} {self.tactic.id} {self.epilogue}"

    def verdict(self, arch: ArchSpec = SM120, cutlass: str | None = None) -> Verdict:
        """Whether it can launch on ``arch``; ``cutlass`` None is what the newest known release ships."""
        return legality.check(
            self.tactic,
            arch=_sm120(arch),
            format=self.format,
            out=self.out,
            cutlass=cutlass or RELEASES[VERSION].cutlass,
            epilogue=self.epilogue,
            c=self.c,
        )


Judged = tuple[FlashInferTactic, Verdict]


def release(version: str = VERSION) -> Release:
    """What is known of a release. Raises InputError for one whose list is not: positions are never guessed."""
    if version not in RELEASES:
        raise InputError(
            f"the tactics of FlashInfer {version} and their positions are not known, only those of "
            f"{' and '.join(RELEASES)}: name tactics by structure, or record that release's list "
            "(tests/data/record_flashinfer_tactics.py)"
        )
    return RELEASES[version]


def tactics(
    format: str, out: str = "bf16", version: str = VERSION, *, entry: str = MOE, fused_finalize: bool = True
) -> tuple[FlashInferTactic, ...]:
    """All tactics of ``cutlass_fused_moe`` in FlashInfer's order, or of the group GEMM with ``entry="group_gemm"``.

    ``fused_finalize``: what the caller passes as ``use_fused_finalize``. False (FlashInfer's default under
    ``torch.use_deterministic_algorithms``) takes the finalize tactics out of the list, which moves positions.
    Raises InputError for a release that is not known and for what it has no kernels for.
    """
    known = release(version)
    get_format(format)
    menu = known.moe if entry == MOE else known.group_gemms
    if entry not in (MOE, "group_gemm"):
        raise InputError(f"unknown entry point {entry!r}: use {MOE} or group_gemm")
    if format not in menu or out not in OUTS:
        raise InputError(
            f"FlashInfer {version} has no {format} to {out} kernels on SM120: its formats are {', '.join(menu)}, "
            f"its outputs {', '.join(OUTS)}"
        )
    if entry == MOE:
        return tuple(_moe(known.moe[format], format, out, fused_finalize))
    name, tiles = known.group_gemms[format]
    return tuple(
        FlashInferTactic(name, None, format, out, tile, swap_ab, "plain", None)
        for tile in tiles
        for swap_ab in (False, True)
    )


def _moe(tiles: tuple[Tile, ...], format: str, out: str, fused_finalize: bool) -> Iterator[FlashInferTactic]:
    position = 0
    for gemm, epilogues in (("gemm1", ("plain",)), ("gemm2", ("plain", "finalize")[: 1 + fused_finalize])):
        for swap_ab in (False, True):
            for epilogue in epilogues:
                for tile in tiles:
                    yield FlashInferTactic(gemm, position, format, out, tile, swap_ab, epilogue, c=out)
                    position += 1


def verdicts(
    arch: ArchSpec,
    format: str,
    out: str = "bf16",
    version: str = VERSION,
    *,
    cutlass: str | None = None,
    entry: str = MOE,
    fused_finalize: bool = True,
) -> tuple[Judged, ...]:
    """Each tactic of the list with its verdict. ``cutlass`` None: the version that the release ships."""
    chosen = cutlass or release(version).cutlass
    listed = tactics(format, out, version, entry=entry, fused_finalize=fused_finalize)
    return tuple((each, each.verdict(arch, chosen)) for each in listed)


def launchable(
    arch: ArchSpec, format: str, out: str = "bf16", cutlass: str | None = None, version: str = VERSION
) -> tuple[Judged, ...]:
    """Tactics of ``cutlass_fused_moe`` that are known to launch: their positions are safe as ``profile_ids``."""
    return tuple(pair for pair in verdicts(arch, format, out, version, cutlass=cutlass) if pair[1])


def cannot_launch(
    arch: ArchSpec, format: str, out: str = "bf16", cutlass: str | None = None, version: str = VERSION
) -> tuple[Judged, ...]:
    """Those that are known not to launch. What is unknown (another CUTLASS) is in neither list."""
    judged = verdicts(arch, format, out, version, cutlass=cutlass)
    return tuple(pair for pair in judged if pair[1].kind in (OVER, ILLEGAL))


def instead(tactic: FlashInferTactic, judged: tuple[Judged, ...]) -> tuple[FlashInferTactic, ...]:
    """Tactics of the same GEMM with the same tile that do launch: another epilogue, or swapped operands."""
    return tuple(each for each, verdict in judged if verdict and (each.gemm, each.tile) == (tactic.gemm, tactic.tile))


def resolve(
    tactic: Tactic, gemm: str, counts: tuple[int, int], *, format: str, epilogue: str = "plain", version: str = VERSION
) -> int:
    """The position of a tactic for ``profile_ids``, found by structure.

    Its run-time fields do not count: FlashInfer's MoE always rasters along N with swizzle 1.
    ``counts``: ``get_gemm1_tactic_count()`` and ``get_gemm2_tactic_count()`` of the running library's MoE runner.
    Raises InputError when no known list of ``version`` has these counts (a fast build, a changed release: its positions
    would mean other tactics), when the list has no such tactic, and when the tactic cannot launch.
    """
    for fused_finalize in (True, False):
        listed = tactics(format, "bf16", version, fused_finalize=fused_finalize)
        if tuple(counts) == tuple(sum(each.gemm == name for each in listed) for name in ("gemm1", "gemm2")):
            break
    else:
        raise InputError(
            f"this FlashInfer lists {counts[0]} + {counts[1]} {format} tactics, {version} as released does not: its "
            "positions are not known"
        )
    for each in listed:
        if (each.gemm, each.epilogue) == (gemm, epilogue) and _same(tactic, each, release(version).cutlass):
            verdict = each.verdict(cutlass=release(version).cutlass)
            if not verdict:
                raise InputError(f"{each.structure} cannot launch: {verdict.message}")
            assert each.position is not None
            return each.position
    raise InputError(
        f"FlashInfer {version} has no {format} {gemm} {tactic.id} {epilogue}: its tactics have automatic stages and "
        "epilogue tile, and are listed by `tileforge flashinfer`"
    )


def _same(tactic: Tactic, other: FlashInferTactic, cutlass: str) -> bool:
    """Whether both name one kernel: an explicit stage count or epilogue tile may spell the automatic one out."""
    if replace(tactic.compile_time(), stages=None, epilogue_tile=None) != other.tactic:
        return False
    kernel = smem.breakdown(
        other.tactic,
        arch=SM120,
        format=other.format,
        out=other.out,
        cutlass=cutlass,
        epilogue=other.epilogue,
        c=other.c,
    )
    return tactic.stages in (None, kernel.stages) and tactic.epilogue_tile in (None, kernel.epilogue_tile)


def _sm120(arch: ArchSpec) -> ArchSpec:
    if arch.kernels != "sm120":
        raise InputError(f"these are FlashInfer's tactics of SM120 and SM121, not of {arch.name}")
    return arch
