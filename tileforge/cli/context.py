"""Which GPU, which limits and which CUTLASS a command speaks of."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from tileforge import paths, smem
from tileforge.arch import ArchSpec, get_arch
from tileforge.arch.gpus import Gpu, get_gpu
from tileforge.errors import InputError, ToolchainError

if TYPE_CHECKING:
    from tileforge.toolchain import Builder


@dataclass(frozen=True)
class Target:
    """``gpu`` None: only the architecture's limits are meant. ``cutlass`` is a version."""

    arch: ArchSpec
    gpu: Gpu | None
    cutlass: str


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
        if paths.variable("TILEFORGE_CUTLASS"):
            raise  # what was named and is not there is a mistake, not a machine without CUTLASS
        return smem.CUTLASS


def builder(cutlass: str | None, jobs: int | None = None) -> Builder:
    """A builder with the CUTLASS version named, else with what is here. Raises ToolchainError when it is not here."""
    from tileforge.toolchain import Builder, cutlass_of

    return Builder(cutlass_of(cutlass) if cutlass else None, jobs=jobs)


def target(gpu: str | None, arch: str | None, cutlass: str | None, format: str) -> Target:
    """Raises InputError when ``gpu`` and ``arch`` contradict each other or are unknown."""
    found = get_gpu(gpu) if gpu else None
    if found and arch and found.arch != arch:
        raise InputError(f"{found.sku} is {found.arch}, not {arch}: leave --arch out")
    name = arch or (found.arch if found else arch_for(format))
    return Target(get_arch(name), found, cutlass_in_use(cutlass))


def print_json(value: Any) -> None:
    click.echo(json.dumps(value, indent=2, default=str))
