"""Where things are: every path and environment variable that tileforge reads, resolved in this one place.

``TILEFORGE_CACHE``    kernels, CUTLASS headers, studies. Default: ``tileforge`` in ``$XDG_CACHE_HOME`` or ``~/.cache``.
``TILEFORGE_DB``       the tuning database that ``pick`` reads first and ``tune`` writes. Default: ``./tuning_db``.
``TILEFORGE_CUTLASS``  a CUTLASS include directory to use instead of the ones found.
``TILEFORGE_NVCC``     the nvcc to use instead of the one found.
"""

from __future__ import annotations

import os
from pathlib import Path

VARIABLES = ("TILEFORGE_CACHE", "TILEFORGE_DB", "TILEFORGE_CUTLASS", "TILEFORGE_NVCC")
_PACKAGE = Path(__file__).resolve().parent


def variable(name: str) -> str | None:
    """The value of one of ``VARIABLES``, None when unset or empty."""
    assert name in VARIABLES
    return os.environ.get(name) or None


def cache_dir() -> Path:
    named = variable("TILEFORGE_CACHE")
    if named:
        return Path(named).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tileforge"


def database_dir() -> Path:
    """The user's database: what ``tune`` writes and ``pick`` looks in first."""
    return Path(variable("TILEFORGE_DB") or "tuning_db").expanduser()


def _shipped(name: str) -> Path:
    """A directory of the repository's top level: inside the installed package, or beside it in a checkout."""
    installed = _PACKAGE / f"_{name}"
    return installed if installed.is_dir() else _PACKAGE.parent / name


def kernels_dir() -> Path:
    return _shipped("kernels")


def shipped_database_dir() -> Path:
    return _shipped("tuning_db")
