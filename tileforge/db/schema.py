"""Schema 1: what a database file may say, checked field by field, and how it is written.

``docs/database.md`` shows it by example. Every refusal names the line, the field and what is wanted.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar, overload

from tileforge.db.key import GpuFacts, Key
from tileforge.db.record import Evidence, Record, Scalar
from tileforge.db.yaml_io import Node, Refused, flow, parse, scalar
from tileforge.errors import InputError
from tileforge.tactic import RASTERS, SCHEDULES, SWIZZLES, Tactic

T = TypeVar("T")
D = TypeVar("D")

SCHEMA = 1

_INT = re.compile(r"[+-]?\d{1,18}")
_FLOAT = re.compile(r"[+-]?(\d{1,30}\.?\d{0,30}|\.\d{1,30})([eE][+-]?\d{1,3})?")
_NULL = frozenset({"", "~", "null", "Null", "NULL"})
_REQUIRED: Any = object()


@dataclass(frozen=True)
class Content:
    """What one file says: its key, the GPU's facts, and the records by (M bucket, routing)."""

    key: Key
    gpu: GpuFacts = GpuFacts()
    records: dict[tuple[int, str], Record] = field(default_factory=dict)


# Reading values. Each takes a node and the name of the field for the message.
def _scalar(node: Node, what: str, wanted: str) -> str:
    if not isinstance(node.value, str):
        kind = "list" if isinstance(node.value, list) else "mapping"
        raise Refused(node.line, f"{what} must be {wanted}, not a {kind}")
    return node.value


def _text(node: Node, what: str) -> str:
    return _scalar(node, what, "text")


def _integer(node: Node, what: str) -> int:
    value = _scalar(node, what, "a whole number")
    if not (node.plain and _INT.fullmatch(value)):
        raise Refused(node.line, f"{what} must be a whole number, not {value[:40]!r}")
    return int(value)


def _real(node: Node, what: str) -> float:
    value = _scalar(node, what, "a number")
    if not (node.plain and _FLOAT.fullmatch(value)) or not math.isfinite(number := float(value)):
        raise Refused(node.line, f"{what} must be a number, not {value[:40]!r}")
    return number


def _boolean(node: Node, what: str) -> bool:
    value = _scalar(node, what, "true or false")
    if not node.plain or value not in ("true", "false"):
        raise Refused(node.line, f"{what} must be true or false, not {value[:40]!r}")
    return value == "true"


def _free(node: Node, what: str) -> Scalar:
    """A plain value of unknown kind (conditions)."""
    value = _scalar(node, what, "a plain value")
    if not node.plain:
        return value
    if value in _NULL:
        return None
    if value in ("true", "false"):
        return value == "true"
    if _INT.fullmatch(value):
        return int(value)
    return float(value) if _FLOAT.fullmatch(value) and math.isfinite(float(value)) else value


def _list(node: Node, what: str, length: int | None = None) -> list[Node]:
    if not isinstance(node.value, list) or length not in (None, len(node.value)):
        raise Refused(node.line, f"{what} must be a list" + (f" of {length}" if length else ""))
    return node.value


def _mapping(node: Node, what: str) -> dict[str, Node]:
    if not isinstance(node.value, dict):
        raise Refused(node.line, f"{what} must be a mapping (name: value)")
    return node.value


def _strings(node: Node, what: str) -> dict[str, str]:
    return {name: _text(item, f"{what} {name[:40]!r}") for name, item in _mapping(node, what).items()}


class _Fields:
    """The fields of one mapping: each taken once, what is left over is refused."""

    def __init__(self, node: Node, what: str) -> None:
        self.node, self.what = node, what
        self.left = dict(_mapping(node, what))

    @overload
    def take(self, name: str, read: Callable[[Node, str], T]) -> T: ...
    @overload
    def take(self, name: str, read: Callable[[Node, str], T], default: D) -> T | D: ...
    def take(self, name: str, read: Callable[[Node, str], Any], default: Any = _REQUIRED) -> Any:
        node = self.left.pop(name, None)
        if node is None or (node.plain and node.value in _NULL):
            if default is _REQUIRED:
                raise Refused(self.node.line, f"{self.what} has no {name}")
            return default
        return read(node, name)

    def end(self) -> None:
        for name, node in self.left.items():
            raise Refused(node.line, f"{self.what} has an unknown field {name[:40]!r}")


def _made(line: int, make: Callable[[], T]) -> T:
    """What ``make`` makes; its InputError becomes a refusal of that line."""
    try:
        return make()
    except InputError as error:
        raise Refused(line, str(error)) from None


