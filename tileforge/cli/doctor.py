"""``tileforge doctor``: what is here, what is missing, and the command that mends it."""

from __future__ import annotations

from typing import Any

import click

from tileforge import paths
from tileforge.cli.context import print_json
from tileforge.cli.options import json_option
from tileforge.errors import DatabaseError, DeviceError


@click.command("doctor")
@json_option
def command(as_json: bool) -> None:
    """Print GPU, limits, CUTLASS, compiler, cache and databases, and what is missing with its remedy."""
    from tileforge.toolchain import describe

    facts = {"gpu": _gpu(), **describe(), "variables": _variables()}
    facts["databases"] = _databases(facts["missing"])
    if as_json:
        print_json(facts)
        return
    gpu, cutlass, compiler, cache = (facts[name] for name in ("gpu", "cutlass", "compiler", "cache"))
    machine = facts["machine"]
    free = machine["available_bytes"]
    memory = "unknown memory" if free is None else f"{free / 2**30:.0f} GiB"
    rows = [
        ("GPU", _gpu_line(gpu)),
        ("CUTLASS", f"{cutlass['version']} ({cutlass['digest']}) {cutlass['include']}" if cutlass else "none"),
        ("compiler", f"nvcc {compiler['build']} {compiler['nvcc']}, {compiler['host']}" if compiler else "none"),
        ("kernels", f"{cache['kernels']} built, {cache['failures']} known failures in {cache['path']}"),
        ("machine", f"{machine['cores']} cores, {memory}: {machine['jobs']} compiles at once"),
    ]
    for name, path, count, refused in facts["databases"]:
        rows.append(("database", f"{name}: {count} records, {refused} files refused in {path}"))
    rows += [("variable", f"{name}={value}") for name, value in facts["variables"].items()]
    for name, text in rows:
        click.echo(f"{name:<9} {text}")
    for item in facts["missing"]:
        click.echo(f"missing   {item['what']}\n          mend it: {item['command']}")


def _gpu() -> dict[str, Any] | None:
    from tileforge.picking import detect_gpu

    try:
        gpu, driver = detect_gpu()
    except DeviceError as error:
        return {"sku": None, "message": str(error)}
    return {
        "sku": gpu.sku, "name": gpu.name, "arch": gpu.arch, "sms": gpu.sms,
        "smem_per_block": gpu.smem_per_block, "driver": driver,
    }  # fmt: skip


def _gpu_line(gpu: dict[str, Any]) -> str:
    if gpu["sku"] is None:
        return f"{gpu['message']} (tuning here predicts and cannot measure)"
    limits = f"{gpu['sms']} SMs, {gpu['smem_per_block']:,} B a block"
    return f"{gpu['name']} ({gpu['sku']}, {gpu['arch']}): {limits}, driver {gpu['driver'] or 'unknown'}"


def _databases(missing: list[dict[str, str]]) -> list[tuple[str, str, int, int]]:
    from tileforge.db import TuningDB

    found = []
    for name, path in (("user", paths.database_dir()), ("shipped", paths.shipped_database_dir())):
        try:
            database = TuningDB(path, read_only=True)
            found.append((name, str(path), sum(1 for _ in database.records()), len(database.refused())))
        except DatabaseError as error:
            missing.append({"what": str(error), "command": "export TILEFORGE_DB=<a directory>"})
    return found


def _variables() -> dict[str, str]:
    return {name: value for name in paths.VARIABLES if (value := paths.variable(name))}
