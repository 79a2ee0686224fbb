"""``tileforge db``: what a tuning database holds."""

from __future__ import annotations

from pathlib import Path

import click

from tileforge import paths
from tileforge.cli.context import print_json
from tileforge.cli.options import json_option
from tileforge.errors import DatabaseError


@click.group("db")
def command() -> None:
    """Work with tuning databases."""


@command.command("show")
@click.argument("directory", required=False)
@click.option("--gpu", metavar="SKU", help="Only this GPU's records.")
@json_option
def show(directory: str | None, gpu: str | None, as_json: bool) -> None:
    """Print the records of DIRECTORY (default: the user's database), and the files that were refused.

    Exit code 1 when a file was refused.
    """
    from tileforge.cli.tables import records_table
    from tileforge.db import TuningDB

    if directory is not None and not Path(directory).exists():
        raise DatabaseError(f"no database {directory}: name a directory that holds the GPUs' folders")
    database = TuningDB(directory or paths.database_dir(), read_only=True)
    records = list(database.records(gpu))
    refused = database.refused()
    if as_json:
        print_json(
            {
                "records": [{"key": record.key.as_dict(), **record.as_dict()} for record in records],
                "refused": [str(refusal) for refusal in refused],
            }
        )
    else:
        if records:
            records_table(records)
        click.echo(f"{len(records)} records in {database.path}")
        for refusal in refused:
            click.echo(f"refused: {refusal}", err=True)
    if refused:
        click.get_current_context().exit(1)