def _sizes(length: int) -> Callable[[Node, str], tuple[int, ...]]:
    def read(node: Node, what: str) -> tuple[int, ...]:
        sizes = tuple(_integer(item, what) for item in _list(node, what, length))
        if not all(0 < size < 2**20 for size in sizes):
            raise Refused(node.line, f"{what} must hold whole numbers of 1 and more")
        return sizes

    return read


def _or_auto(read: Callable[[Node, str], T]) -> Callable[[Node, str], T | None]:
    return lambda node, what: None if node.plain and node.value == "auto" else read(node, what)


def _one_of(names: Iterable[str]) -> Callable[[Node, str], str]:
    def read(node: Node, what: str) -> str:
        value = _text(node, what)
        if value not in names:
            raise Refused(node.line, f"{what} must be one of {', '.join(names)}, not {value[:40]!r}")
        return value

    return read


def _tactic(node: Node, what: str) -> Tactic:
    """Fields, or an id by hand: ``128x64x256 swap``."""
    if isinstance(node.value, str):
        text = node.value
        tactic = _made(node.line, lambda: Tactic.parse(text[:200]))
    else:
        fields = _Fields(node, what)
        tile, epilogue = fields.take("tile", _sizes(3)), fields.take("epilogue_tile", _or_auto(_sizes(2)), None)
        cluster = fields.take("cluster", _sizes(2), (1, 1))
        tactic = _made(
            node.line,
            lambda: Tactic(
                tile=(tile[0], tile[1], tile[2]),
                cluster=(cluster[0], cluster[1]),
                schedule=fields.take("schedule", _one_of(SCHEDULES), "cooperative"),
                stages=fields.take("stages", _or_auto(_integer), None),
                epilogue_tile=None if epilogue is None else (epilogue[0], epilogue[1]),
                swap_ab=fields.take("swap_ab", _boolean, False),
                raster=fields.take("raster", _one_of(RASTERS), "heuristic"),
                swizzle=fields.take("swizzle", _integer, 1),
            ),
        )
        fields.end()
    if tactic.swizzle not in SWIZZLES or max(*tactic.tile, *tactic.cluster, tactic.stages or 1) >= 2**20:
        raise Refused(node.line, f"{what}: swizzle must be one of {SWIZZLES}, sizes under {2**20:,}")
    return tactic


def _tactics(node: Node, what: str) -> tuple[Tactic, ...]:
    return tuple(_tactic(item, what) for item in _list(node, what))


def _timed(fields: _Fields) -> dict[str, Any]:
    """The fields that records and evidence share."""
    return {
        "tactic": fields.take("tactic", _tactic),
        "time_us": fields.take("time_us", _real, None),
        "low_us": fields.take("low_us", _real, None),
        "high_us": fields.take("high_us", _real, None),
        "samples": fields.take("samples", _integer, None),
        "error": fields.take("error", _real, None),
        "date": fields.take("date", _text, ""),
        "environment": fields.take("environment", _strings, {}),
        "provenance": fields.take("provenance", _text, ""),
    }


def _evidence(node: Node, what: str) -> tuple[Evidence, ...]:
    found = []
    for item in _list(node, what):
        fields = _Fields(item, "a piece of evidence")
        values = _timed(fields)
        fields.end()
        values["provenance"] = values["provenance"] or "measured"
        found.append(_made(item.line, lambda values=values: Evidence(**values)))  # type: ignore[misc]
    return tuple(found)


def _default(node: Node, what: str) -> tuple[Tactic, float | None, float | None]:
    fields = _Fields(node, what)
    read = fields.take("tactic", _tactic), fields.take("time_us", _real, None), fields.take("predicted_us", _real, None)
    fields.end()
    return read


def _record(node: Node, key: Key, gpu: GpuFacts) -> Record:
    fields = _Fields(node, "a record")
    values = _timed(fields)
    predicted = fields.take("predicted_us", _real, None)
    if not values["provenance"]:  # by hand: what it has says what it is
        measured, guessed = values["time_us"] is not None, predicted is not None
        values["provenance"] = "measured" if measured else "predicted" if guessed else "transferred"
    default, default_us, default_predicted = fields.take("default", _default, (None, None, None))
    measured = values["provenance"] == "measured"
    if (default_predicted if measured else default_us) is not None:
        raise Refused(node.line, f"the default of a {values['provenance']} record must be {values['provenance']} too")
    per_group = fields.take("rows_per_group", _real, None)
    values |= {
        "m": fields.take("m", _integer),
        "routing": fields.take("routing", _text, "balanced"),
        "seed": fields.take("seed", _integer, 0),
        "ties": fields.take("ties", _tactics, ()),
        "origin": fields.take("from", _text, ""),
        "note": fields.take("note", _text, ""),
        "conditions": fields.take(
            "conditions", lambda item, what: {n: _free(v, n[:40]) for n, v in _mapping(item, what).items()}, {}
        ),
        "evidence": fields.take("evidence", _evidence, ()),
        "default": default,
        "default_us": default_us if measured else default_predicted,
        "predicted_us": predicted,
    }
    fields.end()
    record = _made(node.line, lambda: Record(key=key, gpu=gpu, **values))
    if per_group is not None and not math.isclose(per_group, record.rows_per_group, rel_tol=1e-3):
        raise Refused(
            node.line,
            f"rows_per_group {per_group:g} does not match m {record.m} over {key.groups} groups: leave it out",
        )
    return record


