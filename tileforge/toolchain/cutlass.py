"""Where the CUTLASS headers are, which version they are, and a hash of what they say.

A directory that is named (argument or ``TILEFORGE_CUTLASS``) is used, or refused: never silently passed over.
Otherwise the newest of what is found wins: the headers inside an installed FlashInfer, those that
:func:`fetch_headers` put into tileforge's cache, and those of the installed ``nvidia-cutlass``.
Nothing is imported to find them: ``import flashinfer`` alone takes 12 s.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import json
import os
import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tileforge import paths
from tileforge.errors import ToolchainError

FETCH_COMMAND = "tileforge toolchain fetch-headers"
#: Beside ``include`` of fetched headers: what is kept of FlashInfer's own CUTLASS extensions.
EXTENSIONS = "extensions"

_DEFINE = re.compile(r"^\s*#\s*define\s+CUTLASS_(MAJOR|MINOR|PATCH)\s+(\d+)", re.MULTILINE)
#: The parts of an include directory that are CUTLASS: a named directory may hold other things beside them.
_TREES = ("cutlass", "cute")


@dataclass(frozen=True)
class Cutlass:
    """CUTLASS headers: the include directory, ``4.5.0``, a hash of their content, and where they come from."""

    include: Path
    version: str
    digest: str
    origin: str

    @property
    def version_info(self) -> tuple[int, ...]:
        return tuple(int(part) for part in self.version.split("."))


def find_cutlass(directory: Path | str | None = None) -> Cutlass:
    """The headers to use: ``directory`` or ``TILEFORGE_CUTLASS`` when given, else the newest that is found.

    ``directory`` is an include directory or its parent. Raises ToolchainError when what is named holds no
    CUTLASS, or when nothing is found.
    """
    named = directory or paths.variable("TILEFORGE_CUTLASS")
    if named:
        return _named(Path(named).expanduser())
    # Versions are read from one small file each; the whole tree is hashed only for the one that is chosen.
    found = sorted(_candidates(), key=lambda item: _key(item[1]), reverse=True)
    if not found:
        raise ToolchainError(
            f"no CUTLASS headers found: run `{FETCH_COMMAND}` (101 MB), or pip install nvidia-cutlass, "
            "or set TILEFORGE_CUTLASS to an include directory"
        )
    include, version, origin = found[0]
    return Cutlass(include, version, tree_digest(include), origin)


def find_all_cutlass() -> list[Cutlass]:
    """Every CUTLASS in sight: a named one first, then newest first. Empty when there is none.

    Raises ToolchainError when ``TILEFORGE_CUTLASS`` names a directory that is not CUTLASS.
    """
    found = [Cutlass(include, version, tree_digest(include), origin) for include, version, origin in _candidates()]
    found.sort(key=lambda cutlass: _key(cutlass.version), reverse=True)
    named = paths.variable("TILEFORGE_CUTLASS")
    return [_named(Path(named).expanduser()), *found] if named else found


def cutlass_of(version: str) -> Cutlass:
    """The headers of that version. Raises ToolchainError when they are not here."""
    for cutlass in find_all_cutlass():
        if cutlass.version == version:
            return cutlass
    raise ToolchainError(f"CUTLASS {version} is not here: run `tileforge doctor` to see which are")


def find_extensions() -> Path:
    """FlashInfer's own CUTLASS extensions: what its fused finalize epilogue is made of. An include directory.

    Raises ToolchainError where neither an installed FlashInfer nor the headers fetched from its wheel are there.
    """
    below = "data/csrc/nv_internal/tensorrt_llm/cutlass_extensions/include"
    for include, _ in _installed("flashinfer", below, "flashinfer-python"):
        return include
    for include, _ in _fetched():
        if (include.parent / EXTENSIONS).is_dir():
            return include.parent / EXTENSIONS
    raise ToolchainError(f"FlashInfer's epilogue headers are not here: run `{FETCH_COMMAND}` (101 MB)")


def headers_cache() -> Path:
    """Where fetched headers lie: ``<version>-<digest>/include`` and ``origin.json`` beside it."""
    return paths.cache_dir() / "cutlass"


def read_version(include: Path) -> str | None:
    """``4.5.0`` from ``cutlass/version.h``; None when this is not an include directory of CUTLASS."""
    try:
        text = (include / "cutlass" / "version.h").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    numbers = dict(_DEFINE.findall(text))
    if len(numbers) != 3 or not (include / "cute").is_dir():
        return None
    return ".".join(numbers[part] for part in ("MAJOR", "MINOR", "PATCH"))


def tree_digest(include: Path, cache: Path | None = None) -> str:
    """Twelve hex digits of the SHA-256 over relative path and content of every header.

    Reading 27 MB takes a third of a second, so the answer is kept in tileforge's cache under a summary of
    paths, sizes and modification times, which takes milliseconds. A cache that cannot be written only costs time.
    """
    files = list(_files(include))
    summary = hashlib.sha256(str(include.resolve()).encode())
    for relative, entry in files:
        status = entry.stat()
        summary.update(f"{relative}\0{status.st_size}\0{status.st_mtime_ns}\n".encode())
    known = (cache or headers_cache()) / "digests" / summary.hexdigest()[:32]
    try:
        text = known.read_text(encoding="ascii")
        if re.fullmatch(r"[0-9a-f]{12}", text):
            return text
    except (OSError, UnicodeDecodeError):
        pass
    digest = hashlib.sha256()
    for relative, entry in files:
        content = Path(entry.path).read_bytes()
        digest.update(f"{relative}\0{len(content)}\0".encode() + content)
    short = digest.hexdigest()[:12]
    try:
        known.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=known.parent, prefix=".tmp-", delete=False) as file:
            file.write(short)
        os.replace(file.name, known)
    except OSError:
        pass
    return short


def _files(include: Path) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Header files below ``include``, in an order that depends on their names alone."""
    pending = [(tree, include / tree) for tree in reversed(_TREES)]
    while pending:
        relative, directory = pending.pop()
        try:
            entries = sorted(os.scandir(directory), key=lambda entry: entry.name, reverse=True)
        except OSError as error:
            raise ToolchainError(f"cannot read the CUTLASS headers in {directory}: {error.strerror}") from None
        for entry in entries:
            if entry.is_dir():
                pending.append((f"{relative}/{entry.name}", Path(entry.path)))
        for entry in reversed(entries):
            if entry.is_file():
                yield f"{relative}/{entry.name}", entry


