"""A block's shared memory as one stacked bar and a table of its terms: colour on a terminal, letters everywhere."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping

import click

#: Letter and colour of each term: capitals for what a kernel computes with, small letters for what goes with it.
_MARKS = {
    "A tiles": ("A", "blue"),
    "B tiles": ("B", "cyan"),
    "A scales": ("a", "bright_blue"),
    "B scales": ("b", "bright_cyan"),
    "epilogue C": ("C", "green"),
    "epilogue D": ("D", "bright_green"),
    "epilogue C and D": ("E", "green"),
    "bias row": ("r", "yellow"),
    "scale row": ("r", "yellow"),
    "pipelines": ("p", "magenta"),
    "tile scheduler": ("s", "bright_magenta"),
    "tensor maps": ("t", "bright_yellow"),
    "alignment": ("x", "white"),
}
_COLOURS = dict(_MARKS.values())
_FREE, _LIMIT = ".", "|"
_NARROWEST, _WIDEST = 40, 120


def letter(term: str) -> str:
    return _MARKS.get(term, ("?", ""))[0]


def stacked(terms: Mapping[str, int], limit: int, width: int) -> str:
    """``width`` characters, a letter for each term in order and ``.`` for what is free, with ``|`` at the limit.

    To scale: a term ends where the bytes up to its end do, so one of a few bytes may get no character. What is over
    the limit stands after the ``|`` and gets at least one.
    """
    total, room = sum(terms.values()), width - len(_LIMIT)
    whole = max(total, limit)
    drawn, end = "", 0
    for name, size in terms.items():
        end += size
        drawn += letter(name) * (round(end / whole * room) - len(drawn))
    drawn = drawn.ljust(room, _FREE)
    edge = room if total <= limit else min(round(limit / whole * room), room - 1)
    return drawn[:edge] + _LIMIT + drawn[edge:]


def lines(terms: Mapping[str, int], limit: int, columns: int) -> Iterator[str]:
    """The bar and, below it, every term with its bytes and share of ``limit``; for a terminal of so many columns."""
    bar = stacked(terms, limit, max(min(columns, _WIDEST), _NARROWEST) - 2)
    before, _, after = bar.partition(_LIMIT)
    over = click.style(after, fg="red", bold=True)
    yield "  " + "".join(_coloured(mark, "".join(run)) for mark, run in itertools.groupby(before)) + _LIMIT + over
    width = max(map(len, (*terms, "total")))
    for name, size in terms.items():
        mark = letter(name)
        yield f"  {_coloured(mark, mark)} {name:<{width}}  {size:>9,} B {size / limit:>6.1%}"
    total = sum(terms.values())
    room = f"{total - limit:,} B over" if total > limit else f"{limit - total:,} B free"
    yield f"    {'total':<{width}}  {total:>9,} B {total / limit:>6.1%} of {limit:,} B: {room}"


def _coloured(mark: str, text: str) -> str:
    return click.style(text, fg=_COLOURS[mark]) if mark in _COLOURS else text
