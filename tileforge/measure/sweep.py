"""Recorded sweeps: every measurement of a set of problems, one JSON line each, to be replayed without a GPU.

The first line is a header: ``{"sweep": 1, "facts": {...}, "note": "..."}``. Every further line is one
measurement of one tactic on one problem::

    {"problem": "m=512 n=4096 k=6144 groups=32 format=bf16 out=bf16 routing=uniform seed=0",
     "tactic": "128x16x128_c1x1_coop_swap", "us": [381.9, 382.4], "error": 0.0016, "conditions": {...}}

with ``status`` and ``message`` in place of ``us`` for a failure. Files can be concatenated, and may be compressed
(``.gz``); two lines about the same tactic and problem add their samples.
"""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tileforge.errors import InputError
from tileforge.measure.result import OK, Measurement
from tileforge.problem import GroupedGemm
from tileforge.tactic import Tactic

VERSION = 1
#: Digits that a clock's reading is worth; events resolve about half a microsecond over a run of milliseconds.
_DIGITS = 6


def problem_text(problem: GroupedGemm) -> str:
    """What names a problem in a sweep: everything that changes its times (its label does not)."""
    return " ".join(f"{key}={value}" for key, value in problem.as_dict().items() if key != "name")


def parse_problem(text: str) -> GroupedGemm:
    """The reverse of :func:`problem_text`. Raises InputError."""
    try:
        fields: dict[str, Any] = dict(part.split("=", 1) for part in text.split())
        for name in ("m", "n", "k", "groups", "seed"):
            fields[name] = int(fields[name])
        return GroupedGemm(**fields)
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"not a problem of a sweep: {text!r} ({error})") from None


def _short(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}") if math.isfinite(value) else value


def line_of(problem: GroupedGemm, measurement: Measurement) -> str:
    """One line of the file, without its newline."""
    values: dict[str, Any] = {"problem": problem_text(problem), "tactic": measurement.tactic.id}
    if not measurement.ok:
        values |= {"status": measurement.status, "message": measurement.message}
    if measurement.samples_us:
        values["us"] = [_short(sample) for sample in measurement.samples_us]
    if measurement.error is not None:
        values["error"] = float(f"{measurement.error:.3g}")
    if measurement.discarded:
        values["discarded"] = measurement.discarded
    if measurement.conditions:
        values["conditions"] = dict(measurement.conditions)
    return json.dumps(values, separators=(",", ":"))


def header_of(facts: Mapping[str, Any], note: str = "") -> str:
    return json.dumps({"sweep": VERSION, "facts": dict(facts), "note": note}, separators=(",", ":"))


@dataclass
class Sweep:
    """Measurements by problem (its :func:`problem_text`) and tactic id, with the device they were taken on."""

    facts: dict[str, Any] = field(default_factory=dict)
    note: str = ""
    measurements: dict[str, dict[str, Measurement]] = field(default_factory=dict)

    def add(self, problem: GroupedGemm, measurement: Measurement) -> None:
        of_problem = self.measurements.setdefault(problem_text(problem), {})
        before = of_problem.get(measurement.tactic.id)
        of_problem[measurement.tactic.id] = before.merged(measurement) if before else measurement

    def of(self, problem: GroupedGemm) -> dict[str, Measurement]:
        """Measurements of ``problem`` by tactic id; empty when it was not swept."""
        return self.measurements.get(problem_text(problem), {})

    def problems(self) -> list[GroupedGemm]:
        return [parse_problem(text) for text in self.measurements]

    def __len__(self) -> int:
        return sum(len(of_problem) for of_problem in self.measurements.values())

    def lines(self) -> Iterator[str]:
        yield header_of(self.facts, self.note)
        for text, of_problem in self.measurements.items():
            problem = parse_problem(text)
            for measurement in of_problem.values():
                yield line_of(problem, measurement)

    def save(self, path: Path) -> None:
        path.write_text("".join(line + "\n" for line in self.lines()))

    @classmethod
    def read(cls, lines: Iterable[str], where: str = "sweep") -> Sweep:
        """Raises InputError with the line's number. A torn last line (a killed writer) is refused as well."""
        sweep = cls()
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                values = json.loads(line)
                if "sweep" in values:
                    if values["sweep"] != VERSION:
                        raise InputError(f"sweep format {values['sweep']!r} is not {VERSION}")
                    sweep.facts, sweep.note = values.get("facts", {}), values.get("note", "")
                    continue
                measurement = Measurement(
                    Tactic.parse(values["tactic"]),
                    values.get("status", OK),
                    values.get("message", ""),
                    tuple(map(float, values.get("us", ()))),
                    values.get("error"),
                    int(values.get("discarded", 0)),
                    values.get("conditions", {}),
                )
                sweep.add(parse_problem(values["problem"]), measurement)
            except (AttributeError, KeyError, TypeError, ValueError) as error:
                raise InputError(f"{where}, line {number}: {error}") from None
        return sweep

    @classmethod
    def load(cls, path: Path) -> Sweep:
        try:
            with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as lines:
                return cls.read(lines, str(path))
        except OSError as error:
            raise InputError(f"cannot read the sweep {path}: {error.strerror}") from None
