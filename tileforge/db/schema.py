"""Schema 1: what a database file may say, checked field by field, and how it is written.

``docs/database.md`` shows it by example. Every refusal names the line, the field and what is wanted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from tileforge.db.fields import (
    Fields,
    as_integer,
    as_list,
    as_mapping,
    as_plain,
    as_real,
    as_strings,
    as_tactic,
    as_tactics,
    as_text,
    made,
)
from tileforge.db.key import GpuFacts, Key
from tileforge.db.record import Evidence, Record
from tileforge.db.yaml_io import Node, Refused, flow, parse, scalar
from tileforge.tactic import Tactic

SCHEMA = 1


@dataclass(frozen=True)
class Content:
    """What one file says: its key, the GPU's facts, and the records by (M bucket, routing)."""

    key: Key
    gpu: GpuFacts = GpuFacts()
    records: dict[tuple[int, str], Record] = field(default_factory=dict)


def _timed(fields: Fields) -> dict[str, Any]:
    """The fields that records and evidence share."""
    return {
        "tactic": fields.take("tactic", as_tactic),
        "time_us": fields.take("time_us", as_real, None),
        "low_us": fields.take("low_us", as_real, None),
        "high_us": fields.take("high_us", as_real, None),
        "samples": fields.take("samples", as_integer, None),
        "error": fields.take("error", as_real, None),
        "date": fields.take("date", as_text, ""),
        "environment": fields.take("environment", as_strings, {}),
        "provenance": fields.take("provenance", as_text, ""),
    }


def _evidence(node: Node, what: str) -> tuple[Evidence, ...]:
    found = []
    for item in as_list(node, what):
        fields = Fields(item, "a piece of evidence")
        values = _timed(fields)
        fields.end()
        values["provenance"] = values["provenance"] or "measured"
        found.append(made(item.line, lambda values=values: Evidence(**values)))  # type: ignore[misc]
    return tuple(found)


def _default(node: Node, what: str) -> tuple[Tactic, float | None, float | None]:
    fields = Fields(node, what)
    read = (
        fields.take("tactic", as_tactic),
        fields.take("time_us", as_real, None),
        fields.take("predicted_us", as_real, None),
    )
    fields.end()
    return read


def _record(node: Node, key: Key, gpu: GpuFacts) -> Record:
    fields = Fields(node, "a record")
    values = _timed(fields)
    predicted = fields.take("predicted_us", as_real, None)
    if not values["provenance"]:  # by hand: what it has says what it is
        measured, guessed = values["time_us"] is not None, predicted is not None
        values["provenance"] = "measured" if measured else "predicted" if guessed else "transferred"
    default, default_us, default_predicted = fields.take("default", _default, (None, None, None))
    measured = values["provenance"] == "measured"
    if (default_predicted if measured else default_us) is not None:
        raise Refused(node.line, f"the default of a {values['provenance']} record must be {values['provenance']} too")
    per_group = fields.take("rows_per_group", as_real, None)
    values |= {
        "m": fields.take("m", as_integer),
        "routing": fields.take("routing", as_text, "balanced"),
        "seed": fields.take("seed", as_integer, 0),
        "ties": fields.take("ties", as_tactics, ()),
        "origin": fields.take("from", as_text, ""),
        "note": fields.take("note", as_text, ""),
        "conditions": fields.take(
            "conditions", lambda item, what: {n: as_plain(v, n[:40]) for n, v in as_mapping(item, what).items()}, {}
        ),
        "evidence": fields.take("evidence", _evidence, ()),
        "default": default,
        "default_us": default_us if measured else default_predicted,
        "predicted_us": predicted,
    }
    fields.end()
    record = made(node.line, lambda: Record(key=key, gpu=gpu, **values))
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
    fields = Fields(node, "key")
    for name, wanted in expected.as_dict().items():
        read: Callable[[Node, str], Any] = as_integer if isinstance(wanted, int) else as_text
        found = fields.take(name, read, wanted)
        if found != wanted:
            line = as_mapping(node, "key")[name].line
            raise Refused(line, f"key says {name} {str(found)[:40]!r}, the file's name and folder say {wanted!r}")
    facts = GpuFacts(
        fields.take("name", as_text, None),
        fields.take("sm", as_integer, None),
        fields.take("sms", as_integer, None),
        fields.take("smem_per_block", as_integer, None),
    )
    fields.end()
    return facts


def read(text: str, key: Key) -> Content:
    """What the text of ``key``'s file says. Raises Refused with line and reason; nothing of such a file is used."""
    fields = Fields(parse(text), "the file")
    schema = fields.left.pop("schema", None)
    if schema is None:
        raise Refused(1, f"no schema: start the file with 'schema: {SCHEMA}'")
    if as_integer(schema, "schema") != SCHEMA:
        raise Refused(schema.line, f"schema {schema.value} is not one that this tileforge reads ({SCHEMA})")
    facts = _key(fields.left.pop("key", None), key)
    content = Content(key, facts)
    for node in fields.take("records", as_list):
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
