"""Options that several commands share, and how they become problems."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from tileforge.errors import InputError
from tileforge.problem import GroupedGemm

F = TypeVar("F", bound=Callable[..., Any])

#: Rows per group that a decode job tunes when nobody says otherwise.
DECODE_ROWS = (1, 4, 16, 64)


def numbers(text: str, option: str) -> tuple[int, ...]:
    """``1,4,16`` as numbers. Raises InputError that names the option."""
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"{option} {text!r} is not a list of whole numbers: write it as 1,4,16") from None


def json_option(function: F) -> F:
    return click.option("--json", "as_json", is_flag=True, help="Machine-readable output.")(function)


def epilogue_options(function: F) -> F:
    """``--epilogue`` and ``--c``: what the epilogue does beside scaling by alpha."""
    for option in (
        click.option(
            "--c", metavar="TYPE", callback=_none, help="Type of a C operand: bf16, fp16, fp32. Default: none."
        ),
        click.option(
            "--epilogue",
            default="plain",
            show_default=True,
            help="plain, or finalize (FlashInfer's fused MoE finalize).",
        ),
    ):
        function = option(function)
    return function


def _none(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    return None if value == "none" else value


def tactic_options(function: F) -> F:
    """``--format``, ``--out``, ``--epilogue``, ``--c``: what a tactic is asked for, where there is no problem."""
    for option in (
        epilogue_options,
        click.option("--out", default="bf16", show_default=True, help="Output type: bf16, fp16, fp32."),
        click.option(
            "--format",
            "format_",
            metavar="FORMAT",
            default="nvfp4",
            show_default=True,
            help="nvfp4, mxfp4, mxfp8_mxfp4 (SM120), bf16, fp8 (SM90).",
        ),  # fmt: skip
    ):
        function = option(function)
    return function


def arch_options(function: F) -> F:
    """``--gpu`` or ``--arch``, ``--cutlass``: which limits and which CUTLASS the rules speak of."""
    for option in (
        click.option(
            "--cutlass", metavar="VERSION", help="CUTLASS version the rules are for. Default: the one in use."
        ),
        click.option("--arch", metavar="SM", help="sm120, sm121 or sm90. Default: the GPU's, else from the format."),
        click.option("--gpu", metavar="SKU", help="GPU to answer for, e.g. rtx_pro_6000, rtx_5090, h200."),
    ):
        function = option(function)
    return function


def problem_options(function: F) -> F:
    """Everything that says which problems are meant: sizes, or a model file with its parallelism."""
    for option in (
        click.option("--seed", type=int, default=0, show_default=True, help="Seed of routing and inputs."),
        click.option("--routing", default="balanced", show_default=True, help="balanced, uniform, zipf:1.2, rows:..."),
        click.option("--out", default="bf16", show_default=True, help="Output type: bf16, fp16, fp32."),
        click.option("--format", "format_", metavar="FORMAT", help="nvfp4 (default), mxfp4, mxfp8_mxfp4, bf16, fp8."),
        click.option("--rows", metavar="LIST", help="Rows per group, e.g. 1,4,16,64."),
        click.option("--tp", type=int, default=1, help="With --model: tensor-parallel GPUs."),
        click.option("--ep", type=int, default=1, help="With --model: expert-parallel GPUs."),
        click.option("--model", metavar="FILE", help="Model YAML, e.g. examples/models/glm-5.yaml."),
        click.option("--groups", type=int, help="Groups G (local experts)."),
        click.option("--k", type=int, help="Depth K, in elements."),
        click.option("--n", type=int, help="Columns N per group."),
        click.option("--m", type=int, help="Total rows M over all groups (instead of --rows)."),
    ):
        function = option(function)
    return function


def take_problems(function: F) -> Callable[..., Any]:
    """Decorator: replaces the options of :func:`problem_options` by ``problems``, with the notes on padding."""

    @functools.wraps(function)
    def wrapper(**options: Any) -> Any:
        names = ("m", "n", "k", "groups", "model", "ep", "tp", "rows", "format_", "out", "routing", "seed")
        problems, notes = problems_from(**{name: options.pop(name) for name in names})
        return function(problems=problems, notes=notes, **options)

    return wrapper


def problems_from(
    *,
    m: int | None,
    n: int | None,
    k: int | None,
    groups: int | None,
    model: str | None,
    ep: int,
    tp: int,
    rows: str | None,
    format_: str | None,
    out: str,
    routing: str,
    seed: int,
) -> tuple[list[GroupedGemm], list[str]]:
    """The problems meant and notes for people (padding). Raises InputError when the options do not add up."""
    form = format_ or "nvfp4"
    per_group = numbers(rows, "--rows") if rows is not None else DECODE_ROWS
    if model is not None:
        from tileforge.workload import load_model

        if any(value is not None for value in (m, n, k, groups)):
            raise InputError("--model gives the sizes: leave out --m, --n, --k and --groups, or leave out --model")
        workload = load_model(Path(model)).problems(
            rows_per_group=per_group, format=form, out=out, ep=ep, tp=tp, routing=routing, seed=seed
        )
        return list(workload.problems), list(workload.notes)
    if n is None or k is None or groups is None:
        raise InputError("say which problem: --n, --k and --groups with --rows or --m, or --model FILE")
    if m is not None and rows is not None:
        raise InputError("--m is the total over all groups, --rows is per group: give one of them")
    totals = [m] if m is not None else [count * groups for count in per_group]
    make = functools.partial(GroupedGemm, n=n, k=k, groups=groups, format=form, out=out, routing=routing, seed=seed)
    return [make(m=total) for total in totals], []
