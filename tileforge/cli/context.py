"""Which GPU, which limits and which CUTLASS a command speaks of."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from tileforge import paths, smem
from tileforge.arch import ArchSpec, get_arch
from tileforge.arch.gpus import Gpu, get_gpu
from tileforge.errors import InputError, ToolchainError

if TYPE_CHECKING:
    from tileforge.toolchain import Builder


#: What is asked for when nobody says: not worth a word in a heading or a command.
USUAL = {"out": "bf16", "epilogue": "plain", "c": None}


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
    """The version named, or that in the directory named; else that of the headers of a build, else the newest known.

    Raises ToolchainError when a directory that was named, here or in ``TILEFORGE_CUTLASS``, is not CUTLASS.
    """
    if named and os.sep not in named:
        return named
    from tileforge.toolchain import find_cutlass

    if named:
        return find_cutlass(named).version
    try:
        return find_cutlass().version
    except ToolchainError:
        if paths.variable("TILEFORGE_CUTLASS"):
            raise  # what was named and is not there is a mistake, not a machine without CUTLASS
        return smem.CUTLASS


def builder(cutlass: str | None, jobs: int | None = None) -> Builder:
    """A builder with the CUTLASS version or directory named, else with what is here.

    Raises ToolchainError when what is named is not here.
    """
    from tileforge.toolchain import Builder, cutlass_of, find_cutlass

    if cutlass and os.sep in cutlass:
        return Builder(find_cutlass(cutlass), jobs=jobs)
    return Builder(cutlass_of(cutlass) if cutlass else None, jobs=jobs)


def target(gpu: str | None, arch: str | None, cutlass: str | None, format: str) -> Target:
    """Raises InputError when ``gpu`` and ``arch`` contradict each other or are unknown."""
    found = get_gpu(gpu) if gpu else None
    if found and arch and found.arch != arch:
        raise InputError(f"{found.sku} is {found.arch}, not {arch}: leave --arch out")
    name = arch or (found.arch if found else arch_for(format))
    return Target(get_arch(name), found, cutlass_in_use(cutlass))


def oracle_command(which: list[str], arch: ArchSpec, asked: Mapping[str, str | None]) -> str:
    """The command that asks the compiler about the tactics of ``which``. ``asked``: its options that are not usual."""
    words = ["tileforge", "oracle", *which, "--arch", arch.name]
    for option, value in asked.items():
        if value not in (None, USUAL.get(option)):
            words += [f"--{option}", str(value)]
    return shlex.join(words)


def print_json(value: Any) -> None:
    click.echo(json.dumps(value, indent=2, default=str))
