"""``tileforge explain``: where the shared memory of a tactic goes, and why it may or may not run."""

from __future__ import annotations

import shutil
from typing import Any

import click

from tileforge import legality, smem
from tileforge.arch import ArchSpec
from tileforge.cli import explain_batch
from tileforge.cli.context import Target, print_json, target
from tileforge.cli.options import arch_options, json_option
from tileforge.errors import InputError
from tileforge.smem import Breakdown
from tileforge.space import Near, nearest
from tileforge.tactic import Tactic
from tileforge.verdict import FITS, OVER, Verdict

_MARK = {"fits": "green", "over": "red", "illegal": "red", "unknown": "yellow"}
#: One letter and colour for each term of the bar, in the terms' order.
_LETTERS = "AaBbEeDdFfPpTtMmKk"
_COLOURS = ("blue", "cyan", "green", "magenta", "yellow", "white", "bright_blue", "bright_cyan", "bright_green", "red")


@click.command("explain")
@click.argument("tactic", required=False)
@click.option("--format", "format_", default="nvfp4", show_default=True, help="Operand format.")
@click.option("--out", default="bf16", show_default=True, help="Output type.")
@click.option("--epilogue", default="plain", show_default=True, help="plain, finalize (FlashInfer's fused MoE).")
@click.option("--c", metavar="TYPE", help="Type of a C operand: bf16, fp16, fp32. Default: none.")
@click.option("--batch", metavar="FILE|-", help="JSON lines to answer instead of TACTIC, a line each, in order.")
@arch_options
@json_option
def command(
    tactic: str | None, format_: str, out: str, epilogue: str, c: str | None, batch: str | None, gpu: str | None,
    arch: str | None, cutlass: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Say whether TACTIC (such as 128x64x256_c1x1_coop_s3_swap) fits, and where its shared memory goes.

    Needs no GPU and no compiler. Exit code 0 when it fits, 1 when it does not. With --batch: one JSON line for each
    line, {"tile": [128, 64, 256], "schedule": "cooperative", ...}; exit code 2 when one could not be read.
    """
    if (tactic is None) == (batch is None):
        raise InputError("give one TACTIC, or --batch FILE with JSON lines")
    if batch is not None:
        bad = explain_batch.answer(batch, cutlass, gpu, arch, format_)
        if bad:
            raise InputError(bad)
        return
    parsed = Tactic.parse(tactic or "")
    where = target(gpu, arch, cutlass, format_)
    asked: dict[str, Any] = {"format": format_, "out": out, "cutlass": where.cutlass, "epilogue": epilogue, "c": c}
    verdict = legality.check(parsed, arch=where.arch, **asked)
    found: Breakdown | None = None
    # The arithmetic assumes that the rules hold: of a tactic that breaks one, no bytes are shown.
    if verdict.kind in (FITS, OVER) or verdict.reason in ("stages", "unconfirmed"):
        found = smem.breakdown(parsed, arch=where.arch, **asked)
    near = [] if verdict else nearest(parsed, arch=where.arch, **asked)
    if as_json:
        print_json(as_dict(parsed, where, verdict, found, near))
    else:
        _show(parsed, format_, where, verdict, found, near)
    if not verdict:
        click.get_current_context().exit(1)


def blocks_per_sm(arch: ArchSpec, smem_bytes: int) -> int:
    """Blocks that shared memory lets reside on one SM at once; registers and threads may allow fewer."""
    return arch.smem_per_sm // (smem_bytes + arch.smem_reserved) if smem_bytes <= arch.smem_per_block else 0


def as_dict(
    tactic: Tactic, where: Target, verdict: Verdict, found: Breakdown | None, near: list[Near]
) -> dict[str, Any]:
    answer: dict[str, Any] = {"tactic": tactic.id, "arch": where.arch.name, "cutlass": where.cutlass}
    answer |= verdict.as_dict()
    if found is not None:
        answer |= {
            "stages": found.stages,
            "smem_bytes": found.total,
            "limit_bytes": found.limit,
            "excess_bytes": found.excess,
            "terms": dict(found.terms),
            "automatic_stages": found.auto_stages,
            "most_stages_that_fit": found.fit_stages,
            "smem_bytes_of_most_stages": found.fit_total,
            "blocks_per_sm": blocks_per_sm(where.arch, found.total),
        }
    answer["nearest"] = [
        {
            "tactic": each.tactic.id,
            "changes": list(each.changes),
            "stages": each.verdict.figures["stages"],
            "smem_bytes": each.verdict.figures["smem_bytes"],
        }
        for each in near
    ]
    return answer


def _show(
    tactic: Tactic, format_: str, where: Target, verdict: Verdict, found: Breakdown | None, near: list[Near]
) -> None:
    click.echo(f"{tactic.id}  {format_}  {where.arch.name}  CUTLASS {where.cutlass}")
    click.echo(click.style(verdict.kind, fg=_MARK[verdict.kind], bold=True) + f": {verdict.message}")
    if verdict.source:
        click.echo(f"  rule {verdict.reason}, read in {verdict.source}")
    if verdict.reason == "cutlass_version":
        click.echo(f"  tileforge oracle {tactic.id} --format {format_} --cutlass {where.cutlass}")
    if found is not None:
        _memory(tactic, where.arch, found)
    if near:
        click.echo("\nnearest that fit:")
        width = max(len(each.tactic.id) for each in near)
        for each in near:
            figures = each.verdict.figures
            room = f"{figures['stages']} stages, {figures['smem_bytes']:>7,} B"
            click.echo(f"  {each.tactic.id:<{width}}  {room}  ({', '.join(each.changes)})")


def _memory(tactic: Tactic, arch: ArchSpec, found: Breakdown) -> None:
    click.echo(f"\nshared memory of one block, {found.stages} stages ({found.limit:,} B allowed):")
    width = max(map(len, found.terms))
    room = max(min(shutil.get_terminal_size((100, 25)).columns, 120) - 4, 40)
    whole = max(found.total, found.limit)
    bar, end, drawn = "  ", 0, 0
    for number, (name, size) in enumerate(found.terms.items()):
        letter, colour = _LETTERS[number % len(_LETTERS)], _COLOURS[number % len(_COLOURS)]
        end += size
        cells = round(end / whole * room) - drawn
        drawn += cells
        bar += click.style(letter * cells, fg=colour)
        click.echo(f"  {click.style(letter, fg=colour)} {name:<{width}}  {size:>9,} B  {size / found.limit:>6.1%}")
    free = f"{found.excess:,} B over" if found.excess else f"{found.limit - found.total:,} B free"
    click.echo(f"    {'total':<{width}}  {found.total:>9,} B  of {found.limit:,} B: {free}")
    limit = round(found.limit / whole * room)
    click.echo(bar + "." * (room - drawn))
    click.echo("  " + " " * (limit - 1) + f"^ {found.limit:,} B")
    if tactic.stages is None and found.auto_stages != found.fit_stages:
        fit = f"{found.fit_stages} fit in {found.fit_total:,} B" if found.fit_stages else "not one fits"
        click.echo(f"CUTLASS's automatic count is {found.auto_stages} stages; {fit}.")
    else:
        click.echo(f"CUTLASS's automatic count is {found.auto_stages} stages, the most that fit {found.fit_stages}.")
    if not found.excess:
        click.echo(f"Blocks per SM that shared memory allows: {blocks_per_sm(arch, found.total)}.")
