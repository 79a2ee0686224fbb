"""Draws a job's events: one line that is overwritten on a terminal, plain lines elsewhere. Goes to stderr."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING

from rich.console import Console
from rich.status import Status
from rich.text import Text

if TYPE_CHECKING:
    from tileforge.search import Event

#: Kinds that are worth a line of their own in a log.
_LINES = ("problem", "note", "build", "done")


class Progress:
    """Use as a context manager; ``on_event`` is the callback of :func:`tileforge.tune`."""

    def __init__(self, quiet: bool = False) -> None:
        self._console = Console(stderr=True, highlight=False, markup=False, emoji=False, quiet=quiet)
        self._status: Status | None = None

    def __enter__(self) -> Progress:
        if self._console.is_terminal:
            self._status = self._console.status("")
            self._status.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._status is not None:
            self._status.stop()

    def on_event(self, event: Event) -> None:
        text = describe(event)
        if self._status is not None:
            self._status.update(Text(text))
        if event.kind in _LINES:
            self._console.print(text, soft_wrap=True)


def describe(event: Event) -> str:
    """The event as one line, with an ETA where one is known."""
    counted = f"{event.done}/{event.total}"
    if event.kind == "problem":
        return f"problem {event.done + 1}/{event.total}: {event.problem}"
    if event.kind in ("build", "note", "done"):
        return f"  {event.message}"
    if event.kind == "built":
        return f"  kernels {counted} {event.message}"
    if event.kind == "finals":
        return f"  finals, round {counted}"
    parts = [f"  tactics {counted}"]
    if event.best is not None and event.best.median_us is not None:
        parts.append(f"best so far {event.best.median_us:.1f} us {event.best.tactic.id}")
    if event.eta_s is not None:
        parts.append(f"about {event.eta_s:.0f} s left")
    if event.measurement is not None and not event.measurement.ok:
        parts.append(f"{event.measurement.tactic.id}: {event.measurement.status}: {event.measurement.message}")
    return ", ".join(parts)
