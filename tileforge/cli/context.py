"""Which GPU, which limits and which CUTLASS a command speaks of."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import click

from tileforge import smem
from tileforge.arch import ArchSpec, get_arch
from tileforge.arch.gpus import GPUS, Gpu, match_gpu
from tileforge.errors import InputError, ToolchainError

#: The GPU that predictions are for when none is named and none is there, by architecture.
STAND_IN = {"sm120": "rtx_pro_6000", "sm121": "dgx_spark", "sm90": "h200"}


@dataclass(frozen=True)
class Target:
    """``gpu`` None: only the architecture's limits are meant. ``cutlass`` is a version."""

    arch: ArchSpec
    gpu: Gpu | None
    cutlass: str


def get_gpu(name: str) -> Gpu:
    """The GPU of that SKU or marketing name. Raises InputError that lists the known ones."""
    found = GPUS.get(name) or match_gpu(name)
    if found is None:
        raise InputError(f"unknown GPU {name!r}: use one of {', '.join(GPUS)}")
    return found


def arch_for(format: str) -> str:
    """The architecture whose kernels take ``format``."""
    return "sm90" if format in ("bf16", "fp8") else "sm120"


def cutlass_in_use(named: str | None) -> str:
    """The version named, else that of the headers that a build would use, else the newest known."""
    if named:
        return named
    from tileforge.toolchain import find_cutlass

    try:
        return find_cutlass().version
    except ToolchainError:
        return smem.CUTLASS


def target(gpu: str | None, arch: str | None, cutlass: str | None, format: str) -> Target:
    """Raises InputError when ``gpu`` and ``arch`` contradict each other or are unknown."""
    found = get_gpu(gpu) if gpu else None
    if found and arch and found.arch != arch:
        raise InputError(f"{found.sku} is {found.arch}, not {arch}: leave --arch out")
    name = arch or (found.arch if found else arch_for(format))
    return Target(get_arch(name), found, cutlass_in_use(cutlass))


def print_json(value: Any) -> None:
    click.echo(json.dumps(value, indent=2, default=str))
