"""``tileforge flashinfer``: FlashInfer's tactics by position and structure, and which of them cannot launch."""

from __future__ import annotations

from typing import Any

import click
from rich.table import Table

from tileforge.arch import SM120, get_arch
from tileforge.arch.gpus import get_gpu
from tileforge.cli.context import print_json
from tileforge.cli.options import json_option
from tileforge.cli.tables import console
from tileforge.interop import flashinfer_tactics
from tileforge.interop.flashinfer_tactics import MOE, VERSION, Judged
from tileforge.verdict import ILLEGAL, OVER


@click.command("flashinfer")
@click.option("--format", "format_", default="nvfp4", show_default=True, help="nvfp4 or mxfp8_mxfp4.")
@click.option("--out", default="bf16", show_default=True, help="Output type: bf16 or fp16.")
@click.option(
    "--version", default=VERSION, show_default=True, help="FlashInfer release; positions change between them."
)
@click.option("--entry", type=click.Choice([MOE, "group_gemm"]), default=MOE, show_default=True, help="Entry point.")
@click.option("--unfused", is_flag=True, help="As with use_fused_finalize=False, which moves positions.")
@click.option("--gpu", metavar="SKU", help="GPU to answer for, e.g. rtx_pro_6000. Default: any SM120.")
@json_option
def command(
    format_: str, out: str, version: str, entry: str, unfused: bool, gpu: str | None, as_json: bool
) -> None:  # fmt: skip
    """List FlashInfer's SM120 tactics, the positions that profile_ids takes, and those that cannot launch.

    Needs neither FlashInfer nor a GPU.
    """
    arch = get_arch(get_gpu(gpu).arch) if gpu else SM120
    known = flashinfer_tactics.release(version)
    judged = flashinfer_tactics.verdicts(arch, format_, out, version, entry=entry, fused_finalize=not unfused)
    if as_json:
        print_json(
            {
                "flashinfer": version, "entry": entry, "arch": arch.name, "cutlass": known.cutlass, "format": format_,
                "out": out, "safe_profile_ids": _safe(judged), "tactics": [as_dict(pair, judged) for pair in judged],
            }
        )  # fmt: skip
        return
    console().print(_table(judged, f"FlashInfer {version} {entry}: {format_} to {out}, CUTLASS {known.cutlass}"))
    dead = [pair for pair in judged if pair[1].kind in (OVER, ILLEGAL)]
    for tactic, verdict in dead:
        place = "" if tactic.position is None else f"position {tactic.position}, "
        click.echo(f"cannot launch: {place}{tactic.structure}: {verdict.message}")
        if "stages_that_fit" in verdict.figures:
            click.echo("  FlashInfer takes the automatic stage count, so it cannot be told to take fewer")
        others = flashinfer_tactics.instead(tactic, judged)
        if others:
            click.echo(f"  of the same tile these launch: {', '.join(f'{o.position} ({o.structure})' for o in others)}")
    if all(verdict for _, verdict in judged):
        click.echo("all of them fit")
    for gemm, positions in _safe(judged).items():
        click.echo(f"safe profile_ids of {gemm}: {_ranges(positions)}")


def as_dict(pair: Judged, judged: tuple[Judged, ...]) -> dict[str, Any]:
    tactic, verdict = pair
    others = [] if verdict else flashinfer_tactics.instead(tactic, judged)
    return {
        "position": tactic.position,
        "gemm": tactic.gemm,
        "tactic": tactic.tactic.id,
        "epilogue": tactic.epilogue,
        "c": tactic.c,
        "launches": bool(verdict),
        **verdict.as_dict(),
        **({"instead": [other.position for other in others]} if others else {}),
    }


def _table(judged: tuple[Judged, ...], title: str) -> Table:
    table = Table(title=title, title_justify="left")
    for name, justify in (
        ("position", "right"), ("GEMM", "left"), ("tactic", "left"), ("epilogue", "left"), ("C", "left"),
        ("stages", "right"), ("bytes", "right"), ("verdict", "left"),
    ):  # fmt: skip
        table.add_column(name, justify=justify, no_wrap=True)  # type: ignore[arg-type]
    for tactic, verdict in judged:
        total = verdict.figures.get("smem_bytes")
        table.add_row(
            "" if tactic.position is None else str(tactic.position), tactic.gemm, tactic.tactic.id, tactic.epilogue,
            tactic.c or "none", str(verdict.figures.get("stages", "")), "" if total is None else f"{total:,}",
            f"{verdict.kind.upper()}, cannot launch" if verdict.kind in (OVER, ILLEGAL) else verdict.kind,
        )  # fmt: skip
    return table


def _safe(judged: tuple[Judged, ...]) -> dict[str, list[int]]:
    """Positions that launch, by GEMM; empty where there are none to give."""
    safe: dict[str, list[int]] = {}
    for tactic, verdict in judged:
        if verdict and tactic.position is not None:
            safe.setdefault(tactic.gemm, []).append(tactic.position)
    return safe


def _ranges(numbers: list[int]) -> str:
    """``16-25, 28-47``."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][-1] + 1:
            parts[-1][1:] = [number]
        else:
            parts.append([number])
    return ", ".join("-".join(map(str, part)) for part in parts)
