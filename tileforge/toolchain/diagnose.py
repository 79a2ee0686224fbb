"""A compiler's output cut to the one line that says what is wrong."""

from __future__ import annotations

import re

#: Failures of the machine, not of the kernel: they are reported but not remembered.
_MACHINE = (
    "No space left on device",
    "Cannot allocate memory",
    "out of memory allocating",
    "Disk quota exceeded",
    "Killed",
    "died due to signal",
    "cannot execute",
    "not found in PATH",
    "unsupported GNU version",
    "cannot find -l",
)
_STATIC = re.compile(r'static assertion failed(?: with "(?P<nvcc>.*?)"|: (?P<gcc>.+))?')
_ERROR = re.compile(r"\b(?:fatal )?error\s*:\s*(?P<text>.+)")
#: ``/some/where/file.hpp(12): `` and ``/some/where/file.hpp:12:3: `` at the beginning of a line.
_PLACE = re.compile(r"^(?P<path>[^\s():]+)[(:](?P<line>\d+)\)?(?::\d+)?:?\s")
_PATH = re.compile(r"(?<![\w.])(?:/[\w.+@-]+)+/([\w.+@-]+)")
_LONGEST = 240


def first_error(log: str) -> str:
    """The static assertion that failed, else the first error, else the last line; no paths, at most 240 characters.

    A static assertion goes before errors printed ahead of it: it is what the library's authors wrote for this
    very case. ``file(line)`` of the message stays, its directory goes.
    """
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    for number, line in enumerate(lines):
        found = _STATIC.search(line)
        if found:
            text = found["nvcc"] or found["gcc"] or _condition(lines[number + 1 : number + 2])
            return _shorten(text, line)
    for line in lines:
        found = _ERROR.search(line)
        if found:
            return _shorten(found["text"], line)
    return _shorten(lines[-1], "") if lines else "the compiler failed and said nothing"


def is_machine_failure(log: str) -> bool:
    """Whether the failure says something about the machine (memory, disk, missing programs) and not the kernel."""
    return any(sign in log for sign in _MACHINE)


def _condition(following: list[str]) -> str:
    return following[0] if following and "static_assert" in following[0] else "a static assertion failed"


def _shorten(text: str, line: str) -> str:
    text = " ".join(_PATH.sub(r"\1", text.split(" [with ")[0]).split())
    place = _PLACE.match(line)
    where = f" ({place['path'].rsplit('/', 1)[-1]}:{place['line']})" if place else ""
    room = _LONGEST - len(where)
    return (text if len(text) <= room else text[: room - 3] + "...") + where
