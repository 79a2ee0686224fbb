"""Pruning: every tactic of the space with its verdict, counted by reason. Nothing is dropped without one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, partial

from tileforge import legality, smem
from tileforge.arch import ArchSpec
from tileforge.errors import NoLegalTacticError
from tileforge.problem import GroupedGemm
from tileforge.space.enumerate import enumerate_tactics
from tileforge.tactic import Tactic
from tileforge.verdict import ILLEGAL, OVER, UNKNOWN, Verdict

#: Reason codes as people read them; others are read as they are, without underscores.
_WORDS = {"tile_m": "tile M", "tile_n": "tile N", "tile_k": "tile K", "pingpong_n": "pingpong N"}


def words(reason: str) -> str:
    """A reason code as people read it: ``tile M`` for ``tile_m``."""
    return _WORDS.get(reason, reason.replace("_", " "))


@dataclass(frozen=True)
class Pruned:
    """The verdict on every tactic that was looked at, in their order."""

    verdicts: tuple[tuple[Tactic, Verdict], ...]

    @cached_property
    def legal(self) -> list[Tactic]:
        return [tactic for tactic, verdict in self.verdicts if verdict]

    @cached_property
    def dropped(self) -> dict[str, dict[str, int]]:
        """How many by kind (``illegal``, ``over``, ``unknown``) and reason code, the largest first."""
        counts: dict[str, Counter[str]] = {ILLEGAL: Counter(), OVER: Counter(), UNKNOWN: Counter()}
        for _, verdict in self.verdicts:
            if not verdict:
                counts[verdict.kind][verdict.reason] += 1
        return {kind: dict(reasons.most_common()) for kind, reasons in counts.items() if reasons}

    @cached_property
    def closest(self) -> tuple[Tactic, Verdict] | None:
        """The tactic that is over shared memory by the fewest bytes, if any is."""
        over = [(tactic, verdict) for tactic, verdict in self.verdicts if verdict.kind == OVER]
        return min(over, key=lambda pair: pair[1].figures["excess_bytes"], default=None)

    def summary(self) -> str:
        """``38 legal of 214: 96 illegal (scale block), 61 over shared memory (closest: 1,024 B)``."""
        parts = []
        for kind, reasons in self.dropped.items():
            total = sum(reasons.values())
            if kind == OVER and self.closest:
                parts.append(f"{total} over shared memory (closest: {self.closest[1].figures['excess_bytes']:,} B)")
                continue
            named = [words(reason) for reason in reasons]
            if len(named) > 1:
                named = [f"{name} {count}" for name, count in zip(named, reasons.values(), strict=True)]
            parts.append(f"{total} {kind} ({', '.join(named)})")
        return f"{len(self.legal)} legal of {len(self.verdicts)}" + (": " + ", ".join(parts) if parts else "")


def prune(
    problem: GroupedGemm,
    arch: ArchSpec,
    cutlass: str = smem.CUTLASS,
    tactics: Iterable[Tactic] | None = None,
    *,
    epilogue: str = "plain",
    c: str | None = None,
) -> Pruned:
    """As :func:`judge`; raises NoLegalTacticError when nothing is left: what was dropped, why, what came closest."""
    pruned = judge(problem, arch, cutlass, tactics, epilogue=epilogue, c=c)
    if not pruned.legal:
        raise NoLegalTacticError(nothing_left(pruned, problem, arch, cutlass))
    return pruned


def judge(
    problem: GroupedGemm,
    arch: ArchSpec,
    cutlass: str = smem.CUTLASS,
    tactics: Iterable[Tactic] | None = None,
    *,
    epilogue: str = "plain",
    c: str | None = None,
) -> Pruned:
    """The verdicts on ``tactics`` (default: the whole space of the problem's format) for ``problem``."""
    if tactics is None:
        tactics = enumerate_tactics(arch, problem.format, cutlass, out=problem.out, epilogue=epilogue, c=c)
    check = partial(
        legality.check, arch=arch, format=problem.format, out=problem.out, cutlass=cutlass, epilogue=epilogue, c=c,
        problem=problem,
    )  # fmt: skip
    return Pruned(tuple([(tactic, check(tactic)) for tactic in tactics]))


def nothing_left(pruned: Pruned, problem: GroupedGemm, arch: ArchSpec, cutlass: str) -> str:
    """The one line that says that nothing is legal, what was dropped and why, and what came closest."""
    message = f"no legal tactic for {problem} on {arch.name} with CUTLASS {cutlass}: {pruned.summary()}"
    if pruned.closest:
        tactic, verdict = pruned.closest
        return f"{message}; the closest is {tactic}, which {verdict.message}"
    if pruned.verdicts:
        tactic, verdict = pruned.verdicts[0]
        return f"{message}; the first is {tactic}: {verdict.message}"
    return f"{message}: no tactic was given"
