"""The SMs that tileforge has kernels for: limits, rules and shared-memory layout, one file each."""

from __future__ import annotations

from dataclasses import replace

from tileforge.arch.sm90 import SM90
from tileforge.arch.sm120 import SM120
from tileforge.arch.spec import EPILOGUES, ArchSpec, Context, Menu, Rule
from tileforge.errors import InputError

#: DGX Spark's GB10 runs the same kernels as SM120 within the same limits; only the code generation target differs.
SM121 = replace(SM120, name="sm121", sm=121, nvcc_arch="sm_121a")

ARCHS: dict[str, ArchSpec] = {arch.name: arch for arch in (SM90, SM120, SM121)}


def get_arch(name: str) -> ArchSpec:
    """The SM called ``name`` (``sm90``, ``sm120``, ``sm121``). Raises InputError that lists the known ones."""
    try:
        return ARCHS[name]
    except (KeyError, TypeError):
        raise InputError(f"unknown architecture {name!r}: use one of {', '.join(ARCHS)}") from None


__all__ = ["ARCHS", "EPILOGUES", "SM90", "SM120", "SM121", "ArchSpec", "Context", "Menu", "Rule", "get_arch"]
