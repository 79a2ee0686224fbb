"""The space rule by rule: how many tactics each rule takes out, and those that miss by little."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tileforge.arch import ArchSpec
from tileforge.space.prune import Pruned
from tileforge.tactic import Tactic
from tileforge.verdict import ILLEGAL, OVER, Verdict


@dataclass(frozen=True)
class Step:
    """One reason: how many tactics it took out, how many were left after it, its source, and the nearest misses."""

    kind: str
    reason: str
    dropped: int
    left: int
    source: str
    misses: tuple[tuple[Tactic, Verdict], ...]

    def as_dict(self) -> dict[str, Any]:
        misses = [{"tactic": tactic.id, **verdict.as_dict()} for tactic, verdict in self.misses]
        return {
            "kind": self.kind, "reason": self.reason, "dropped": self.dropped, "left": self.left,
            "source": self.source, "near_misses": misses,
        }  # fmt: skip


def waterfall(pruned: Pruned, arch: ArchSpec, misses: int = 3) -> list[Step]:
    """The reasons that took something out, in the order in which a tactic meets them: what the problem asks for, the
    rules of the SM, the number of stages, shared memory, and last what is not known.

    Near misses, at most ``misses`` of each reason: over shared memory those that are over by the fewest bytes; with
    fewer than two stages those whose stages are the smallest; of any other rule the first that it refused, because a
    rule is not missed by more or less.
    """
    groups: dict[tuple[str, str], list[tuple[Tactic, Verdict]]] = {}
    for tactic, verdict in pruned.verdicts:
        if not verdict:
            groups.setdefault((verdict.kind, verdict.reason), []).append((tactic, verdict))
    order = [(ILLEGAL, "format"), (ILLEGAL, "alignment"), *((ILLEGAL, rule.code) for rule in arch.rules)]
    order += [(ILLEGAL, "stages"), (OVER, "smem")]
    order += [each for each in groups if each not in order]
    left, steps = len(pruned.verdicts), []
    for kind, reason in order:
        if group := groups.get((kind, reason)):
            left -= len(group)
            nearest = sorted(group, key=_miss)[:misses]  # stable: where nothing is nearer, the first
            steps.append(Step(kind, reason, len(group), left, group[0][1].source, tuple(nearest)))
    return steps


def _miss(pair: tuple[Tactic, Verdict]) -> int:
    figures = pair[1].figures
    return int(figures.get("excess_bytes", figures.get("stage_bytes", 0)))
