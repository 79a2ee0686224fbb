"""YAML in and out, as far as the database needs it.

Reading goes through PyYAML's safe parser (the C one when it is there) as a stream of events, never through a
constructor: no object is made but text, lists and mappings, whatever a file says. Tags, anchors, aliases, several
documents, repeated keys and deep nesting are refused where they first appear, with the line; so a file costs memory
in proportion to its size. Text stays text until a field says what it should be, so YAML's own guesses (``no``,
``010``, ``1:30``) cannot happen.

Writing puts ``---`` first and ``...`` last. A file that opens with ``---`` and has no ``...`` was cut short.
"""

from __future__ import annotations

import functools
import os
import re
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MAX_BYTES = 32 * 2**20
MAX_DEPTH = 8


class Refused(Exception):
    """A file that is not taken: ``line`` (from 1, 0 unknown) and ``reason``, one line."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(reason)
        self.line = line
        self.reason = " ".join(reason.split())


@dataclass(slots=True)
class Node:
    """A value as written: text (with ``plain``: not quoted), a list of nodes, or a mapping of names to nodes."""

    line: int
    value: str | list[Node] | dict[str, Node]
    plain: bool = False


def read_text(path: Path) -> str:
    """The text of a regular file. Raises Refused; FileNotFoundError passes."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe must not hang a reader
        with os.fdopen(handle, "rb") as file:
            info = os.fstat(file.fileno())
            if not stat.S_ISREG(info.st_mode):
                raise Refused(0, "not a regular file")
            if info.st_size > MAX_BYTES:
                raise Refused(0, f"{info.st_size:,} B is more than the {MAX_BYTES:,} B that a database file may have")
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise Refused(0, f"cannot be read: {error.strerror or error}") from None
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Refused(data.count(b"\n", 0, error.start) + 1, "not UTF-8 text") from None


@functools.cache
def _loader() -> Any:
    import yaml

    return getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def parse(text: str) -> Node:
    """The one document in ``text``. Raises Refused with the line of what is wrong."""
    import yaml

    try:
        return _build(yaml, yaml.parse(text, Loader=_loader()), text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = min(mark.line + 1, _lines(text)) if mark else 0  # libyaml may stand behind the end
        raise Refused(line, f"not YAML: {error.problem or error.context}") from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise Refused(line, f"a character that YAML does not allow: {error.reason}") from None
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise Refused(0, f"not YAML: {error}") from None


def _lines(text: str) -> int:
    return text.count("\n") + (not text.endswith("\n"))


def _build(yaml: Any, events: Iterable[Any], text: str) -> Node:
    """Nodes from events, without recursion. ``names`` holds a mapping's key that waits for its value."""
    stack: list[Node] = []
    names: list[str | None] = []
    root: Node | None = None
    opened = False
    for event in events:
        kind = type(event)
        line = event.start_mark.line + 1
        if kind is yaml.AliasEvent or getattr(event, "anchor", None) is not None:
            raise Refused(line, "anchors and aliases are not allowed: write the value out")
        if getattr(event, "tag", None) is not None:
            raise Refused(line, f"tag {event.tag!r} is not allowed")
        if kind is yaml.ScalarEvent:
            node = Node(line, event.value, event.implicit[0])
        elif kind is yaml.MappingStartEvent:
            node = Node(line, {})
        elif kind is yaml.SequenceStartEvent:
            node = Node(line, [])
        elif kind is yaml.DocumentStartEvent:
            if root is not None:
                raise Refused(line, "a second document: one file holds one")
            opened = event.explicit
            continue
        else:
            if kind in (yaml.MappingEndEvent, yaml.SequenceEndEvent):
                stack.pop()
                names.pop()
            elif kind is yaml.DocumentEndEvent and opened and not event.explicit:
                raise Refused(_lines(text), "the file opens with '---' and has no closing '...': it was cut short")
            continue
        if not stack:
            root = node
        else:
            _attach(stack[-1], names, node)
        if not isinstance(node.value, str):
            stack.append(node)
            names.append(None)
            if len(stack) > MAX_DEPTH:
                raise Refused(line, f"nested more than {MAX_DEPTH} deep")
    if root is None:
        raise Refused(1, "the file is empty")
    return root


def _attach(parent: Node, names: list[str | None], node: Node) -> None:
    if isinstance(parent.value, list):
        parent.value.append(node)
    elif isinstance(parent.value, dict):
        name = names[-1]
        if name is not None:
            parent.value[name] = node
            names[-1] = None
        elif not isinstance(node.value, str):
            raise Refused(node.line, "a name must be text")
        elif node.value in parent.value:
            raise Refused(node.line, f"{node.value[:40]!r} stands twice in one mapping")
        else:
            names[-1] = node.value


# Writing. Text is plain only where YAML 1.1 and 1.2 both read it as text; everything else is quoted.
_PLAIN = re.compile(
    r"[A-Za-z_][A-Za-z0-9_./+-]*( [A-Za-z0-9_./+-]+)*"  # words
    r"|\d+x\d+x\d+[a-z0-9_]*"  # tactic ids
    r"|\d+\.\d+\.\d+[a-z0-9.+]*"  # versions of three parts and more
)
_RESERVED = frozenset(
    ("true", "false", "yes", "no", "on", "off", "null", "y", "n", ".nan", ".inf", "nan", "inf", "infinity")
)
_DATE = re.compile(r"\d{4}-\d\d-\d\d")


def scalar(value: str | int | float | bool | None) -> str:
    """One value as YAML. Floats keep every digit they have and read as floats everywhere (``1.0e-05``)."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        text = repr(value)
        mantissa, exponent, power = text.partition("e")
        if exponent and "." not in mantissa:
            mantissa += ".0"
        return mantissa + exponent + power
    if (_PLAIN.fullmatch(value) and value.lower() not in _RESERVED) or _DATE.fullmatch(value):
        return value
    return '"' + "".join(map(_escaped, value)) + '"'


def _escaped(character: str) -> str:
    code = ord(character)
    if character in '"\\':
        return "\\" + character
    if character.isprintable() and not 0xD800 <= code <= 0xDFFF:
        return character
    if 0xD800 <= code <= 0xDFFF:  # half a pair: not text that UTF-8 can hold
        return "?"
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def flow(value: Any) -> str:
    """A value on one line: ``{tile: [128, 64, 256], swap_ab: true}``."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{scalar(str(name))}: {flow(item)}" for name, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(flow, value)) + "]"
    return scalar(value)