def _named(directory: Path) -> Cutlass:
    for include in (directory, directory / "include"):
        version = read_version(include)
        if version is not None:
            include = include.absolute()
            return Cutlass(include, version, tree_digest(include), "named")
    if not directory.is_dir():
        raise ToolchainError(f"CUTLASS was to be at {directory}, which is not a directory: name its include directory")
    raise ToolchainError(f"{directory} is not CUTLASS: there is no cutlass/version.h in it or in its include directory")


def _candidates() -> Iterator[tuple[Path, str, str]]:
    """(include, version, origin) of what is installed or fetched; the first of equal versions is preferred."""
    for include, origin in (
        *_installed("flashinfer", "data/cutlass/include", "flashinfer-python"),
        *_fetched(),
        *_installed("cutlass_library", "source/include", "nvidia-cutlass"),
    ):
        version = read_version(include)
        if version is not None:
            yield include, version, origin


def _installed(module: str, below: str, distribution: str) -> Iterator[tuple[Path, str]]:
    try:
        spec = importlib.util.find_spec(module)  # a top-level name: located, not imported
    except (ImportError, ValueError):
        return
    for location in (spec.submodule_search_locations or ()) if spec else ():
        include = Path(location) / below
        if include.is_dir():
            try:
                origin = f"{distribution} {importlib.metadata.version(distribution)}"
            except importlib.metadata.PackageNotFoundError:
                origin = distribution
            yield include, origin


def _fetched() -> Iterator[tuple[Path, str]]:
    try:
        directories = sorted(path for path in headers_cache().iterdir() if (path / "origin.json").is_file())
    except OSError:
        return
    for directory in directories:
        try:
            origin = json.loads((directory / "origin.json").read_text(encoding="utf-8"))
            if directory.name.rpartition("-")[2] == tree_digest(directory / "include"):
                yield directory / "include", f"fetched from {origin['wheel']}"
        except (OSError, ValueError, KeyError, TypeError, ToolchainError):
            continue  # not ours, or damaged: fetching again replaces it


def _key(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))
