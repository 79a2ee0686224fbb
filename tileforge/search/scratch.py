"""Measurements on disk as they are taken, beside the study: a killed search measures nothing twice.

One JSON line each, flushed before the search goes on. It is scratch: the database holds what is published.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tileforge.errors import InputError, TileforgeError
from tileforge.measure.result import Measurement


def drop_torn_line(path: Path) -> None:
    """Cuts off a last line without its end, which a killed writer leaves and which would spoil the next one."""
    if not path.is_file():
        return
    with path.open("rb+") as file:
        content = file.read()
        whole = content.rfind(b"\n") + 1
        if whole < len(content):
            file.truncate(whole)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """What the system refuses becomes one line that says what to do."""
    try:
        yield
    except OSError as error:
        raise TileforgeError(
            f"cannot write {path}: {error.strerror}: make room, name another journal, or set TILEFORGE_CACHE"
        ) from None


class Scratch:
    """The lines of one study in a file that several may share. ``path`` None keeps nothing."""

    def __init__(self, path: Path | None, study: str) -> None:
        self._path, self._study = path, study
        if path is not None:
            with writing(path):
                path.parent.mkdir(parents=True, exist_ok=True)
                drop_torn_line(path)

    def read(self) -> Iterator[tuple[str, Measurement]]:
        """(kind, measurement) of this study, in the order in which they were taken. Spoiled lines are left out."""
        if self._path is None or not self._path.is_file():
            return
        with self._path.open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                try:
                    values = json.loads(line)
                    if values["study"] == self._study:
                        yield values["kind"], Measurement.from_dict(values["measurement"])
                except (ValueError, KeyError, TypeError, InputError):
                    continue

    def write(self, kind: str, measurement: Measurement) -> None:
        """``kind``: ``trial``, ``more`` (samples for one that has some) or ``anchor`` (to follow the clock)."""
        if self._path is None:
            return
        line = json.dumps({"study": self._study, "kind": kind, "measurement": measurement.as_dict()})
        with writing(self._path), self._path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")
            file.flush()
            os.fsync(file.fileno())
