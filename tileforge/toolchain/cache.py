"""The kernel cache: one directory per key, complete or not there.

    kernels/<key>/kernel.so    the shared object (absent when the compile failed)
    kernels/<key>/meta.json    spec, versions, seconds, what tf_query answered; or the failure
    kernels/<key>/log.txt      the compiler's output when it failed

The key is a hash over everything that shapes the object: headers, kernel sources, compiler, flags and the spec's
fields. An entry is made in a temporary directory of the same file system, synced, and renamed into place; of two
processes that made the same entry the second finds it there and removes its own. Whatever cannot be read is a
miss, and is replaced.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tileforge import paths
from tileforge.errors import BuildError, TileforgeError
from tileforge.toolchain.kernel import Failure, Kernel
from tileforge.toolchain.spec import KernelSpec

_SCHEMA = 1
_STALE_S = 24 * 3600.0


def key_inputs(
    spec: KernelSpec,
    *,
    headers: str,
    sources: str,
    compiler: str,
    flags: list[str],
    cutlass_version: str,
    lean: str,
    overlay: str = "",
) -> dict[str, Any]:
    """What a key is the hash of, kept in ``meta.json`` so that a key can be checked anywhere.

    ``overlay``: of emulated kernels only; the others' keys do without the field.
    """
    inputs = {
        "schema": _SCHEMA,
        "headers": headers,
        "sources": sources,
        "compiler": compiler,
        "flags": flags,
        "cutlass_version": cutlass_version,
        "lean": lean,
        "spec": spec.as_dict(),
    }
    return inputs | {"overlay": overlay} if overlay else inputs


def key_of(inputs: Mapping[str, Any]) -> str:
    text = json.dumps(inputs, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:24]


class KernelCache:
    """The cache below ``root`` (default: ``kernels`` in tileforge's cache directory)."""

    def __init__(self, root: Path | None = None) -> None:
        self.root = root if root is not None else paths.cache_dir() / "kernels"

    def get(self, key: str) -> Kernel | Failure | None:
        """The entry, None when there is none or it cannot be used."""
        entry = read_entry(self.root / key)
        return entry if entry is not None and entry.key == key else None

    def entries(self) -> Iterator[Kernel | Failure]:
        """Everything usable in the cache, in the order of keys."""
        try:
            names = sorted(entry.name for entry in os.scandir(self.root) if not entry.name.startswith("."))
        except OSError:
            return
        for name in names:
            entry = self.get(name)
            if entry is not None:
                yield entry

    def workspace(self) -> Path:
        """A new temporary directory in the cache's file system. Raises BuildError when it cannot be written."""
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            return Path(tempfile.mkdtemp(prefix=".tmp-", dir=self.root))
        except OSError as error:
            raise BuildError(
                f"cannot write the kernel cache {self.root} ({error.strerror}): make it writable, or set "
                "TILEFORGE_CACHE to a directory that is"
            ) from None

    def sweep(self) -> None:
        """Removes temporary directories that a killed process left more than a day ago."""
        for path in self.root.glob(".tmp-*"):
            try:
                if time.time() - path.stat().st_mtime > _STALE_S:
                    shutil.rmtree(path, ignore_errors=True)
            except OSError:
                continue

    def commit(self, made: Path, key: str, replace: bool = False) -> Kernel | Failure:
        """Moves the finished entry ``made`` (a directory from :meth:`workspace`) to ``key``; returns what is there.

        A good entry that is already there stays and ``made`` is removed, unless ``replace``; a failure or a
        broken entry gives way.
        """
        for path in made.iterdir():
            _sync(path)
        _sync(made)
        target = self.root / key
        for _ in range(8):  # each turn loses only to another process that put or moved an entry meanwhile
            try:
                os.rename(made, target)
                _sync(self.root)
                break
            except OSError as error:
                there = self.get(key)
                if isinstance(there, Kernel) and not replace:
                    shutil.rmtree(made, ignore_errors=True)
                    return there
                if not target.exists():
                    if not made.exists():
                        raise BuildError(f"cannot store the kernel in {target}: {error.strerror}") from None
                    continue
                aside = self.workspace()
                with contextlib.suppress(OSError):
                    os.rename(target, aside / "old")
                shutil.rmtree(aside, ignore_errors=True)
        entry = self.get(key)
        if entry is None:
            shutil.rmtree(made, ignore_errors=True)
            raise BuildError(f"cannot store the kernel in {target}: the entry cannot be read back")
        return entry


def write_meta(directory: Path, meta: Mapping[str, Any]) -> None:
    (directory / "meta.json").write_text(json.dumps(meta, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def file_facts(path: Path) -> dict[str, Any]:
    """Size and SHA-256 of a file, as ``meta.json`` records them of ``kernel.so``."""
    content = path.read_bytes()
    return {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def read_entry(directory: Path) -> Kernel | Failure | None:
    """The entry in ``directory``; None when anything about it is missing, damaged or of another schema."""
    try:
        meta = json.loads((directory / "meta.json").read_text(encoding="utf-8"))
        inputs = meta["inputs"]
        if inputs["schema"] != _SCHEMA:
            return None
        spec, key = KernelSpec.from_dict(inputs["spec"]), key_of(inputs)
        if meta.get("failure"):
            return Failure(
                spec, str(meta["failure"]), str(meta["message"]), key, float(meta["timeout_s"]), directory / "log.txt"
            )
        path = directory / "kernel.so"
        if path.stat().st_size != meta["bytes"]:
            return None
        info = {str(name): int(value) for name, value in meta["info"].items()}
        return Kernel(spec, path, info, key, meta)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, TileforgeError):
        return None


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