def _key(node: Node | None, expected: Key) -> GpuFacts:
    """Checks the ``key:`` block against the file's name (it may be left out in part or whole); the GPU's facts."""
    if node is None:
        return GpuFacts()
    fields = _Fields(node, "key")
    for name, wanted in expected.as_dict().items():
        read: Callable[[Node, str], Any] = _integer if isinstance(wanted, int) else _text
        found = fields.take(name, read, wanted)
        if found != wanted:
            line = _mapping(node, "key")[name].line
            raise Refused(line, f"key says {name} {str(found)[:40]!r}, the file's name and folder say {wanted!r}")
    facts = GpuFacts(
        fields.take("name", _text, None),
        fields.take("sm", _integer, None),
        fields.take("sms", _integer, None),
        fields.take("smem_per_block", _integer, None),
    )
    fields.end()
    return facts


def read(text: str, key: Key) -> Content:
    """What the text of ``key``'s file says. Raises Refused with line and reason; nothing of such a file is used."""
    fields = _Fields(parse(text), "the file")
    schema = fields.left.pop("schema", None)
    if schema is None:
        raise Refused(1, f"no schema: start the file with 'schema: {SCHEMA}'")
    if _integer(schema, "schema") != SCHEMA:
        raise Refused(schema.line, f"schema {schema.value} is not one that this tileforge reads ({SCHEMA})")
    facts = _key(fields.left.pop("key", None), key)
    content = Content(key, facts)
    for node in fields.take("records", _list):
        record = _record(node, key, facts)
        if record.slot in content.records:
            raise Refused(node.line, f"a second record for m {record.m} and routing {record.routing}")
        content.records[record.slot] = record
    fields.end()
    return content


# Writing.
def _short(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value not in (None, "", (), {})}


def _record_lines(record: Record) -> Iterable[str]:
    per_group = record.rows_per_group
    rows = int(per_group) if per_group.is_integer() else float(f"{per_group:.4g}")
    yield f"- m: {record.m}"
    timed = _short(record.as_dict() | {"rows_per_group": rows, "from": record.origin})
    for name in ("rows_per_group", "routing", "seed", "provenance", "from", "note"):
        if name in timed and (name != "seed" or record.seed):
            yield f"  {name}: {scalar(timed[name])}"
    yield f"  tactic: {flow(record.tactic.as_dict())}"
    for name in ("time_us", "low_us", "high_us", "predicted_us", "samples", "error", "date"):
        if name in timed:
            yield f"  {name}: {scalar(timed[name])}"
    if record.default is not None:
        yield "  default:"
        yield f"    tactic: {flow(record.default.as_dict())}"
        if record.default_us is not None:
            name = "time_us" if record.provenance == "measured" else "predicted_us"
            yield f"    {name}: {scalar(record.default_us)}"
    if record.ties:
        yield f"  ties: {flow([tactic.id for tactic in record.ties])}"
    for name, values in (("environment", record.environment), ("conditions", record.conditions)):
        if values:
            yield f"  {name}: {flow(dict(sorted(values.items())))}"
    if record.evidence:
        yield "  evidence:"
        for item in record.evidence:
            fields = item.as_dict()
            if "environment" in fields:
                fields["environment"] = dict(sorted(fields["environment"].items()))
            yield f"  - {flow(fields)}"


def write(content: Content) -> str:
    """The text of a file: sorted by M bucket, then routing; the same content is the same text."""
    key, gpu = content.key.as_dict(), content.gpu
    facts = {"name": gpu.name, "sm": gpu.sm, "sms": gpu.sms, "smem_per_block": gpu.smem_per_block}
    block = {"gpu": key.pop("gpu"), **facts, **key}
    order = ("format", "scale_layout", "out", "n", "k", "groups", "family", "execution")
    about = "# tileforge tuning database; docs/database.md says what the fields mean"
    lines = ["---", about, f"schema: {SCHEMA}", "key:"]
    for name in ("gpu", *facts, *order):
        if block[name] is not None:
            lines.append(f"  {name}: {scalar(block[name])}")
    lines.append("records:" if content.records else "records: []")
    for slot in sorted(content.records):
        lines.extend(_record_lines(content.records[slot]))
    return "\n".join([*lines, "...", ""])
