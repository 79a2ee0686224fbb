"""Tables for people. Predicted times are marked in the heading and in every row: they are never shown as measured."""

from __future__ import annotations

import shutil
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from tileforge.db import Record
from tileforge.tuning.result import TuneResult

#: Tables are at least this wide: a narrower one would cut off the column that says predicted or measured.
_LEAST_WIDTH = 150


def console() -> Console:
    return Console(
        width=max(_LEAST_WIDTH, shutil.get_terminal_size((_LEAST_WIDTH, 25)).columns),
        highlight=False,
        markup=False,
        emoji=False,
    )


def records_table(records: Sequence[Record], title: str = "") -> None:
    """One row per record: problem, tactic, times with their spread, the default's, provenance."""
    table = Table(title=title or None, title_justify="left")
    for name, justify in (
        ("gpu", "left"), ("problem", "left"), ("M", "right"), ("rows/group", "right"), ("tactic", "left"),
        ("us", "right"), ("spread", "right"), ("default us", "right"), ("x", "right"), ("", "left"),
    ):  # fmt: skip
        table.add_column(name, justify=justify, no_wrap=True)  # type: ignore[arg-type]
    for record in records:
        measured = record.provenance == "measured"
        time = record.time_us if measured else record.predicted_us
        spread = f"{record.low_us:.1f}-{record.high_us:.1f}" if record.low_us and record.high_us else ""
        table.add_row(
            record.key.gpu,
            f"{record.key.format} N{record.key.n} K{record.key.k} G{record.key.groups}",
            str(record.m),
            f"{record.rows_per_group:g}",
            record.tactic.id,
            _us(time, measured),
            spread,
            _us(record.default_us, measured),
            f"{record.speedup:.2f}" if record.speedup else "",
            "FAKE DEVICE" if record.key.family == "fake" else record.provenance,
        )
    console().print(table)


def _us(value: float | None, measured: bool) -> str:
    if value is None:
        return ""
    return f"{value:.1f}" if measured else f"~{value:.0f}"


def tune_table(results: Sequence[TuneResult], database: str, measure: str) -> None:
    """What a tuning run found. ``measure``: the command that would time what is only predicted."""
    if not results:
        print("nothing was tuned")
        return
    table = Table(title_justify="left")
    for name, justify in (
        ("GEMM", "left"), ("M", "right"), ("rows/group", "right"), ("N", "right"), ("K", "right"), ("G", "right"),
        ("tactic", "left"), ("us", "right"), ("default us", "right"), ("x", "right"), ("", "left"),
    ):  # fmt: skip
        table.add_column(name, justify=justify, no_wrap=True)  # type: ignore[arg-type]
    for result in results:
        problem = result.problem
        measured = result.time_us is not None
        label = problem.name.split()[-1] if problem.name else problem.format
        table.add_row(
            label, str(problem.m), f"{problem.rows_per_group:g}", str(problem.n), str(problem.k), str(problem.groups),
            result.tactic.id if result.tactic else "-",
            _us(result.time_us if measured else result.predicted_us, measured),
            _us(result.default_us if measured else result.default_predicted_us, measured),
            f"{result.speedup:.2f}" if result.speedup else "",
            "FAKE DEVICE" if result.fake else result.provenance,
        )  # fmt: skip
    shown = console()
    gpus = ", ".join(dict.fromkeys(result.gpu.name for result in results if result.gpu))
    formats = ", ".join(dict.fromkeys(f"{result.problem.format} to {result.problem.out}" for result in results))
    shown.print(f"\n{formats} on {gpus or 'no GPU'}")
    for line in dict.fromkeys(result.pruning for result in results if result.pruning):
        shown.print(f"space: {line}", soft_wrap=True)
    shown.print(table)
    _after(results, database, measure, shown)


def _after(results: Sequence[TuneResult], database: str, measure: str, shown: Console) -> None:
    """What people should know beside the table."""
    confirmed = {each.tactic.id: each for result in results for each in result.confirmed}
    if confirmed:
        right = sum(1 for each in confirmed.values() if not each.error)
        shown.print(f"the compiler confirmed stages and bytes of {right} of {len(confirmed)} leaders asked about")
        for each in confirmed.values():
            said = each.error or f"{each.stages} stages, {each.smem_bytes:,} B"
            shown.print(f"  {each.tactic.id}: {said}", soft_wrap=True)
    for result in results:
        for status, failed in result.failures.items():
            shown.print(f"{status} at M={result.problem.m}: {len(failed)}, the first {failed[0]}", soft_wrap=True)
    for note in dict.fromkeys(note for result in results for note in result.notes):
        shown.print(f"note: {note}", soft_wrap=True)
    saved = sum(1 for result in results if result.record is not None and result.stored)
    if saved:
        shown.print(f"{saved} records in {database}")
    if any(result.provenance == "predicted" for result in results):
        shown.print(
            "these are predictions: nothing was timed. On a machine with this GPU, this measures:", soft_wrap=True
        )
        shown.print(f"  {measure}", soft_wrap=True)
