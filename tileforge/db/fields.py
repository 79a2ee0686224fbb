"""Reading values of a database file: a reader takes a node and the field's name, and refuses with line and reason."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from typing import Any, TypeVar, overload

from tileforge.db.record import Scalar
from tileforge.db.yaml_io import Node, Refused
from tileforge.errors import InputError
from tileforge.tactic import RASTERS, SCHEDULES, SWIZZLES, Tactic

T = TypeVar("T")
D = TypeVar("D")

_INT = re.compile(r"[+-]?\d{1,18}")
_FLOAT = re.compile(r"[+-]?(\d{1,30}\.?\d{0,30}|\.\d{1,30})([eE][+-]?\d{1,3})?")
_NULL = frozenset({"", "~", "null", "Null", "NULL"})
_REQUIRED: Any = object()


def _scalar(node: Node, what: str, wanted: str) -> str:
    if not isinstance(node.value, str):
        kind = "list" if isinstance(node.value, list) else "mapping"
        raise Refused(node.line, f"{what} must be {wanted}, not a {kind}")
    return node.value


def as_text(node: Node, what: str) -> str:
    return _scalar(node, what, "text")


def as_integer(node: Node, what: str) -> int:
    value = _scalar(node, what, "a whole number")
    if not (node.plain and _INT.fullmatch(value)):
        raise Refused(node.line, f"{what} must be a whole number, not {value[:40]!r}")
    return int(value)


def as_real(node: Node, what: str) -> float:
    value = _scalar(node, what, "a number")
    if not (node.plain and _FLOAT.fullmatch(value)) or not math.isfinite(number := float(value)):
        raise Refused(node.line, f"{what} must be a number, not {value[:40]!r}")
    return number


def as_boolean(node: Node, what: str) -> bool:
    value = _scalar(node, what, "true or false")
    if not node.plain or value not in ("true", "false"):
        raise Refused(node.line, f"{what} must be true or false, not {value[:40]!r}")
    return value == "true"


def as_plain(node: Node, what: str) -> Scalar:
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


def as_list(node: Node, what: str, length: int | None = None) -> list[Node]:
    if not isinstance(node.value, list) or length not in (None, len(node.value)):
        raise Refused(node.line, f"{what} must be a list" + (f" of {length}" if length else ""))
    return node.value


def as_mapping(node: Node, what: str) -> dict[str, Node]:
    if not isinstance(node.value, dict):
        raise Refused(node.line, f"{what} must be a mapping (name: value)")
    return node.value


def as_strings(node: Node, what: str) -> dict[str, str]:
    return {name: as_text(item, f"{what} {name[:40]!r}") for name, item in as_mapping(node, what).items()}


class Fields:
    """The fields of one mapping: each taken once, what is left over is refused."""

    def __init__(self, node: Node, what: str) -> None:
        self.node, self.what = node, what
        self.left = dict(as_mapping(node, what))

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


def made(line: int, make: Callable[[], T]) -> T:
    """What ``make`` makes; its InputError becomes a refusal of that line."""
    try:
        return make()
    except InputError as error:
        raise Refused(line, str(error)) from None


def _sizes(length: int) -> Callable[[Node, str], tuple[int, ...]]:
    def read(node: Node, what: str) -> tuple[int, ...]:
        sizes = tuple(as_integer(item, what) for item in as_list(node, what, length))
        if not all(0 < size < 2**20 for size in sizes):
            raise Refused(node.line, f"{what} must hold whole numbers of 1 and more")
        return sizes

    return read


def _or_auto(read: Callable[[Node, str], T]) -> Callable[[Node, str], T | None]:
    return lambda node, what: None if node.plain and node.value == "auto" else read(node, what)


def as_one_of(names: Iterable[str]) -> Callable[[Node, str], str]:
    def read(node: Node, what: str) -> str:
        value = as_text(node, what)
        if value not in names:
            raise Refused(node.line, f"{what} must be one of {', '.join(names)}, not {value[:40]!r}")
        return value

    return read


def as_tactic(node: Node, what: str) -> Tactic:
    """Fields, or an id by hand: ``128x64x256 swap``."""
    if isinstance(node.value, str):
        text = node.value
        tactic = made(node.line, lambda: Tactic.parse(text[:200]))
    else:
        fields = Fields(node, what)
        tile, epilogue = fields.take("tile", _sizes(3)), fields.take("epilogue_tile", _or_auto(_sizes(2)), None)
        cluster = fields.take("cluster", _sizes(2), (1, 1))
        tactic = made(
            node.line,
            lambda: Tactic(
                tile=(tile[0], tile[1], tile[2]),
                cluster=(cluster[0], cluster[1]),
                schedule=fields.take("schedule", as_one_of(SCHEDULES), "cooperative"),
                stages=fields.take("stages", _or_auto(as_integer), None),
                epilogue_tile=None if epilogue is None else (epilogue[0], epilogue[1]),
                swap_ab=fields.take("swap_ab", as_boolean, False),
                raster=fields.take("raster", as_one_of(RASTERS), "heuristic"),
                swizzle=fields.take("swizzle", as_integer, 1),
            ),
        )
        fields.end()
    if tactic.swizzle not in SWIZZLES or max(*tactic.tile, *tactic.cluster, tactic.stages or 1) >= 2**20:
        raise Refused(node.line, f"{what}: swizzle must be one of {SWIZZLES}, sizes under {2**20:,}")
    return tactic


def as_tactics(node: Node, what: str) -> tuple[Tactic, ...]:
    return tuple(as_tactic(item, what) for item in as_list(node, what))
