"""Model and parallelism to problems: what one GPU multiplies in one MoE layer.

One layer is two grouped GEMMs over the same rows (``I`` = moe_intermediate, ``H`` = hidden)::

    gate+up   D [M, 2·I/TP] = A [M, H]    · B [G, 2·I/TP, H]^T        (up alone: I/TP, when not gated)
    down      D [M, H]      = A [M, I/TP] · B [G, H, I/TP]^T

Expert parallelism divides the experts (G = experts / EP, whole N), tensor parallelism the width of each expert
(G = experts, I / TP).

Padding. K goes up to what the format's kernels take. For block-scaled formats N goes up to a multiple of 128,
the rows of one scale-factor atom: serving stacks pad the weights themselves to it (vLLM does, see
vllm-project/vllm#46880), and their scale factors are stored for that many rows in any case. Each padded size is
said in a note, because a look-up must then ask for the padded size as well.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tileforge.errors import InputError
from tileforge.formats import SCALE_ROWS, Format, get_format, round_up
from tileforge.problem import GroupedGemm
from tileforge.routing import Routing
from tileforge.workload.model import Model


@dataclass(frozen=True)
class Workload:
    """``problems`` in the order gate+up, down, each by rising M; ``notes`` are sentences for people (padding)."""

    model: Model
    problems: tuple[GroupedGemm, ...]
    notes: tuple[str, ...] = ()


def problems_of(
    model: Model,
    *,
    rows_per_group: Iterable[int] = (),
    tokens: Iterable[int] = (),
    format: str = "nvfp4",
    out: str = "bf16",
    tp: int = 1,
    ep: int = 1,
    routing: str | Routing = "balanced",
    seed: int = 0,
) -> Workload:
    """The grouped GEMMs of one MoE layer of ``model`` on one of ``tp * ep`` GPUs.

    Parameters
    ----------
    rows_per_group: M = rows x G for each.
    tokens: tokens in flight over all EP ranks together; M = ceil(tokens x top_k / EP) rows reach this GPU when
        routing is even. Give this or ``rows_per_group``.
    tp, ep: GPUs that share each expert's width; GPUs that share the list of experts.
    format, out, routing, seed: as in :class:`tileforge.GroupedGemm`.

    top_k may exceed the local experts G (128 experts over EP64, top-4: 2 of them are here).
    Raises InputError when TP or EP does not divide, or nothing says how many rows there are.
    """
    form = get_format(format)
    groups = _share(model.experts, ep, "EP", f"the {model.experts} experts of {model.name}")
    inner = _share(model.moe_intermediate, tp, "TP", f"moe_intermediate {model.moe_intermediate} of {model.name}")
    rows, tokens = tuple(rows_per_group), tuple(tokens)
    if bool(rows) == bool(tokens):
        raise InputError("say how many rows there are: rows per group, or tokens, and not both")
    for count in rows + tokens:
        if not isinstance(count, int) or isinstance(count, bool) or count < 0:
            raise InputError(f"rows or tokens {count!r}: not a whole number of 0 or more")
    totals = [count * groups for count in rows] or [-(-count * model.top_k // ep) for count in tokens]

    notes: list[str] = []
    problems: list[GroupedGemm] = []
    halves = 2 if model.gated else 1
    for gemm, n, k in (
        ("gate+up" if model.gated else "up", halves * inner, model.hidden),
        ("down", model.hidden, inner),
    ):
        n, note = _padded(gemm, "N", n, _n_multiple(form), form)
        notes += note
        k, note = _padded(gemm, "K", k, form.k_multiple, form)
        notes += note
        problems += [
            GroupedGemm(
                m, n, k, groups, format=format, out=out, routing=routing, seed=seed, name=f"{model.name} {gemm}"
            )
            for m in sorted(set(totals))
        ]
    return Workload(model, tuple(problems), tuple(notes))


def _share(whole: int, gpus: int, letters: str, what: str) -> int:
    if not isinstance(gpus, int) or isinstance(gpus, bool) or gpus < 1:
        raise InputError(f"{letters} {gpus!r} is not a number of GPUs: use a whole number of 1 or more")
    if whole % gpus:
        near = max(d for d in range(1, min(gpus, whole) + 1) if whole % d == 0)
        raise InputError(f"{letters}{gpus} does not divide {what}: {letters}{near} does")
    return whole // gpus


def _n_multiple(form: Format) -> int:
    return SCALE_ROWS if form.block_scaled else form.n_multiple


def _padded(gemm: str, field: str, size: int, multiple: int, form: Format) -> tuple[int, list[str]]:
    """``size`` rounded up for the format, and a sentence when that changes it."""
    padded = round_up(size, multiple)
    if padded == size:
        return size, []
    note = (
        f"{gemm}: {field} {size} padded to {padded} for {form.name} ({size} % {multiple} = {size % multiple}, "
        f"{(padded - size) / padded:.1%} of the work is padding)"
    )
    if field == "K" and form.scale_vector is not None:
        note += (
            f"; scale columns at vector {form.scale_vector}: {-(-size // form.scale_vector)}, "
            f"stored as {form.scale_columns(padded)}"
        )
    return padded, [note + f". Look {padded} up when serving"]
