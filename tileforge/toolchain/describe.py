"""What ``tileforge doctor`` says about the toolchain: what is there, what is missing, what mends it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

from tileforge import paths
from tileforge.errors import ToolchainError
from tileforge.toolchain.cache import KernelCache
from tileforge.toolchain.compiler import INSTALL_COMMAND, find_compiler
from tileforge.toolchain.cutlass import FETCH_COMMAND, find_all_cutlass, find_cutlass
from tileforge.toolchain.kernel import Kernel
from tileforge.toolchain.machine import available_bytes, default_jobs, usable_cores

#: The first CUTLASS with block-scaled tiles of N = 32 and 64 (4.2.0 compiles them with no room for B's scales).
SMALL_N_SINCE = (4, 5, 0)


def describe(cache: KernelCache | None = None) -> dict[str, Any]:
    """Plain values for people and JSON: ``cutlass``, ``cutlass_found``, ``compiler``, ``cache``, ``machine``, and
    ``missing``: a list of ``{"what", "command"}``, empty when everything is there. Never raises for what is missing.
    """
    missing: list[dict[str, str]] = []
    return {
        **_cutlass(missing),
        "compiler": _compiler(missing),
        "cache": _cache(cache or KernelCache(), missing),
        "machine": {"cores": usable_cores(), "available_bytes": available_bytes(), "jobs": default_jobs()},
        "missing": missing,
    }


def _cutlass(missing: list[dict[str, str]]) -> dict[str, Any]:
    try:
        found, used = find_all_cutlass(), find_cutlass()
    except ToolchainError as error:
        named = paths.variable("TILEFORGE_CUTLASS")
        missing.append({"what": str(error), "command": "unset TILEFORGE_CUTLASS" if named else FETCH_COMMAND})
        return {"cutlass": None, "cutlass_found": []}
    if used.version_info < SMALL_N_SINCE:
        what = f"CUTLASS {used.version} has no block-scaled tiles of N = 32 and 64: 4.5.0 has"
        missing.append({"what": what, "command": FETCH_COMMAND})
    rows = [
        {"version": item.version, "digest": item.digest, "include": str(item.include), "origin": item.origin}
        for item in [used, *found]
    ]
    return {"cutlass": rows[0], "cutlass_found": rows[1:]}


def _compiler(missing: list[dict[str, str]]) -> dict[str, Any] | None:
    try:
        compiler = find_compiler()
    except ToolchainError as error:
        if shutil.which("g++") is None:
            command = "apt-get install g++"
        else:
            command = "unset TILEFORGE_NVCC" if paths.variable("TILEFORGE_NVCC") else INSTALL_COMMAND
        missing.append({"what": str(error), "command": command})
        return None
    return {
        "nvcc": str(compiler.nvcc),
        "version": compiler.version,
        "build": compiler.build,
        "origin": compiler.origin,
        "host": str(compiler.host),
    }


def _cache(cache: KernelCache, missing: list[dict[str, str]]) -> dict[str, Any]:
    entries = list(cache.entries())
    kernels = [entry for entry in entries if isinstance(entry, Kernel)]
    writable = _writable(cache.root)
    if not writable:
        command = "export TILEFORGE_CACHE=<a directory you can write>"
        missing.append({"what": f"the kernel cache {cache.root} cannot be written", "command": command})
    return {
        "path": str(cache.root),
        "writable": writable,
        "kernels": len(kernels),
        "failures": len(entries) - len(kernels),
        "bytes": sum(int(kernel.meta["bytes"]) for kernel in kernels),
    }


def _writable(path: Path) -> bool:
    """Whether ``path`` can be written or made: asked of the nearest directory that exists."""
    while not path.exists() and path != path.parent:
        path = path.parent
    return path.is_dir() and os.access(path, os.W_OK | os.X_OK)
