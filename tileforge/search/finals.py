"""The last word: the leaders and the default against each other, interleaved, in alternating orders.

A run that measures one tactic after another compares the first one's cool clock with the last one's warm one.
Here every tactic is measured once a round, and every second round runs backwards, so that a drift falls on all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tileforge.measure.result import Measurement
from tileforge.search.result import Finals
from tileforge.tactic import Tactic

#: Six pairs of rounds that all agree happen once in 64 by chance.
PAIRS = 6
SAMPLES = 3


def hold(
    tactics: Sequence[Tactic],
    measure: Callable[[Tactic, int], Measurement],
    *,
    pairs: int = PAIRS,
    samples: int = SAMPLES,
    on_round: Callable[[int, int], None] | None = None,
) -> Finals:
    """Measures ``tactics``, by ``measure(tactic, samples)``, over ``2 * pairs`` rounds.

    One that fails in any round leaves, with its failure kept."""
    order = list(tactics)
    rounds: list[dict[str, float]] = []
    totals: dict[str, Measurement] = {}
    failures: dict[str, Measurement] = {}
    for number in range(2 * pairs):
        times: dict[str, float] = {}
        for tactic in list(order if number % 2 == 0 else reversed(order)):
            found = measure(tactic, samples)
            if not found.ok or found.median_us is None:
                failures[tactic.id] = found
                order.remove(tactic)
                continue
            times[tactic.id] = found.median_us
            totals[tactic.id] = totals[tactic.id].merged(found) if tactic.id in totals else found
        rounds.append(times)
        if on_round:
            on_round(number + 1, 2 * pairs)
    left = {tactic.id for tactic in order}
    return Finals(
        tuple({name: time for name, time in each.items() if name in left} for each in rounds),
        {name: measurement for name, measurement in totals.items() if name in left},
        failures,
    )
