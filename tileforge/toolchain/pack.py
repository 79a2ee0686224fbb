"""Kernels in one file: built where there is a compiler, used where there is none.

A pack is a ``.tar.gz`` of cache entries and a list of their hashes. Packing the same entries gives the same bytes.
Unpacking checks every hash and that each key is the hash of what its entry says of itself, and stores all entries
or none. A pack holds machine code that will run: take packs only from where you would take a program.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import re
import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tileforge.errors import BuildError
from tileforge.toolchain.cache import KernelCache, read_entry
from tileforge.toolchain.kernel import Kernel

_LIST = "tileforge-kernels.json"
_SCHEMA = 1
_MEMBER = re.compile(r"([0-9a-f]{24})/(kernel\.so|meta\.json)")
_LARGEST = 512 * 2**20  # a kernel is about 1.2 MB


def pack(kernels: Iterable[Kernel], file: Path) -> int:
    """Writes ``kernels`` to ``file``, atomically; returns how many. Raises BuildError when it cannot be written."""
    chosen = {kernel.key: kernel for kernel in kernels}
    contents: dict[str, bytes] = {}
    try:
        for key in sorted(chosen):
            for name in ("kernel.so", "meta.json"):
                contents[f"{key}/{name}"] = (chosen[key].path.parent / name).read_bytes()
        hashes = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
        listing = json.dumps({"schema": _SCHEMA, "sha256": hashes}, indent=1, sort_keys=True).encode()
        with tempfile.NamedTemporaryFile(dir=file.parent, prefix=".tmp-", delete=False) as output:
            try:
                # No time and no file name in the gzip header: the same kernels are the same bytes.
                with (
                    gzip.GzipFile(filename="", mode="wb", fileobj=output, mtime=0) as zipped,
                    tarfile.open(fileobj=zipped, mode="w", format=tarfile.USTAR_FORMAT) as archive,
                ):
                    for name, content in {_LIST: listing, **contents}.items():
                        member = tarfile.TarInfo(name)
                        member.size = len(content)
                        archive.addfile(member, io.BytesIO(content))
                output.flush()
                os.fsync(output.fileno())
                os.chmod(output.name, 0o644)
                os.replace(output.name, file)
            except BaseException:
                os.unlink(output.name)
                raise
    except OSError as error:
        raise BuildError(f"cannot write the pack {file}: {error.strerror}") from None
    return len(chosen)


def unpack(file: Path, cache: KernelCache | None = None) -> list[Kernel]:
    """Stores the kernels of ``file`` in ``cache`` (default: tileforge's) and returns them.

    Kernels that are there already stay. Raises BuildError when the file is not a pack, is damaged, or names
    anything but its entries; nothing is stored then.
    """
    cache = cache or KernelCache()
    contents = _read(file)
    work = cache.workspace()
    try:
        made: dict[str, Path] = {}
        for name, content in contents.items():
            key, _, base = name.partition("/")
            made[key] = work / key
            made[key].mkdir(exist_ok=True)
            (made[key] / base).write_bytes(content)
        for key, directory in made.items():
            entry = read_entry(directory)
            if not isinstance(entry, Kernel) or entry.key != key:
                raise BuildError(f"the pack {file} is damaged: entry {key} is not what its key says")
        stored = [cache.commit(made[key], key) for key in sorted(made)]
    except OSError as error:
        raise BuildError(f"cannot unpack {file} into {cache.root}: {error.strerror}") from None
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return [entry for entry in stored if isinstance(entry, Kernel)]


def _read(file: Path) -> dict[str, bytes]:
    """Name -> content of all entries, names and hashes checked."""
    contents: dict[str, bytes] = {}
    try:
        with tarfile.open(file, "r:gz") as archive:
            for member in archive:
                if not member.isreg() or not (member.name == _LIST or _MEMBER.fullmatch(member.name)):
                    raise BuildError(f"{file} is not a pack of tileforge kernels: it holds {member.name!r}")
                if member.size > _LARGEST or member.name in contents:
                    raise BuildError(f"the pack {file} is damaged: {member.name} is too large or there twice")
                stream = archive.extractfile(member)
                contents[member.name] = stream.read() if stream else b""
        listing: Any = json.loads(contents.pop(_LIST))
        expected: dict[str, str] = listing["sha256"]
        if listing["schema"] != _SCHEMA:
            raise BuildError(f"{file} was written by another version of tileforge: pack the kernels again")
    except KeyError:
        raise BuildError(f"{file} is not a pack of tileforge kernels: it holds no list of them") from None
    except (tarfile.TarError, zlib.error, EOFError, ValueError, TypeError, gzip.BadGzipFile):
        raise BuildError(f"{file} is not a pack of tileforge kernels, or is damaged: write it again") from None
    except OSError as error:
        raise BuildError(f"cannot read the pack {file}: {error.strerror}") from None
    if set(expected) != set(contents):
        raise BuildError(f"the pack {file} is damaged: it does not hold what its list names")
    for name, content in contents.items():
        if hashlib.sha256(content).hexdigest() != expected[name]:
            raise BuildError(f"the pack {file} is damaged: {name} has another hash than its list says")
    return contents
