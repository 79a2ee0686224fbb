"""The winner, by fixed rules: right results only, the default unless something beats it, a fixed order in ties.

Ties are ordered by: the default first, then the least shared memory, then the id. The same samples therefore
always give the same tactic, whatever the order in which they were taken.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

from tileforge.measure.result import Measurement
from tileforge.search.result import Choice, Finals
from tileforge.tactic import Tactic

#: The default gives way only to something at least this much faster, and unpaired times closer than this are ties.
#: The gap between best and second is often 0.1 to 2 %, and two passes over one set disagree by 0.7 to 3.5 % (public
#: reports; H200 decode problems repeat within 0.5 %, 2026-11-30), so less is not worth an entry.
MARGIN = 0.01
#: In paired final rounds less can be told apart: contenders closer than this are ties whatever the pairs say.
TIE_MARGIN = 0.002
#: Where everything is this close to the best, no tactic matters.
NOTHING_MATTERS = 0.02

#: Bytes of shared memory of a tactic, for ties.
SmemOf = Callable[[Tactic], int]


def no_smem(_: Tactic) -> int:
    return 0


def _order(default: Tactic | None, smem: SmemOf) -> Callable[[Tactic], tuple[bool, int, str]]:
    return lambda tactic: (tactic != default, smem(tactic), tactic.id)


def right(measurements: Iterable[Measurement]) -> list[Measurement]:
    """Those with a time and a right result."""
    return [each for each in measurements if each.ok and each.median_us is not None]


def nothing_matters(measurements: Iterable[Measurement], default: Tactic | None) -> Choice | None:
    """The default, when every one of two or more right results is within 2 % of the fastest, else None."""
    medians = {each.tactic: each.median_us for each in right(measurements)}
    times = [time for time in medians.values() if time is not None]
    if default not in medians or len(times) < 2 or max(times) > min(times) * (1 + NOTHING_MATTERS):
        return None
    ids = tuple(tactic.id for tactic in sorted(medians, key=_order(default, no_smem)))
    return Choice(default, f"no tactic matters here: all {len(times)} are within 2 %, the default is kept", ids)


def choose(measurements: Iterable[Measurement], default: Tactic | None, smem: SmemOf = no_smem) -> Choice:
    """From the samples of a search, without finals.

    A tie: medians within ``MARGIN`` of the fastest, or spreads (``low_us`` to ``high_us``) that overlap its.
    """
    found = right(measurements)
    if not found:
        return Choice(None, "no tactic gave a right result")
    if kept := nothing_matters(found, default):
        return kept
    best = min(found, key=lambda each: (each.median_us or math.inf, _order(default, smem)(each.tactic)))

    def tied(a: Measurement, b: Measurement) -> bool:
        (at, a_low, a_high), (bt, b_low, b_high) = _interval(a), _interval(b)
        return max(at, bt) <= min(at, bt) * (1 + MARGIN) or (a_low <= b_high and b_low <= a_high)

    ties = sorted((each.tactic for each in found if tied(each, best)), key=_order(default, smem))
    ids = tuple(tactic.id for tactic in ties)
    own = next((each for each in found if each.tactic == default), None)
    if own is None:
        return Choice(ties[0], "the fastest; the default gave no right result", ids)
    if default in ties:
        return Choice(default, "nothing beats the default beyond the spread of its samples: it is kept", ids)
    of = {each.tactic: each for each in found}
    beating = [tactic for tactic in ties if not tied(of[tactic], own)]
    return Choice(beating[0], _faster(own, of[beating[0]]), ids)


def decide(finals: Finals, default: Tactic | None, smem: SmemOf = no_smem) -> Choice:
    """From interleaved rounds, two and two in opposite orders.

    Each pair of rounds gives one ratio of times for any two tactics; a drift of the clock that is the same over
    both rounds cancels in it. A tactic is slower than another when all pairs say so (a sign test: one in
    2^pairs by chance) and their geometric mean by more than a margin. What is not slower than the leader by
    ``TIE_MARGIN`` is a tie with it; the choice inside the tie follows the fixed order, and must itself beat the
    default by ``MARGIN``.
    """
    tactics = [measurement.tactic for measurement in finals.measurements.values()]
    if not tactics:
        return Choice(None, "no tactic gave a right result", final=True)
    logs = {tactic: _pair_logs(finals.rounds, tactic.id) for tactic in tactics}

    def slower(a: Tactic, b: Tactic, margin: float) -> bool:
        differences = [x - y for x, y in zip(logs[a], logs[b], strict=True)]
        return min(differences) > 0 and math.fsum(differences) / len(differences) > math.log1p(margin)

    order = _order(default, smem)
    leader = min(tactics, key=lambda tactic: (math.fsum(logs[tactic]), order(tactic)))
    ties = sorted((tactic for tactic in tactics if not slower(tactic, leader, TIE_MARGIN)), key=order)
    ids = tuple(tactic.id for tactic in ties)
    if default not in logs:
        return Choice(ties[0], "the fastest in the finals; the default gave no right result", ids, final=True)
    assert default is not None
    beating = [tactic for tactic in ties if tactic != default and slower(default, tactic, MARGIN)]
    if default in ties or not beating:
        ids = tuple(dict.fromkeys((default.id, *ids)))
        return Choice(default, "nothing beats the default in the finals: it is kept", ids, final=True)
    pairs = len(logs[default])
    own, chosen = finals.measurements[default.id], finals.measurements[beating[0].id]
    reason = f"{_faster(own, chosen)} in all {pairs} pairs of final rounds"
    return Choice(beating[0], reason, ids, confidence=1 - 0.5**pairs, final=True)


def _pair_logs(rounds: Sequence[Mapping[str, float]], tactic_id: str) -> list[float]:
    """Mean log time of rounds 0 and 1, 2 and 3, ...; a last round without a partner is not used."""
    logs = [math.log(each[tactic_id]) for each in rounds]
    return [(a + b) / 2 for a, b in zip(logs[::2], logs[1::2], strict=False)]


def _interval(measurement: Measurement) -> tuple[float, float, float]:
    values = (measurement.median_us, measurement.low_us, measurement.high_us)
    assert None not in values
    median, low, high = (float(value or 0.0) for value in values)
    return median, low, high


def _faster(own: Measurement, other: Measurement) -> str:
    ratio = (own.median_us or 0.0) / (other.median_us or 1.0)
    return f"{ratio:.3f} times as fast as the default"
