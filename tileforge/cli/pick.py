"""``tileforge pick``: what serving code would get for a problem."""

from __future__ import annotations

import click

from tileforge.cli.context import print_json
from tileforge.cli.options import json_option, problem_options, take_problems
from tileforge.problem import GroupedGemm


@click.command("pick")
@problem_options
@click.option("--gpu", metavar="SKU", help="GPU to answer for. Default: the one here.")
@click.option("--db", metavar="DIR", help="Database to look in. Default: the user's, then the shipped one.")
@json_option
@take_problems
def command(problems: list[GroupedGemm], notes: list[str], gpu: str | None, db: str | None, as_json: bool) -> None:
    """Look tactics up, as serving code does. Exit code 1 when one is missing."""
    from tileforge import pick

    answers = [(problem, pick(problem, gpu=gpu, db=db)) for problem in problems]
    if as_json:
        print_json([{"problem": problem.as_dict(), **answer.as_dict()} for problem, answer in answers])
    else:
        for note in notes:
            click.echo(f"note: {note}")
        for problem, answer in answers:
            click.echo(str(problem))
            click.echo(f"  {answer.tactic.id if answer.tactic else answer.outcome}: {answer.reason}")
            for line in answer.stale:
                click.echo(f"  stale: {line}")
            if answer.source:
                click.echo(f"  from {answer.source}")
            if answer.command:
                click.echo(f"  create it: {answer.command}")
    if any(not answer and problem.m for problem, answer in answers):
        click.get_current_context().exit(1)
