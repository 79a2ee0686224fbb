"""``tileforge tune``: problems in, a tuning database out; a table that says predicted or measured."""

from __future__ import annotations

import shlex
import sys

import click

from tileforge.cli.context import print_json
from tileforge.cli.options import json_option, problem_options, take_problems
from tileforge.problem import GroupedGemm


@click.command("tune")
@problem_options
@click.option("--gpu", metavar="SKU", help="GPU to tune for. Default: the one here, else the format's usual one.")
@click.option("--timer", default="auto", show_default=True, help="gpu measures, predict does not, auto if it can.")
@click.option("--budget", default="40", show_default=True, help="Of each problem: 40 (tactics), 10m, 40,10m or all.")
@click.option("--candidates", default="menu", show_default=True, help="menu (some 50 kernels) or all legal tactics.")
@click.option("--cutlass", metavar="VERSION|DIR", help="CUTLASS to use: a version that is here, or a directory.")
@click.option("--db", metavar="DIR", help="Database to write. Default: TILEFORGE_DB, else ./tuning_db.")
@click.option("--no-save", is_flag=True, help="Write no database.")
@click.option("--no-confirm", is_flag=True, help="Neither repeat the finals in a fresh process nor ask the compiler.")
@json_option
@take_problems
def command(
    problems: list[GroupedGemm], notes: list[str], gpu: str | None, timer: str, budget: str, candidates: str,
    cutlass: str | None, db: str | None, no_save: bool, no_confirm: bool, as_json: bool,
) -> None:  # fmt: skip
    """Find the best tactic of each problem and record it.

    With a GPU: kernels are built, checked and timed. Without one: tactics are pruned and ranked by prediction, and
    the compiler confirms the leaders; such records say predicted, and the command that would measure is printed.
    """
    from tileforge import paths, tune
    from tileforge.cli.progress import Progress
    from tileforge.cli.tables import tune_table
    from tileforge.tuning import INTERRUPTED

    for note in notes:
        click.echo(f"note: {note}", err=True)
    with Progress(quiet=as_json) as progress:
        results = tune(
            problems, gpu=gpu, timer=timer, budget=budget, db=db, save=not no_save, cutlass=cutlass,
            candidates=candidates, confirm=not no_confirm, on_event=progress.on_event,
        )  # fmt: skip
    if as_json:
        print_json([result.as_dict() for result in results])
    else:
        tune_table(results, db or str(paths.database_dir()), _measuring(sys.argv[1:]))
    if len(results) < len(problems) or any(result.provenance == INTERRUPTED for result in results):
        click.get_current_context().exit(130)


def _measuring(arguments: list[str]) -> str:
    """This command line, with the timer that measures."""
    kept: list[str] = []
    for before, argument in zip(["", *arguments], arguments, strict=False):
        if argument != "--timer" and before != "--timer" and not argument.startswith("--timer="):
            kept.append(argument)
    return shlex.join(["tileforge", *kept, "--timer", "gpu"])
