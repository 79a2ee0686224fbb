"""Tables for people. Predicted times are marked in the heading and in every row: they are never shown as measured."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from tileforge.db import Record

#: Width of a table that goes into a file or a pipe, where there is no terminal to ask.
_PLAIN_WIDTH = 150


def console() -> Console:
    width = None if sys.stdout.isatty() or os.environ.get("COLUMNS") else _PLAIN_WIDTH
    return Console(width=width, highlight=False)


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
            record.provenance,
        )
    console().print(table)


def _us(value: float | None, measured: bool) -> str:
    if value is None:
        return ""
    return f"{value:.1f}" if measured else f"~{value:.0f}"
