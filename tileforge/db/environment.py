"""The environment a record was made in, and what a difference means.

A record's ``environment`` names what its times depend on: ``cutlass`` (version), ``cutlass_digest`` (of the
headers), ``compiler``, ``driver``, ``kernels`` (digest of the kernel sources), and ``tileforge`` (told, never
compared: the kernels' digest says what matters). More fields may join; every field but ``tileforge`` is compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

SAME, UNKNOWN, STALE = "same", "unknown", "stale"

#: Accepts every value.
ANY = "*"

#: Told to people, never compared.
INFORMATIVE = frozenset({"tileforge"})

_UNKNOWN_VALUES = frozenset({"", "unknown"})


@dataclass(frozen=True)
class Comparison:
    """``state``: ``same``, ``unknown`` (usable; nothing known differs) or ``stale`` (kept, and said).

    ``differing``: (field, recorded value, value here). ``unknown``: fields known on one side only.
    """

    state: str
    differing: tuple[tuple[str, str, str], ...] = ()
    unknown: tuple[str, ...] = ()

    @property
    def messages(self) -> tuple[str, ...]:
        return tuple(f"{field} was {recorded}, here it is {here}" for field, recorded, here in self.differing)


def is_known(value: str | None) -> bool:
    return value is not None and value not in _UNKNOWN_VALUES


def compare_environment(recorded: Mapping[str, str], here: Mapping[str, str]) -> Comparison:
    """What changed between the environment of a record and the one here.

    A field that either side does not know decides nothing; ``*`` on either side accepts; anything else must be
    equal.
    """
    differing, unknown = [], []
    for field in dict.fromkeys([*recorded, *here]):
        was, now = recorded.get(field), here.get(field)
        if field in INFORMATIVE or ANY in (was, now):
            continue
        if was is None or now is None or not (is_known(was) and is_known(now)):
            unknown.append(field)
        elif was != now:
            differing.append((field, was, now))
    state = STALE if differing else UNKNOWN if unknown else SAME
    return Comparison(state, tuple(differing), tuple(unknown))


def heal_environment(recorded: Mapping[str, str], here: Mapping[str, str]) -> dict[str, str]:
    """``recorded`` with the fields it does not know taken from ``here``; known fields and ``*`` stay."""
    healed = dict(recorded)
    for field, value in here.items():
        if is_known(value) and value != ANY and not is_known(healed.get(field)):
            healed[field] = value
    return healed
