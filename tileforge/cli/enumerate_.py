"""``tileforge enumerate``: the space of tactics of a problem, what is legal and why the rest is not."""

from __future__ import annotations

import time

import click

from tileforge.cli.context import print_json, target
from tileforge.cli.options import arch_options, json_option, problem_options, take_problems
from tileforge.problem import GroupedGemm
from tileforge.space import Step


@click.command("enumerate")
@problem_options
@arch_options
@click.option("--explain", is_flag=True, help="The waterfall: what each rule takes out, and the near misses.")
@click.option("--all", "every", is_flag=True, help="List every tactic that was dropped, with its reason.")
@click.option("--menu", "only_menu", is_flag=True, help="Only the tactics that tune would build.")
@json_option
@take_problems
def command(
    problems: list[GroupedGemm], notes: list[str], gpu: str | None, arch: str | None, cutlass: str | None,
    explain: bool, every: bool, only_menu: bool, as_json: bool,
) -> None:  # fmt: skip
    """List the legal tactics of a problem, and count the others by reason. Needs no GPU and no compiler."""
    from tileforge import space

    answers = []
    # The space depends on N, K and format and not on M: one answer for each key.
    for problem in {problem.key: problem for problem in problems}.values():
        where = target(gpu, arch, cutlass, problem.format)
        began = time.perf_counter()
        tactics = space.menu(problem, where.arch, where.cutlass) if only_menu else None
        pruned = space.prune(problem, where.arch, where.cutlass, tactics)
        answers.append((problem, where, pruned, (time.perf_counter() - began) * 1e3))
    if as_json:
        print_json(
            [
                {
                    "problem": problem.as_dict(), "arch": where.arch.name, "cutlass": where.cutlass,
                    "summary": pruned.summary(), "milliseconds": round(elapsed, 1), "dropped": pruned.dropped,
                    "tactics": [{"tactic": t.id, **v.as_dict()} for t, v in pruned.verdicts if v or every or explain],
                    **({"waterfall": [s.as_dict() for s in space.waterfall(pruned, where.arch)]} if explain else {}),
                }
                for problem, where, pruned, elapsed in answers
            ]
        )  # fmt: skip
        return
    for note in notes:
        click.echo(f"note: {note}")
    for problem, where, pruned, elapsed in answers:
        for tactic, verdict in pruned.verdicts:
            if verdict and not (explain and not every):
                click.echo(f"{tactic.id:<44} {verdict.figures['stages']} stages, {verdict.figures['smem_bytes']:,} B")
            elif every and not verdict:
                click.echo(f"{tactic.id:<44} {verdict.kind} ({verdict.reason}): {verdict.message}")
        if explain:
            _waterfall(space.waterfall(pruned, where.arch), len(pruned.verdicts))
        click.echo(
            f"{problem.key} on {where.arch.name} with CUTLASS {where.cutlass}: {pruned.summary()} [{elapsed:.0f} ms]"
        )


def _waterfall(steps: list[Step], whole: int) -> None:
    click.echo(f"{whole:>6} tactics can be written down")
    for step in steps:
        name = "shared memory" if step.reason == "smem" else step.reason.replace("_", " ")
        click.echo(f"{-step.dropped:>6} {step.kind}: {name}" + (f"  [{step.source}]" if step.source else ""))
        for tactic, verdict in step.misses if step.kind == "over" else step.misses[:1]:
            click.echo(f"         {tactic.id}: {verdict.message}")
    click.echo(f"{steps[-1].left if steps else whole:>6} fit")
