"""The command line: one file per command, each thin over the library.

Errors that tileforge raises on purpose become one line on stderr and exit code 2; commands are imported when
they are called, so that ``tileforge explain`` starts without optuna or torch.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from typing import Any

import click

from tileforge._version import __version__
from tileforge.errors import TileforgeError

#: Command name -> module that holds ``command``, in the order in which people meet them.
COMMANDS = {
    "doctor": "doctor",
    "enumerate": "enumerate_",
    "explain": "explain",
    "oracle": "oracle",
    "flashinfer": "flashinfer",
    "tune": "tune",
    "pick": "pick",
    "build": "build",
    "measure": "measure",
    "verify": "verify",
    "db": "db",
    "toolchain": "toolchain",
}


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        found: click.Command = importlib.import_module(f"tileforge.cli.{COMMANDS[cmd_name]}").command
        return found

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except TileforgeError as error:
            click.echo(f"tileforge: {error}", err=True)
            ctx.exit(2)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__)
def main_group() -> None:
    """Autotune CUTLASS tile configurations of grouped GEMMs for Mixture-of-Experts serving."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of the ``tileforge`` command."""
    try:
        main_group.main(args=list(arguments) if arguments is not None else None, prog_name="tileforge")
    except BrokenPipeError:  # the reader of our output went away (`tileforge enumerate | head`): nothing to tell it
        sys.stderr.close()
        sys.exit(0)
