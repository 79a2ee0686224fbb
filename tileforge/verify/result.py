"""What verifying one kernel found: a row of a table that people review and that a later run adds to."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from tileforge.errors import InputError
from tileforge.verify.cases import CASES_VERSION

#: ``right``; ``wrong``: it computed something else; ``blind``: a planted fault went unnoticed, so nothing is known;
#: ``compile_failed``, ``refused`` (it did not launch), ``crashed``, ``hung``.
RIGHT, WRONG, BLIND, COMPILE_FAILED, REFUSED, CRASHED, HUNG = (
    "right", "wrong", "blind", "compile_failed", "refused", "crashed", "hung",
)  # fmt: skip
_SCHEMA = 1


@dataclass(frozen=True)
class Row:
    """One kernel. ``how``: ``native`` or ``emulated``; ``verdict``: what the rules say of the tactic.

    ``values``: output elements compared, guards and rows that nobody may write among them. ``mismatches``: of exact
    data, how many had other bits; ``signed_zeros``: how many were a zero of the other sign. ``over_bound``: of random
    data, how many were further off than rounding allows; ``worst_ratio``: the furthest, in parts of what is allowed.
    ``faults``, ``noticed``: faults that were planted, and how many of them the comparison noticed. ``build_s``:
    compiling; ``seconds``: all cases and faults on the device.
    """

    arch: str
    format: str
    out: str
    tactic: str
    how: str
    cutlass: str
    status: str
    message: str = ""
    verdict: str = ""
    cases: int = 0
    cases_right: int = 0
    values: int = 0
    mismatches: int = 0
    signed_zeros: int = 0
    over_bound: int = 0
    worst_ratio: float = 0.0
    faults: int = 0
    noticed: int = 0
    stages: int = 0
    smem_bytes: int = 0
    build_s: float = 0.0
    seconds: float = 0.0
    device: str = ""
    date: str = ""
    key: str = ""
    checks: int = CASES_VERSION

    @property
    def ok(self) -> bool:
        return self.status == RIGHT

    @property
    def where(self) -> tuple[str, ...]:
        """What a table has one row for."""
        return (self.arch, self.format, self.out, self.tactic, self.how, self.cutlass)

    def line(self) -> str:
        """One line for people."""
        name = f"{self.arch} {self.format} to {self.out} {self.tactic} {self.how}"
        if not self.values:
            return f"{name}: {self.status}: {self.message}"
        counts = (
            f"{self.cases_right} of {self.cases} cases, {self.values:,} values, {self.mismatches:,} wrong bits, "
            f"{self.over_bound:,} over the bound (worst {self.worst_ratio:.2f} of it), {self.noticed} of {self.faults} "
            f"planted faults noticed, {self.seconds:.1f} s"
        )
        return f"{name}: {self.status}: {counts}{'; ' if self.message else ''}{self.message}"


@dataclass
class Table:
    """Rows by kernel. ``path`` None: kept in memory only; else the file is rewritten whole after each new row."""

    path: Path | None = None
    rows: dict[tuple[str, ...], Row] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path | None) -> Table:
        """The table in ``path``, empty where there is none. Raises InputError for a file that is something else."""
        table = cls(path)
        if path is not None and not path.parent.is_dir():
            raise InputError(f"cannot write {path}: there is no directory {path.parent}")
        if path is None or not path.exists():
            return table
        try:
            text = json.loads(path.read_text(encoding="utf-8"))
            if text["schema"] != _SCHEMA:
                raise InputError(f"{path} was written by another version of tileforge: name another file")
            table.rows = {row.where: row for row in map(_row, text["rows"])}
        except OSError as error:
            raise InputError(f"cannot read {path}: {error.strerror}") from None
        except (ValueError, KeyError, TypeError) as error:
            if isinstance(error, InputError):
                raise
            raise InputError(f"{path} is not a table of tileforge verify: name another file") from None
        return table

    def known(self, key: str) -> Row | None:
        """The row of the kernel with this key, if today's cases judged it."""
        return next((row for row in self.rows.values() if row.key == key and row.checks == CASES_VERSION), None)

    def add(self, row: Row) -> None:
        self.rows[row.where] = row
        if self.path is not None:
            write(self.path, self.rows.values())


def _row(found: Mapping[str, Any]) -> Row:
    return Row(**{each.name: found[each.name] for each in fields(Row)})


def write(path: Path, rows: Iterable[Row]) -> None:
    """Puts the table at ``path`` whole or not at all: one line a row, in order. Raises InputError if it cannot."""
    from tileforge.files import write_atomic

    lines = ",\n".join(json.dumps(asdict(row)) for row in sorted(rows, key=lambda row: row.where))
    head = json.dumps({"schema": _SCHEMA, "made_by": "tileforge verify"})
    try:
        write_atomic(path, f'{head[:-1]}, "rows": [\n{lines}\n]}}\n')
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}") from None
