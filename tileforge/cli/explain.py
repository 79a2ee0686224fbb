"""``tileforge explain``: where the shared memory of a tactic goes, and why it may or may not run."""

from __future__ import annotations

from typing import Any

import click

from tileforge import legality, smem
from tileforge.cli.context import Target, print_json, target
from tileforge.cli.options import arch_options, json_option
from tileforge.smem import Breakdown
from tileforge.tactic import Tactic
from tileforge.verdict import FITS, OVER, Verdict

_BAR = 60
_MARK = {"fits": "green", "over": "red", "illegal": "red", "unknown": "yellow"}


@click.command("explain")
@click.argument("tactic")
@click.option("--format", "format_", default="nvfp4", show_default=True, help="Operand format.")
@click.option("--out", default="bf16", show_default=True, help="Output type.")
@click.option(
    "--epilogue", default="plain", show_default=True, help="plain, c (reads C), finalize (FlashInfer's fused MoE)."
)
@arch_options
@json_option
def command(
    tactic: str, format_: str, out: str, epilogue: str, gpu: str | None, arch: str | None, cutlass: str | None,
    as_json: bool,
) -> None:  # fmt: skip
    """Say whether TACTIC (such as 128x64x256_c1x1_coop_s3_swap) fits, and where its shared memory goes.

    Needs no GPU and no compiler. Exit code 0 when it fits, 1 when it does not.
    """
    parsed = Tactic.parse(tactic)
    where = target(gpu, arch, cutlass, format_)
    verdict = legality.check(parsed, arch=where.arch, format=format_, out=out, cutlass=where.cutlass, epilogue=epilogue)
    found: Breakdown | None = None
    # The arithmetic assumes that the rules hold: of a tactic that breaks one, no bytes are shown.
    if verdict.kind in (FITS, OVER) or verdict.reason in ("stages", "unconfirmed"):
        found = smem.breakdown(
            parsed, arch=where.arch, format=format_, out=out, cutlass=where.cutlass, epilogue=epilogue
        )
    if as_json:
        print_json(as_dict(parsed, where, verdict, found))
    else:
        _show(parsed, format_, where, verdict, found)
    if not verdict:
        click.get_current_context().exit(1)


def as_dict(tactic: Tactic, where: Target, verdict: Verdict, found: Breakdown | None) -> dict[str, Any]:
    answer: dict[str, Any] = {"tactic": tactic.id, "arch": where.arch.name, "cutlass": where.cutlass}
    answer |= verdict.as_dict()
    if found is not None:
        answer |= {
            "stages": found.stages,
            "smem_bytes": found.total,
            "limit_bytes": found.limit,
            "terms": dict(found.terms),
            "automatic_stages": found.auto_stages,
            "most_stages_that_fit": found.fit_stages,
        }
    return answer


def _show(tactic: Tactic, format_: str, where: Target, verdict: Verdict, found: Breakdown | None) -> None:
    click.echo(f"{tactic.id}  {format_}  {where.arch.name}  CUTLASS {where.cutlass}")
    click.echo(click.style(verdict.kind, fg=_MARK[verdict.kind], bold=True) + f": {verdict.message}")
    if verdict.source:
        click.echo(f"  rule {verdict.reason}, read in {verdict.source}")
    if found is None:
        return
    whole = max(found.total, found.limit)
    over = found.total > found.limit
    click.echo(f"\nshared memory of one block, {found.stages} stages ({found.limit:,} B allowed):")
    width = max(map(len, found.terms))
    for name, size in found.terms.items():
        bar = "#" * max(1, round(size / whole * _BAR)) if size else ""
        click.echo(f"  {name:<{width}}  {size:>9,} B  {bar}")
    room = f"{found.total - found.limit:,} B over" if over else f"{found.limit - found.total:,} B free"
    click.echo(f"  {'total':<{width}}  {found.total:>9,} B  of {found.limit:,} B: {room}")
    if tactic.stages is None and found.auto_stages != found.fit_stages:
        click.echo(f"\nCUTLASS's automatic count is {found.auto_stages} stages; {found.fit_stages} fit.")
    if over and found.fit_stages >= legality.LEAST_STAGES:
        fitting = Tactic.parse(tactic.id.replace(f"_s{tactic.stages}", "")).as_dict() | {"stages": found.fit_stages}
        click.echo(f"try {Tactic.from_dict(fitting).id}: {found.fit_total:,} B")
