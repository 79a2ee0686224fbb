"""How two results for the same key become one record. Better evidence wins; nothing measured is lost.

1. Measured beats transferred beats predicted; a weaker one never replaces a stronger one.
2. Of two measured ones the faster is the answer and the other is kept beside it as evidence, whichever came last.
3. A measurement that confirms the record (the same tactic or a member of its tie set, within its spread or 2 %,
   nothing in the environment different) changes nothing, except that unknown fields of the environment are filled in:
   re-tuning what did not change changes no line.
4. Of two predictions, and of two transferred tactics, the newer one is the answer.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tileforge.db.environment import STALE, compare_environment, heal_environment
from tileforge.db.record import PROVENANCES, Evidence, Record

#: What became of the new record.
ADDED, REPLACED, KEPT_BESIDE, CONFIRMED, DROPPED = "added", "replaced", "kept as evidence", "confirmed", "dropped"

#: Evidence kept per record, newest first: enough to see a drift, few enough for a file that people read.
MOST_EVIDENCE = 16

#: Two times of one tactic this close say the same: repeated passes on one H200 (2026-11-30, 7 samples each) agreed
#: within 0.5 % where memory bounds, and public re-tunes of other GPUs within 0.7 to 3.5 %.
REPEATS_WITHIN = 0.02


def merge(kept: Record | None, new: Record, force: bool = False) -> tuple[Record, str]:
    """The record that stands after ``new`` met ``kept``, and what became of ``new``.

    ``force`` puts ``new`` in place whatever it is (a re-tune whose old answer no longer holds); a measured or
    transferred ``kept`` still stays as evidence.
    """
    if kept is None:
        return new, ADDED
    ours, theirs = PROVENANCES.index(kept.provenance), PROVENANCES.index(new.provenance)
    if same_answer(kept, new) or (ours == theirs == 0 and not force and confirms(kept, new)):
        healed = replace(kept, environment=heal_environment(kept.environment, new.environment))
        return _with_evidence(healed, new.evidence), CONFIRMED
    if force or theirs < ours or (ours == theirs and (ours != 0 or _time(new) < _time(kept))):
        return _with_evidence(new, (*kept.evidence, Evidence.of(kept))), REPLACED
    if new.provenance == "predicted":
        return kept, DROPPED
    return _with_evidence(kept, (*new.evidence, Evidence.of(new))), KEPT_BESIDE


def same_answer(kept: Record, new: Record) -> bool:
    """Whether the two say the same on the same grounds, whenever and in whatever conditions they were made."""

    def core(record: Record) -> Record:
        blank = replace(record, date="", seed=0, note="", environment={}, conditions={}, evidence=(), gpu=kept.gpu)
        return replace(blank, ties=()) if not (kept.ties and new.ties) else blank

    return core(kept) == core(new) and compare_environment(kept.environment, new.environment).state != STALE


def confirms(kept: Record, new: Record) -> bool:
    """Whether the measured ``new`` reads as a repetition of the measured ``kept``."""
    time = _time(kept)
    low = min(kept.low_us or time, time * (1 - REPEATS_WITHIN))
    high = max(kept.high_us or time, time * (1 + REPEATS_WITHIN))
    return (
        (new.tactic == kept.tactic or new.tactic in kept.ties)
        and low <= _time(new) <= high
        and compare_environment(kept.environment, new.environment).state != STALE
    )


def _time(record: Record) -> float:
    return float("inf") if record.time_us is None else record.time_us


def _with_evidence(record: Record, more: Iterable[Evidence]) -> Record:
    """``record`` with evidence joined: no repeats, not the record's own result, predictions left out, sorted."""
    own = Evidence.of(record)
    unique: list[Evidence] = []
    for item in (*record.evidence, *more):
        if item != own and item not in unique and item.provenance != "predicted":
            unique.append(item)
    unique.sort(key=lambda e: (e.time_us or float("inf"), e.tactic.id))
    unique.sort(key=lambda e: e.date, reverse=True)
    return replace(record, evidence=tuple(unique[:MOST_EVIDENCE]))
