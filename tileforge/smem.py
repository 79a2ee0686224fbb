"""Shared memory in named terms: what one kernel asks for, what a block may have, and how many stages fit.

Exact, not estimated: the terms follow the layout of CUTLASS's own structs (:mod:`tileforge.arch.storage`), and
``tests/data/smem_truth.json`` holds what the compiler answered for the same tactics. Needs no compiler and no GPU.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from tileforge.arch import ArchSpec, Context, get_arch
from tileforge.arch.spec import EPILOGUES, Shape
from tileforge.arch.storage import Storage
from tileforge.errors import InputError
from tileforge.formats import OUT_BITS, get_format
from tileforge.tactic import Tactic
from tileforge.verdict import FITS, OVER, Verdict

#: The CUTLASS version assumed when none is named: the newest one whose rules are known.
CUTLASS = "4.5.0"


@dataclass(frozen=True)
class Breakdown:
    """Where the shared memory of one kernel goes. All sizes in bytes; ``terms`` sum to ``total``.

    ``stages``: of this kernel (the automatic count when the tactic names none); ``auto_stages``: what CUTLASS's
    builder would take; ``fit_stages``: the most that fit into ``limit``, taking ``fit_total`` bytes (both 0 when not
    even one does). ``stage_bytes``: what the builder counts per stage. ``mainloop`` and ``epilogue``: sizes of the
    mainloop's tensors and of the epilogue's SharedStorage, as the compiled kernel reports them.
    """

    terms: Mapping[str, int]
    stages: int
    total: int
    limit: int
    auto_stages: int
    fit_stages: int
    fit_total: int
    stage_bytes: int
    mainloop: int
    epilogue: int
    epilogue_tile: tuple[int, int]
    threads: int

    @property
    def excess(self) -> int:
        """Bytes over the limit; 0 when it fits."""
        return max(self.total - self.limit, 0)


@lru_cache(maxsize=256)
def context(arch: ArchSpec, format: str, out: str, cutlass: str, epilogue: str, c: str | None) -> Context:
    """What is asked about, apart from the tactic. Raises InputError on names that nobody knows."""
    if out not in OUT_BITS:
        raise InputError(f"unknown output type {out!r}: use one of {', '.join(OUT_BITS)}")
    if epilogue not in EPILOGUES:
        raise InputError(f"unknown epilogue {epilogue!r}: use one of {', '.join(EPILOGUES)}")
    if c is not None and c not in OUT_BITS:
        raise InputError(f"unknown type {c!r} of the C operand: use one of {', '.join(OUT_BITS)}, or none")
    if epilogue == "finalize" and c not in (None, out):
        raise InputError(f"the finalize epilogue reads a C operand of the output's type {out}, not {c}")
    return Context(arch, get_format(format), out, OUT_BITS[out], cutlass, epilogue, c or "", OUT_BITS[c] if c else 0)


def storage(tactic: Tactic, ask: Context) -> Storage:
    """The layout of the kernel's shared memory; the same for all stage counts and run-time fields."""
    return ask.arch.storage(Shape.of(tactic), ask)


def breakdown(
    tactic: Tactic,
    *,
    arch: str | ArchSpec,
    format: str,
    out: str = "bf16",
    cutlass: str = CUTLASS,
    epilogue: str = "plain",
    c: str | None = None,
) -> Breakdown:
    """The terms for ``tactic``, whether or not it is legal otherwise (:func:`tileforge.legality.check` says that).

    Raises InputError when the architecture, its format or the CUTLASS version is not one whose layout is known.
    """
    spec = get_arch(arch) if isinstance(arch, str) else arch
    ask = context(spec, format, out, cutlass, epilogue, c)
    if format not in spec.formats:
        raise InputError(f"{spec.name} has no {format} kernels: its formats are {', '.join(spec.formats)}")
    if cutlass not in spec.cutlass:
        raise InputError(
            f"the shared-memory layout of CUTLASS {cutlass} is not known, only that of {' and '.join(spec.cutlass)}: "
            "ask the compiler (tileforge oracle)"
        )
    if epilogue not in spec.epilogues:
        raise InputError(f"the {epilogue} epilogue of {spec.name} is not known, only {', '.join(spec.epilogues)}")
    kernel = storage(tactic, ask)
    if not kernel.epilogue.align:
        m, n = kernel.epilogue_tile
        raise InputError(f"epilogue tile {m}x{n} has no layout: a row of {out} must be a multiple of 16 bytes")
    stages = kernel.auto_stages if tactic.stages is None else tactic.stages
    fit = kernel.most_stages(spec.smem_per_block)
    return Breakdown(
        terms=kernel.terms(stages),
        stages=stages,
        total=kernel.total(stages),
        limit=spec.smem_per_block,
        auto_stages=kernel.auto_stages,
        fit_stages=fit,
        fit_total=kernel.total(fit) if fit else 0,
        stage_bytes=kernel.stage_bytes,
        mainloop=kernel.mainloop_bytes(stages),
        epilogue=kernel.epilogue.storage,
        epilogue_tile=kernel.epilogue_tile,
        threads=THREADS,
    )


#: Threads of a block: one producer warp group and two consumers, cooperative and pingpong, SM90 and SM120.
THREADS = 384


def request(size: int, arch: str | ArchSpec) -> Verdict:
    """The verdict on a bare request of ``size`` bytes of shared memory per block."""
    if size < 0:
        raise InputError(f"{size} is not a number of bytes")
    limit = (get_arch(arch) if isinstance(arch, str) else arch).smem_per_block
    figures, message = {"smem_bytes": size, "limit_bytes": limit}, f"needs {size:,} B of {limit:,} B"
    if size <= limit:
        return Verdict(FITS, message=message, figures=figures)
    figures["excess_bytes"] = size - limit
    source = "cudaDevAttrMaxSharedMemoryPerBlockOptin of the device"
    return Verdict(OVER, "smem", f"{message}: {size - limit:,} B over", source, figures)
