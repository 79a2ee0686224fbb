"""``tileforge explain --batch``: verdicts in bulk, a JSON line in, a JSON line out, in order.

What has arrived is answered at once, so that another program can keep a pipe open and ask line by line; a file is
read in large pieces. No line stops the others: one that is no question is answered ``invalid`` and counted.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from io import BufferedIOBase
from typing import Any, cast

import click

from tileforge import legality, paths, smem
from tileforge.arch import ArchSpec, get_arch
from tileforge.cli.context import arch_for, cutlass_in_use
from tileforge.errors import InputError
from tileforge.tactic import Tactic
from tileforge.verdict import FITS, OVER

#: The keys of every answer, null where there is nothing to say; an ``over`` adds the figures below.
KEYS = ("verdict", "reason", "message", "stages", "smem_bytes", "limit_bytes", "terms", "source")
OVER_KEYS = ("excess_bytes", "stages_that_fit", "smem_bytes_that_fit")
#: What a line may say: the fields of a tactic (or its id), and what it is asked for.
TACTIC_KEYS = ("tile", "cluster", "schedule", "stages", "epilogue_tile", "swap_ab", "raster", "swizzle")
ASKED_KEYS = ("arch", "format", "out", "c", "epilogue", "cutlass")
_TACTIC_KEYS, _ALL_KEYS = frozenset(TACTIC_KEYS), frozenset((*TACTIC_KEYS, *ASKED_KEYS, "tactic"))

_READ = 1 << 16
#: A line is a few hundred bytes; a longer one than this is no question, and is not kept in memory.
_LONGEST = 1 << 16


@dataclass
class Batch:
    """Answers lines. The fields stand for the keys that a line leaves out: the options of the command.

    ``arch`` None: the SM that has kernels of the line's format; ``cutlass`` None: the version in use.
    ``bad``: how many lines were no question, ``first`` the number of the first of them, ``lines`` of how many.
    """

    arch: str | None = None
    format: str = "nvfp4"
    out: str = "bf16"
    epilogue: str = "plain"
    c: str | None = None
    cutlass: str | None = None
    lines: int = field(default=0, init=False)
    bad: int = field(default=0, init=False)
    first: int = field(default=0, init=False)
    _blank: int = field(default=0, init=False)

    @cached_property
    def _cutlass(self) -> str:
        return cutlass_in_use(self.cutlass)

    def answers(self, lines: list[bytes]) -> str:
        """The answers to ``lines``, each with its line feed. Blank lines wait for a line that is not blank: at the
        end of a file they are no questions, before another line they are (empty) ones."""
        said = []
        for line in lines:
            if not line.strip():
                self._blank += 1
                continue
            said += [self._answer(b"") for _ in range(self._blank)]
            self._blank = 0
            said.append(self._answer(line))
        return "".join(said)

    def _answer(self, line: bytes) -> str:
        self.lines += 1
        try:
            return json.dumps(self.explain(_parsed(line))) + "\n"
        except InputError as error:
            self.bad += 1
            self.first = self.first or self.lines
            what = str(error) if len(str(error)) <= 400 else f"{str(error)[:400]} ..."
            said = {**dict.fromkeys(KEYS), "verdict": "invalid", "reason": "input"}
            return json.dumps({**said, "message": f"line {self.lines}: {what}"}) + "\n"

    def explain(self, line: Mapping[str, Any]) -> dict[str, Any]:
        """One answer. ``line``: the question by its keys; those left out or null take the defaults, but for a null
        ``c``, which is no C operand.

        Raises InputError when it is no question.
        """
        if not line.keys() <= _ALL_KEYS:
            unknown = sorted(line.keys() - _ALL_KEYS)[0]
            raise InputError(f"unknown key {unknown!r}: use {', '.join((*ASKED_KEYS, *TACTIC_KEYS))} or tactic")
        tactic = _tactic(line)
        arch, asked = self._asked(line)
        verdict = legality.check(tactic, arch=arch, **asked)
        figures = verdict.figures
        said: dict[str, Any] = {
            "verdict": verdict.kind,
            "reason": verdict.reason,
            "message": verdict.message,
            "stages": None,
            "smem_bytes": None,
            "limit_bytes": arch.smem_per_block,
            "terms": None,
            "source": verdict.source,
        }
        if "stages" in figures:
            said["stages"] = figures["stages"]
        # The arithmetic assumes that the rules hold: of a tactic that breaks one, no bytes are given.
        if verdict.kind in (FITS, OVER) or verdict.reason == "unconfirmed":
            said["smem_bytes"] = figures["smem_bytes"]
            said["terms"] = smem.storage(tactic, smem.context(arch, **asked)).terms(figures["stages"])
        if verdict.kind == OVER:
            said |= {name: figures.get(name) for name in OVER_KEYS}
        return said

    def _asked(self, line: Mapping[str, Any]) -> tuple[ArchSpec, dict[str, Any]]:
        """What the tactic is asked for."""
        form = _word(line, "format", self.format)
        c = line.get("c", self.c)
        return get_arch(_word(line, "arch", self.arch or arch_for(form))), {
            "format": form,
            "out": _word(line, "out", self.out),
            "cutlass": _word(line, "cutlass", "") or self._cutlass,
            "epilogue": _word(line, "epilogue", self.epilogue),
            "c": None if c in (None, "none") else _word({"c": c}, "c", ""),
        }


def run(source: str, batch: Batch) -> str:
    """Answers every line of ``source`` (a file, or "-": standard input) on standard output.

    Returns one line about the lines that were no questions, "" when there were none. Raises InputError when
    ``source`` cannot be read, and ToolchainError when the CUTLASS that is to be in use is none.
    """
    if not batch.cutlass and paths.variable("TILEFORGE_CUTLASS"):
        batch.cutlass = cutlass_in_use(None)  # what was named and is not there is said before anything is answered
    for lines in _arriving(source):
        if said := batch.answers(lines):
            click.echo(said, nl=False)
    if not batch.bad:
        return ""
    where = "standard input" if source == "-" else source
    return f"{batch.bad} of {batch.lines} lines of {where} could not be read, the first is line {batch.first}"


def _arriving(source: str) -> Iterator[list[bytes]]:
    """The lines of ``source``, as many at a time as one read brings. Of one that is too long, the beginning."""
    if source == "-" and sys.stdin is None:
        raise InputError("standard input is closed: name a file of JSON lines")
    rest = b""
    try:
        with nullcontext(sys.stdin.buffer) if source == "-" else open(source, "rb") as stream:
            while chunk := cast(BufferedIOBase, stream).read1(_READ):
                *lines, rest = (rest + chunk).split(b"\n")
                rest = rest[: _LONGEST + 1]
                yield lines
    except (OSError, ValueError) as error:  # ValueError: a name with a NUL in it
        raise InputError(f"cannot read {source}: {getattr(error, 'strerror', None) or error}") from None
    yield [rest]


def _parsed(line: bytes) -> Mapping[str, Any]:
    if len(line) > _LONGEST:
        raise InputError(f"longer than {_LONGEST:,} bytes")
    try:
        value = json.loads(line.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise InputError(f"not JSON: {'empty' if not line.strip() else getattr(error, 'msg', error)}") from None
    if not isinstance(value, dict):
        raise InputError('not an object: write it as {"tile": [128, 64, 256], "schedule": "cooperative"}')
    return value


def _tactic(line: Mapping[str, Any]) -> Tactic:
    if named := _word(line, "tactic", ""):
        if others := {key for key in _TACTIC_KEYS & line.keys() if line[key] is not None}:
            raise InputError(f"tactic names every field: leave {min(others)} out, or tactic")
        return Tactic.parse(named)
    stages, epilogue_tile, swizzle = line.get("stages"), line.get("epilogue_tile"), line.get("swizzle")
    if stages not in (None, "auto") and type(stages) is not int:
        raise InputError(f"stages {stages!r} is not a whole number, nor null for the automatic count")
    cluster = line.get("cluster")
    return Tactic(
        tile=_sizes(line.get("tile"), "tile", 3),  # type: ignore[arg-type]
        cluster=(1, 1) if cluster is None else _sizes(cluster, "cluster", 2),  # type: ignore[arg-type]
        schedule=_word(line, "schedule", "cooperative"),
        stages=None if stages == "auto" else stages,
        epilogue_tile=(
            None if epilogue_tile in (None, "auto") else _sizes(epilogue_tile, "epilogue_tile", 2)  # type: ignore[arg-type]
        ),
        swap_ab=False if line.get("swap_ab") is None else line["swap_ab"],
        raster=_word(line, "raster", "heuristic"),
        swizzle=1 if swizzle is None else swizzle,
    )


def _word(line: Mapping[str, Any], key: str, default: str) -> str:
    value = line.get(key)
    if value is None:
        return default
    if type(value) is str and value:
        return value
    raise InputError(f"{key} {value!r} is not a name")


def _sizes(value: Any, key: str, count: int) -> tuple[int, ...]:
    """Whether they are whole numbers of 1 and more is the tactic's own question."""
    if type(value) is list and len(value) == count:
        return tuple(value)
    if value is None:
        raise InputError(f"{key} is missing: write it as a list of {count} whole numbers")
    raise InputError(f"{key} {value!r} is not a list of {count} whole numbers")
