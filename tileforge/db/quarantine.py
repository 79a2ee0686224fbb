"""Tactics that were tried and failed, so that nobody meets them twice: one list per GPU, beside its records.

``<database>/<gpu sku>/quarantine.yaml``. An entry is of one tactic on one problem's sizes, with the class of the
failure and the environment. It holds as long as nothing that is known of the environment differs; taking it out of
the file lets the tactic in again. Only failures that are the tactic's own are kept (see
:mod:`tileforge.measure.worker`); what the device lacked memory for, or nobody measured, is not a tactic's fault.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

from tileforge.db.environment import STALE, compare_environment
from tileforge.db.fields import Fields, as_integer, as_list, as_one_of, as_strings, as_tactic, as_text, made
from tileforge.db.yaml_io import Node, Refused, flow, parse, read_text, scalar
from tileforge.errors import DatabaseError, InputError
from tileforge.files import lock, sweep, write_atomic
from tileforge.problem import GroupedGemm
from tileforge.tactic import Tactic

#: The file's name, which is no key's.
FILE = "quarantine.yaml"
SCHEMA = 1
#: ``OWN`` of :mod:`tileforge.measure.result`, which is not imported: a look-up must not pay for it.
CLASSES = ("crashed", "launch_failed", "timeout", "wrong_result")


@dataclass(frozen=True)
class Quarantined:
    """``tactic`` failed for problems of these sizes, at ``m`` rows, with ``status`` and one line of ``message``."""

    tactic: Tactic
    format: str
    out: str
    n: int
    k: int
    groups: int
    m: int
    status: str
    message: str = ""
    date: str = ""
    environment: Mapping[str, str] = field(default_factory=dict, hash=False)

    @classmethod
    def of(
        cls, problem: GroupedGemm, tactic: Tactic, status: str, message: str, environment: Mapping[str, str]
    ) -> Quarantined:
        """Raises InputError for a class of failure that is not the tactic's own."""
        if status not in CLASSES:
            raise InputError(f"{status} is not a tactic's own failure: quarantined are {', '.join(CLASSES)}")
        sizes = (problem.format, problem.out, problem.n, problem.k, problem.groups, problem.m)
        line = " ".join(message.split())[:300]
        return cls(tactic, *sizes, status, line, date.today().isoformat(), dict(environment))

    @property
    def slot(self) -> tuple[object, ...]:
        """What the list has one entry for."""
        return (self.format, self.out, self.n, self.k, self.groups, self.tactic.id)

    def concerns(self, problem: GroupedGemm) -> bool:
        return self.slot[:-1] == (problem.format, problem.out, problem.n, problem.k, problem.groups)


class Quarantine:
    """The list of one GPU in the database at ``path``. Reading raises DatabaseError for a file that cannot be read."""

    def __init__(self, path: Path, gpu: str) -> None:
        self.database, self.path = path, path / gpu / FILE
        self._read: tuple[Quarantined, ...] | None = None

    def entries(self) -> tuple[Quarantined, ...]:
        """What the file says now."""
        try:
            return read(read_text(self.path))
        except (FileNotFoundError, NotADirectoryError):
            return ()
        except Refused as refused:
            raise DatabaseError(
                f"{self.path}:{refused.line}: {refused.reason}; mend the file or move it away"
            ) from None

    def holds(self, problem: GroupedGemm, environment: Mapping[str, str]) -> dict[Tactic, Quarantined]:
        """The tactics not to be tried for ``problem`` where ``environment`` is what is known about here.

        The file is read for the first problem, and again by :meth:`add`.
        """
        if self._read is None:
            self._read = self.entries()
        return {
            entry.tactic: entry
            for entry in self._read
            if entry.concerns(problem) and compare_environment(entry.environment, environment).state != STALE
        }

    def add(self, new: Iterable[Quarantined]) -> None:
        """Merges ``new`` into the file, each in the place of an older one; nothing is written when there is none.

        Raises DatabaseError when the file cannot be read or written; it is never written over then.
        """
        if not (wanted := {entry.slot: entry for entry in new}):
            return
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with lock(self.database):
                merged = {entry.slot: entry for entry in self.entries()} | wanted
                sweep(self.path.parent)
                write_atomic(self.path, write(merged.values()))
            self._read = tuple(merged.values())
        except OSError as error:
            raise DatabaseError(f"cannot write {self.path}: {error.strerror or error}") from None


def read(text: str) -> tuple[Quarantined, ...]:
    """Raises Refused with line and reason; nothing of such a file is used."""
    fields = Fields(parse(text), "the file")
    if (schema := fields.take("schema", as_integer)) != SCHEMA:
        raise Refused(1, f"schema {schema} is not one that this tileforge reads ({SCHEMA})")
    found = tuple(_entry(node) for node in fields.take("quarantine", as_list))
    fields.end()
    return found


def _entry(node: Node) -> Quarantined:
    fields = Fields(node, "an entry")
    values: dict[str, Any] = {"tactic": fields.take("tactic", as_tactic)}
    values |= {name: fields.take(name, as_text) for name in ("format", "out")}
    values |= {name: fields.take(name, as_integer) for name in ("n", "k", "groups", "m")}
    values["status"] = fields.take("status", as_one_of(CLASSES))
    values |= {name: fields.take(name, as_text, "") for name in ("message", "date")}
    values["environment"] = fields.take("environment", as_strings, {})
    fields.end()
    return made(node.line, lambda: Quarantined(**values))


def write(entries: Iterable[Quarantined]) -> str:
    """The text of a file, sorted: the same entries are the same text."""
    lines = ["---", "# tactics that failed on this GPU; docs/database.md says what the fields mean"]
    lines += [f"schema: {SCHEMA}", "quarantine:"]
    for entry in sorted(entries, key=lambda each: tuple(map(str, each.slot))):
        lines.append(f"- tactic: {scalar(entry.tactic.id)}")
        for name in ("format", "out", "n", "k", "groups", "m", "status", "message", "date"):
            if (value := getattr(entry, name)) != "":
                lines.append(f"  {name}: {scalar(value)}")
        if entry.environment:
            lines.append(f"  environment: {flow(dict(sorted(entry.environment.items())))}")
    return "\n".join([*lines, "...", ""])
