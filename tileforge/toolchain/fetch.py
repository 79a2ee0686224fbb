"""CUTLASS 4.5.0 headers out of FlashInfer's wheel, without the 2.6 GB that installing FlashInfer brings.

Only ``flashinfer/data/cutlass/include`` (27 MB) of the wheel is kept, in ``<cache>/cutlass/<version>-<digest>``,
with three headers of FlashInfer's finalize epilogue in ``extensions`` and ``origin.json`` beside it: which wheel, its
hash, whether that is the hash pinned here, and when.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from datetime import datetime, timezone
from pathlib import Path, PurePosixPath
from typing import Any

from tileforge.errors import ToolchainError
from tileforge.toolchain.cutlass import EXTENSIONS, FETCH_COMMAND, Cutlass, headers_cache, read_version, tree_digest

DISTRIBUTION = "flashinfer-python"
DEFAULT_VERSION = "0.7.4"
#: SHA-256 of the wheels whose headers this project was developed on (CUTLASS 4.5.0 in 0.7.4).
WHEEL_SHA256 = {"0.7.4": "a051a62e09a2738e8b0de47a1944fd2f0f3eff01b728b662141ea660cb09dd32"}
_PREFIX = "flashinfer/data/cutlass/include/"
#: FlashInfer's fused finalize epilogue and what it includes: for asking the compiler about it, no kernel needs them.
_EXTENSIONS = "flashinfer/data/csrc/nv_internal/tensorrt_llm/cutlass_extensions/include/"
_EPILOGUE = ("epilogue/fusion/sm90_visitor_scatter.hpp", "arch/copy_red_global.hpp", "util/gather_tensor.hpp")


def fetched(version: str = DEFAULT_VERSION) -> Cutlass | None:
    """The headers of that FlashInfer version if they are in the cache already, whole and unchanged."""
    for record in sorted(headers_cache().glob("*/origin.json")):
        try:
            origin = json.loads(record.read_text(encoding="utf-8"))
            include = record.parent / "include"
            whole = origin["digest"] == tree_digest(include) and origin["extensions"] == _present(record.parent)
            if origin["distribution"] == f"{DISTRIBUTION} {version}" and whole:
                return Cutlass(include, origin["version"], origin["digest"], f"fetched from {origin['wheel']}")
        except (OSError, ValueError, KeyError, TypeError, ToolchainError):
            continue
    return None


def fetch_headers(version: str = DEFAULT_VERSION, *, wheel: Path | None = None) -> Cutlass:
    """Puts the headers of FlashInfer ``version`` into tileforge's cache and returns them.

    Downloads the wheel with pip (about 101 MB; nothing is installed), or reads ``wheel``, which works offline.
    What is in the cache already is returned at once. Raises ToolchainError, with nothing left half-written: no
    pip, no network, a wheel with another hash than the pinned one, a cache that cannot be written.
    """
    if wheel is None and (there := fetched(version)) is not None:
        return there
    cache = headers_cache()
    try:
        cache.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix=".tmp-", dir=cache))
    except OSError as error:
        raise ToolchainError(
            f"cannot write {cache} ({error.strerror}): make it writable, or set TILEFORGE_CACHE to a directory that is"
        ) from None
    try:
        return _store(wheel if wheel is not None else _download(version, work), work, cache)
    except OSError as error:
        raise ToolchainError(f"cannot store the CUTLASS headers in {cache}: {error}") from None
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _download(version: str, work: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    command += ["--disable-pip-version-check", "--dest", str(work), f"{DISTRIBUTION}=={version}"]
    answer = subprocess.run(command, capture_output=True, text=True)
    wheels = list(work.glob("*.whl"))
    if answer.returncode == 0 and wheels:
        return wheels[0]
    lines = [line for line in answer.stderr.splitlines() if line.strip()]
    reason = next((line for line in reversed(lines) if "ERROR" in line), lines[-1] if lines else "pip said nothing")
    raise ToolchainError(
        f"cannot download {DISTRIBUTION} {version} ({reason.removeprefix('ERROR: ')}): `pip download --no-deps "
        f"{DISTRIBUTION}=={version}` where there is a network, then `{FETCH_COMMAND} --wheel FILE` here"
    )


def _store(wheel: Path, work: Path, cache: Path) -> Cutlass:
    named = re.fullmatch(r"flashinfer_python-([^-]+)-.*\.whl", wheel.name)
    if named is None or not wheel.is_file():
        raise ToolchainError(f"{wheel} is not a wheel of {DISTRIBUTION}: pip download --no-deps {DISTRIBUTION}")
    with wheel.open("rb") as file:
        sha256 = hashlib.sha256()
        for block in iter(lambda: file.read(1 << 20), b""):
            sha256.update(block)
    pinned = WHEEL_SHA256.get(named[1])
    if pinned is not None and sha256.hexdigest() != pinned:
        raise ToolchainError(
            f"{wheel.name} has SHA-256 {sha256.hexdigest()[:16]}..., the one known is {pinned[:16]}...: it is damaged "
            "or not what it says; download it again"
        )
    made = work / "made"
    count = _extract(wheel, made)
    version = read_version(made / "include")
    if version is None:
        raise ToolchainError(f"{wheel.name} holds no CUTLASS headers in {_PREFIX}")
    digest = tree_digest(made / "include")
    origin: dict[str, Any] = {
        "distribution": f"{DISTRIBUTION} {named[1]}",
        "wheel": wheel.name,
        "wheel_sha256": sha256.hexdigest(),
        "pinned": pinned is not None,
        "version": version,
        "digest": digest,
        "files": count,
        "extensions": _present(made),
        "fetched": datetime.now(timezone.utc).isoformat(timespec="seconds"),
    }
    (made / "origin.json").write_text(json.dumps(origin, indent=1) + "\n", encoding="utf-8")
    target = cache / f"{version}-{digest}"
    try:
        os.rename(made, target)
    except OSError:  # something is there: the same headers (the name holds their hash), or what is left of them
        if _intact(target, digest) and _present(target) == origin["extensions"]:
            os.replace(made / "origin.json", target / "origin.json")
        else:
            os.rename(target, work / "broken")
            os.rename(made, target)
    return Cutlass(target / "include", version, tree_digest(target / "include"), f"fetched from {wheel.name}")


def _intact(directory: Path, digest: str) -> bool:
    try:
        return tree_digest(directory / "include") == digest
    except ToolchainError:
        return False


def _present(directory: Path) -> list[str]:
    """Which of the epilogue's headers lie in the ``extensions`` of fetched headers."""
    below = directory / EXTENSIONS / "cutlass_extensions"
    return [name for name in _EPILOGUE if (below / name).is_file()]


def _extract(wheel: Path, made: Path) -> int:
    """Writes the headers below ``made/include`` and ``made/extensions``; returns how many of CUTLASS's."""
    count = 0
    try:
        with zipfile.ZipFile(wheel) as archive:
            for member in archive.infolist():
                if member.filename.startswith(_PREFIX) and not member.is_dir():
                    _write(archive, member, _PREFIX, made / "include")
                    count += 1
                elif member.filename in [f"{_EXTENSIONS}cutlass_extensions/{name}" for name in _EPILOGUE]:
                    _write(archive, member, _EXTENSIONS, made / EXTENSIONS)
    except zipfile.BadZipFile:
        raise ToolchainError(f"{wheel.name} is not a zip file: download it again") from None
    return count


def _write(archive: zipfile.ZipFile, member: zipfile.ZipInfo, prefix: str, below: Path) -> None:
    relative = PurePosixPath(member.filename[len(prefix) :])
    if relative.is_absolute() or ".." in relative.parts:
        raise ToolchainError(f"{archive.filename} holds an unsafe path: {member.filename}")
    path = below / relative
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(archive.read(member))
