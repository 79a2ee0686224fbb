"""``tileforge explain --batch``: verdicts in bulk, a JSON line in, a JSON line out, in order."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, TextIO

from tileforge import legality, smem
from tileforge.arch import ArchSpec, get_arch
from tileforge.cli.context import arch_for, target
from tileforge.errors import InputError, TileforgeError
from tileforge.tactic import Tactic
from tileforge.verdict import FITS, OVER

#: The keys of every answer; null where there is nothing to say.
KEYS = ("verdict", "reason", "message", "stages", "smem_bytes", "limit_bytes", "terms")
_TACTIC = ("tile", "cluster", "schedule", "stages", "epilogue_tile", "swap_ab", "raster", "swizzle")
_ASKED = ("arch", "format", "out", "c", "epilogue", "cutlass")
_SAID = ("source", "excess_bytes", "stages_that_fit", "smem_bytes_that_fit")
_get_arch = lru_cache(maxsize=16)(get_arch)


def answer(source: str, cutlass: str | None, gpu: str | None, arch: str | None, format_: str) -> str:
    """Answers every line of ``source`` ("-": standard input) on standard output; returns what was wrong, or "".

    Every answer is written at once when the input is not a file, so that another program can ask line by line.
    Raises InputError when there is no such file.
    """
    default: dict[str, Any] = {"format": format_}
    if gpu or arch:
        default["arch"] = target(gpu, arch, "", format_).arch.name
    default["cutlass"] = target(None, None, cutlass, format_).cutlass
    bad, first = 0, 0
    write = sys.stdout.write
    with _opened(source) as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue  # blank lines are no questions
            try:
                said = explain(json.loads(line), default)
            except (TileforgeError, ValueError, RecursionError) as error:
                what = "not JSON" if isinstance(error, (json.JSONDecodeError, RecursionError)) else str(error)
                said = {**dict.fromkeys(KEYS), "verdict": "invalid", "reason": "input"}
                said["message"] = f"line {number}: {what}"
                bad, first = bad + 1, first or number
            write(json.dumps(said) + "\n")
            if source == "-":
                sys.stdout.flush()
    sys.stdout.flush()
    return f"{bad} of the lines could not be read, the first is line {first}: see its answer" if bad else ""


class _opened:
    """The lines of a file or of standard input, as they come."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.file: TextIO | None = None

    def __enter__(self) -> Iterator[str]:
        if self.source == "-":
            return iter(sys.stdin.readline, "")
        try:
            self.file = open(self.source, encoding="utf-8", errors="replace")
        except OSError as error:
            raise InputError(f"cannot read {self.source}: {error.strerror}") from None
        return iter(self.file)

    def __exit__(self, *_: object) -> None:
        if self.file is not None:
            self.file.close()


def explain(fields: Any, default: Mapping[str, Any]) -> dict[str, Any]:
    """One answer. ``fields``: a line, parsed; null and missing fields are automatic or take ``default``.

    Raises InputError (or another TileforgeError) when the line is not a question.
    """
    if not isinstance(fields, dict):
        raise InputError('a line is an object: {"tile": [128, 64, 256], "schedule": "cooperative"}')
    for name in fields:
        if name not in _ASKED and name not in _TACTIC and name != "tactic":
            raise InputError(f"unknown key {name!r}: use {', '.join((*_ASKED, *_TACTIC))}")
    asked = {name: fields[name] for name in _ASKED if fields.get(name) is not None}
    for name, value in asked.items():
        if not isinstance(value, str):
            raise InputError(f"{name} {value!r} is not a name")
    tactic = _tactic(fields)
    asked = {**default, **asked}
    arch: ArchSpec = _get_arch(asked.pop("arch", None) or arch_for(asked["format"]))
    verdict = legality.check(tactic, arch=arch, **asked)
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
    # The arithmetic assumes that the rules hold: of a tactic that breaks one, no bytes are given.
    if verdict.kind in (FITS, OVER) or verdict.reason == "unconfirmed":
        ask = smem.context(arch, asked["format"], asked.get("out", "bf16"), asked["cutlass"],
                           asked.get("epilogue", "plain"), asked.get("c"))  # fmt: skip
        said["terms"] = smem.storage(tactic, ask).terms(verdict.figures["stages"])
        said["stages"], said["smem_bytes"] = verdict.figures["stages"], verdict.figures["smem_bytes"]
    elif verdict.reason == "stages":
        said["stages"] = verdict.figures["stages"]
    for name in _SAID:
        if name in verdict.figures:
            said[name] = verdict.figures[name]
    return said


def _tactic(fields: Mapping[str, Any]) -> Tactic:
    chosen = {name: fields[name] for name in _TACTIC if fields.get(name) is not None}
    named = fields.get("tactic")
    if named is not None:
        if chosen:
            raise InputError(f"tactic says it all: leave out {sorted(chosen)[0]}")
        if not isinstance(named, str):
            raise InputError(f"tactic {named!r} is not an id such as 128x64x256_c1x1_coop")
        return Tactic.parse(named)
    if "tile" not in chosen:
        raise InputError("a tile is missing: [128, 64, 256]")
    return Tactic.from_dict(chosen)
