"""``tileforge toolchain``: the CUTLASS headers that kernels are built from."""

from __future__ import annotations

from pathlib import Path

import click

from tileforge.cli.context import print_json
from tileforge.cli.options import json_option


@click.group("toolchain")
def command() -> None:
    """CUTLASS headers and compiler."""


@command.command("fetch-headers")
@click.option("--wheel", type=click.Path(path_type=Path), help="A FlashInfer wheel on disk, instead of downloading it.")
@json_option
def fetch_headers_(wheel: Path | None, as_json: bool) -> None:
    """Put CUTLASS 4.5.0's headers into tileforge's cache, out of FlashInfer's wheel (101 MB, not installed)."""
    from tileforge.toolchain import fetch_headers

    found = fetch_headers(wheel=wheel)
    if as_json:
        print_json({"version": found.version, "digest": found.digest, "include": found.include})
    else:
        click.echo(f"CUTLASS {found.version} ({found.digest}) in {found.include}")
