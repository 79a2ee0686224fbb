"""``tileforge enumerate``: the space of tactics of a problem, what is legal and why the rest is not."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from tileforge.cli.context import Target, oracle_command, print_json, target
from tileforge.cli.options import arch_options, epilogue_options, json_option, problem_options, take_problems
from tileforge.errors import NoLegalTacticError
from tileforge.problem import GroupedGemm
from tileforge.verdict import OVER, UNKNOWN

if TYPE_CHECKING:
    from tileforge.space import Pruned


@click.command("enumerate")
@problem_options
@epilogue_options
@arch_options
@click.option("--explain", is_flag=True, help="The waterfall: what each rule takes out, and the near misses.")
@click.option("--all", "every", is_flag=True, help="List every tactic that was dropped, with its reason.")
@click.option("--menu", "only_menu", is_flag=True, help="Only the tactics that tune would build.")
@json_option
@take_problems
def command(
    problems: list[GroupedGemm], notes: list[str], epilogue: str, c: str | None, gpu: str | None, arch: str | None,
    cutlass: str | None, explain: bool, every: bool, only_menu: bool, as_json: bool,
) -> None:  # fmt: skip
    """List the legal tactics of a problem, and count the others by reason. Needs no GPU and no compiler.

    With --explain: the counts, rule by rule, in place of the list. Exit code 1 when nothing is known about this CUTLASS
    or epilogue, 2 when no tactic is legal.
    """
    from tileforge import space

    answers = []
    # The space depends on N, K and format and not on M: one answer for each key.
    for problem in {problem.key: problem for problem in problems}.values():
        where = target(gpu, arch, cutlass, problem.format)
        began = time.perf_counter()
        known = where.cutlass in where.arch.cutlass
        tactics = space.menu(problem, where.arch, where.cutlass) if only_menu and known else None
        judged = space.judge(problem, where.arch, where.cutlass, tactics, epilogue=epilogue, c=c)
        asked = {"format": problem.format, "out": problem.out, "cutlass": where.cutlass, "epilogue": epilogue, "c": c}
        answers.append(_Answer(problem, where, asked, judged, (time.perf_counter() - began) * 1e3))
    refused = next((answer for answer in answers if not answer.judged.legal and not answer.oracle), None)
    if refused and not explain:
        raise NoLegalTacticError(refused.nothing_left())
    if as_json:
        print_json([answer.as_dict(explain, every) for answer in answers])
    else:
        for note in notes:
            click.echo(f"note: {note}")
        for line in (line for answer in answers for line in answer.lines(explain, every)):
            click.echo(line)
    if refused:
        raise NoLegalTacticError(refused.nothing_left())
    if any(answer.oracle for answer in answers):
        click.get_current_context().exit(1)


@dataclass(frozen=True)
class _Answer:
    """The space of one problem. ``asked``: format, output type, CUTLASS version, epilogue and C operand."""

    problem: GroupedGemm
    where: Target
    asked: dict[str, Any]
    judged: Pruned
    milliseconds: float

    @property
    def oracle(self) -> str:
        """The command that asks the compiler, where nothing is known and so nothing is left."""
        if self.judged.legal or UNKNOWN not in self.judged.dropped:
            return ""
        return oracle_command(["--sample", "24"], self.where.arch, self.asked)

    def nothing_left(self) -> str:
        from tileforge import space

        return space.nothing_left(self.judged, self.problem, self.where.arch, self.where.cutlass)

    def as_dict(self, explain: bool, every: bool) -> dict[str, Any]:
        from tileforge import space

        answer = {
            "problem": self.problem.as_dict(),
            "arch": self.where.arch.name,
            "cutlass": self.where.cutlass,
            "summary": self.judged.summary(),
            "milliseconds": round(self.milliseconds, 1),
            "dropped": self.judged.dropped,
            "tactics": [
                {"tactic": tactic.id, **verdict.as_dict()}
                for tactic, verdict in self.judged.verdicts
                if verdict or every or explain
            ],
        }
        if explain:
            answer["waterfall"] = [step.as_dict() for step in space.waterfall(self.judged, self.where.arch)]
        return answer | ({"oracle": self.oracle} if self.oracle else {})

    def lines(self, explain: bool, every: bool) -> Iterator[str]:
        for tactic, verdict in self.judged.verdicts:
            if verdict and not explain:
                yield f"{tactic.id:<44} {verdict.figures['stages']} stages, {verdict.figures['smem_bytes']:,} B"
            elif every and not verdict:
                yield f"{tactic.id:<44} {verdict.kind} ({verdict.reason}): {verdict.message}"
        if explain:
            yield from self._waterfall()
        what = f"{self.problem.key} on {self.where.arch.name} with CUTLASS {self.where.cutlass}"
        yield f"{what}: {self.judged.summary()} [{self.milliseconds:.0f} ms]"
        if self.oracle:
            unknown = next(verdict for _, verdict in self.judged.verdicts if verdict.kind == UNKNOWN)
            yield f"{unknown.message}:\n  {self.oracle}"

    def _waterfall(self) -> Iterator[str]:
        from tileforge.space import waterfall, words

        yield f"{len(self.judged.verdicts):>6,} tactics can be written down"
        for step in waterfall(self.judged, self.where.arch):
            name = "shared memory" if step.kind == OVER else words(step.reason)
            yield f"{-step.dropped:>6,} {step.kind} ({name}): {step.left:,} left"
            if step.source:
                yield f"{'':>8}rule read in {step.source}"
            # Of a rule that is not missed by bytes one example says it all.
            by_bytes = step.kind == OVER or step.reason == "stages"
            for tactic, verdict in step.misses if by_bytes else step.misses[:1]:
                yield f"{'':>8}{tactic.id}: {verdict.message}"
        yield f"{len(self.judged.legal):>6,} fit"
