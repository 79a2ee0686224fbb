"""The one validator: whether a tactic may run on an SM with a CUTLASS version, and exactly why not.

Enumerating, loading, importing and forcing a tactic all go through :func:`check`. The answer is a
:class:`~tileforge.verdict.Verdict`: the rules of the SM in their order, then the number of stages, then shared memory,
then whether the compiler was ever asked about such a tactic. Nothing is guessed: what was not compared with the
compiler is ``unknown``, and 0 stages is never clamped to 1.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from tileforge import smem
from tileforge.arch import ArchSpec, Context
from tileforge.arch.spec import Shape
from tileforge.arch.storage import Storage
from tileforge.formats import OUT_BITS, round_up
from tileforge.tactic import Tactic
from tileforge.verdict import FITS, ILLEGAL, OVER, UNKNOWN, Verdict

if TYPE_CHECKING:
    from tileforge.problem import GroupedGemm

#: Both mainloops assert it; a pipeline of one stage cannot overlap loading with computing.
LEAST_STAGES = 2
_STAGES = "static_assert(DispatchPolicy::Stages >= 2) of the mainloops, CUTLASS 4.2.0 and 4.5.0"
_SMEM = "cudaFuncSetAttribute(MaxDynamicSharedMemorySize) against the device's opt-in limit"
_ALIGNMENT = "TMA needs rows of 16 bytes; gemm/collective/builders/sm1xx_common.inl, CUTLASS 4.5.0"
_ASK = "ask the compiler (tileforge oracle)"


def check(
    tactic: Tactic,
    *,
    arch: ArchSpec,
    format: str,
    out: str = "bf16",
    cutlass: str = smem.CUTLASS,
    epilogue: str = "plain",
    c: str | None = None,
    problem: GroupedGemm | None = None,
) -> Verdict:
    """The verdict on ``tactic`` for ``format`` operands and an ``out`` output.

    ``c``: the type of the C operand that the epilogue adds, None for none. ``epilogue``: ``plain``, or ``finalize``
    (FlashInfer's fused MoE finalize, which reads a C operand of the output's type).
    ``problem``: also check what depends on its sizes. Raises InputError on names that nobody knows.
    """
    ask = smem.context(arch, format, out, cutlass, epilogue, c)
    if format not in arch.formats:
        message = f"{arch.name} has no {format} kernels: its formats are {', '.join(arch.formats)}"
        return Verdict(ILLEGAL, "format", message, f"kernels/{arch.kernels}.cuh")
    if problem is not None and (refused := _problem(problem, ask)) is not None:  # a refusal is falsy
        return refused
    if cutlass not in arch.cutlass:
        known = " and ".join(arch.cutlass)
        message = f"the rules of CUTLASS {cutlass} are not known, only those of {known}: {_ASK}"
        return Verdict(UNKNOWN, "cutlass_version", message)
    found = _kernel(Shape.of(tactic), ask)
    return found if isinstance(found, Verdict) else _memory(tactic, ask, *found)


@lru_cache(maxsize=1 << 16)
def _kernel(shape: Shape, ask: Context) -> Verdict | tuple[Storage, str]:
    """The first rule that says no, else the layout and why it is unconfirmed ("": it is not). Serves all stages."""
    for rule in ask.arch.rules:
        if sentence := rule.broken(shape, ask):
            return Verdict(ILLEGAL, rule.code, sentence, rule.source)
    if ask.epilogue not in ask.arch.epilogues:
        message = f"the {ask.epilogue} epilogue of {ask.arch.name} was not compared with the compiler: {_ASK}"
        return Verdict(UNKNOWN, "epilogue", message)
    return ask.arch.storage(shape, ask), ask.arch.unconfirmed(shape, ask)


def _memory(tactic: Tactic, ask: Context, kernel: Storage, doubt: str) -> Verdict:
    limit = ask.arch.smem_per_block
    stages = kernel.auto_stages if tactic.stages is None else tactic.stages
    if stages < LEAST_STAGES:
        return _too_few_stages(tactic, stages, kernel, limit)
    total = kernel.total(stages)
    figures = {"stages": stages, "smem_bytes": total, "limit_bytes": limit}
    if total > limit:
        return _over(stages, total, figures, kernel, limit, doubt)
    if doubt:
        return Verdict(UNKNOWN, "unconfirmed", f"{doubt}: {_ASK}", figures=figures)
    return Verdict(FITS, message=f"needs {total:,} B of {limit:,} B with {stages} stages", figures=figures)


def _too_few_stages(tactic: Tactic, stages: int, kernel: Storage, limit: int) -> Verdict:
    figures = {"stages": stages, "limit_bytes": limit, "stage_bytes": kernel.stage_bytes}
    if tactic.stages is None:
        count = "not one stage fits" if stages == 0 else "only 1 stage fits"
        beside = f"{count} into {limit:,} B beside an epilogue of {kernel.epilogue.storage:,} B"
        message = f"fewer than {LEAST_STAGES} stages: {beside}, at {kernel.stage_bytes:,} B a stage"
    else:
        message = f"{stages} stage is fewer than {LEAST_STAGES}: the pipeline needs one to load while it computes"
    return Verdict(ILLEGAL, "stages", message, _STAGES, figures)


def _over(stages: int, total: int, figures: dict[str, int], kernel: Storage, limit: int, doubt: str) -> Verdict:
    """``doubt``: why nothing is offered in its place, though it would fit by the same arithmetic."""
    figures["excess_bytes"] = total - limit
    message = f"needs {total:,} B of {limit:,} B with {stages} stages: {total - limit:,} B over"
    fit = kernel.most_stages(limit)
    if doubt:
        message += f"; {doubt}"
    elif fit >= LEAST_STAGES:
        figures["stages_that_fit"], figures["smem_bytes_that_fit"] = fit, kernel.total(fit)
        message += f"; {fit} stages would fit in {kernel.total(fit):,} B"
    else:
        message += f"; no number of stages from {LEAST_STAGES} fits"
    return Verdict(OVER, "smem", message, _SMEM, figures)


def _problem(problem: GroupedGemm, ask: Context) -> Verdict | None:
    """What depends on the sizes: a tactic made for one format cannot run another, and rows must suit TMA."""
    form = ask.form
    if problem.format != form.name or problem.out != ask.out:
        message = f"the problem is {problem.format} to {problem.out}, the tactic was asked for {form.name} to {ask.out}"
        return Verdict(ILLEGAL, "format", message)
    out_multiple = max(128 // OUT_BITS[ask.out], form.n_multiple)
    for name, value, multiple in (("K", problem.k, form.k_multiple), ("N", problem.n, out_multiple)):
        if value % multiple:
            padded = round_up(value, multiple)
            rest = f"{name} = {value} leaves {value % multiple}: pad to {padded} and tune that size"
            message = f"{form.name} needs {name} % {multiple} == 0, but {rest}"
            return Verdict(ILLEGAL, "alignment", message, _ALIGNMENT, {"padded": padded})
    return None
