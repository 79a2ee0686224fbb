"""Finals that a second process agrees with, or no entry.

Two tunes of the same problem may publish different winners where one process was unlucky with its clock, its memory
or its neighbours (public tables differ in 86 of 191 keys). So the finals are repeated in a fresh process. When both
name the same tactic, or one that the other could not tell from its own, all rounds together decide: more pairs make
the sign test stricter, so that what only one of them saw becomes a tie.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tileforge.measure.result import Measurement
from tileforge.search.result import Choice, Finals
from tileforge.tactic import Tactic

#: Fresh processes that may be asked; the last two finals have to agree.
ATTEMPTS = 2


def confirm(
    held: Finals,
    race: Callable[[Sequence[Tactic]], Finals],
    judge: Callable[[Finals], Choice],
    attempts: int = ATTEMPTS,
) -> tuple[Finals, bool]:
    """``(finals, True)`` with the rounds of two finals in a row that agree, or the last ones and False.

    race: holds finals of these tactics in a fresh process. judge: the choice that finals lead to.
    """
    failures = dict(held.failures)
    for _ in range(attempts):
        again = race([each.tactic for each in held.measurements.values()])
        failures |= again.failures
        if agree(judge(held), judge(again)):
            return _both(held, again, failures), True
        held = again
    return Finals(held.rounds, held.measurements, failures), False


def agree(one: Choice, other: Choice) -> bool:
    """Whether they chose the same tactic, or one that the other holds for a tie with its own."""
    if one.tactic is None or other.tactic is None:
        return False
    return one.tactic == other.tactic or one.tactic.id in other.ties or other.tactic.id in one.ties


def _both(one: Finals, other: Finals, failures: dict[str, Measurement]) -> Finals:
    """All rounds, of the tactics that were right in all of them."""
    names = [name for name in one.measurements if name in other.measurements]
    return Finals(
        tuple({name: each[name] for name in names} for each in (*one.rounds, *other.rounds)),
        {name: one.measurements[name].merged(other.measurements[name]) for name in names},
        failures,
    )
