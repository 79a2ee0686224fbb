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
    """One reason: what it took out, what was left after it, its source, and the nearest misses."""

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
    """The steps in the order in which a tactic meets them: the rules, the number of stages, shared memory.

    Near misses are the tactics that are over by the fewest bytes; of a rule, the first that it refused.
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
        group = groups.get((kind, reason), [])
        if not group:
            continue
        left -= len(group)
        if kind == OVER:
            group.sort(key=lambda pair: pair[1].figures["excess_bytes"])
        steps.append(Step(kind, reason, len(group), left, group[0][1].source, tuple(group[:misses])))
    return steps
