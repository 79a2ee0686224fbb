"""Which nvcc compiles: found, checked for its age, and complete.

Order of preference: ``TILEFORGE_NVCC`` (used or refused, nothing else is tried); the CUDA wheels of this
environment; ``nvcc`` on PATH; ``/usr/local/cuda``. The wheels come before PATH because they are pinned with the
environment: two machines that installed the same tileforge then compile with the same compiler and share cache
keys, whatever CUDA the machine's administrator chose. One that is too old or incomplete is passed over, and said so
when nothing is left.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tileforge import paths
from tileforge.errors import ToolchainError

#: The first nvcc that knows sm_120a (CUDA 12.8 release notes); sm_121a came with 12.9.
OLDEST = (12, 8)
INSTALL_COMMAND = "pip install 'tileforge[toolchain]'"
#: What must lie beside ``bin/nvcc`` of the wheels, and which wheel brings it.
_WHEEL_PARTS = {
    "nvvm/bin/cicc": "nvidia-nvvm",
    "include/crt/host_config.h": "nvidia-cuda-crt",
    "include/cuda_runtime.h": "nvidia-cuda-runtime",
    "lib/libcudart_static.a": "nvidia-cuda-runtime",
    "include/cccl/cuda/std/utility": "nvidia-cuda-cccl",
}
_SYSTEM = Path("/usr/local/cuda/bin/nvcc")
_RELEASE = re.compile(r"release (\d+)\.(\d+), V([\d.]+)")


@dataclass(frozen=True)
class Compiler:
    """An nvcc that works. ``version`` is ``13.0``, ``build`` ``13.0.88``; ``host`` is the C++ compiler it calls.

    ``flags`` go before all others on every call: the wheels' ``nvcc.profile`` looks for libraries in ``lib64``,
    theirs lie in ``lib`` (nvidia-cuda-nvcc 13.0.88), so they need ``-L``; their include directories it finds.
    ``env`` is laid over the environment of every call.
    """

    nvcc: Path
    version: str
    build: str
    origin: str
    host: Path
    flags: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)

    def command(self, arguments: list[str]) -> list[str]:
        return [str(self.nvcc), *self.flags, *arguments]

    @property
    def version_info(self) -> tuple[int, ...]:
        return tuple(int(part) for part in self.version.split("."))


def find_compiler() -> Compiler:
    """The nvcc to use, by the order above. Raises ToolchainError: one line with what to install."""
    host = find_host_compiler()
    named = paths.variable("TILEFORGE_NVCC")
    if named:
        return _checked(Path(named).expanduser(), "TILEFORGE_NVCC", host)
    refused: list[str] = []
    for nvcc, origin in _candidates():
        try:
            return _checked(nvcc, origin, host)
        except ToolchainError as error:
            refused.append(str(error))
    reason = f" ({'; '.join(refused)})" if refused else ""
    raise ToolchainError(
        f"no usable nvcc found{reason}: {INSTALL_COMMAND}, or install CUDA 12.8 or newer, or set TILEFORGE_NVCC"
    )


def find_host_compiler() -> Path:
    """g++ on PATH, which nvcc calls for host code. Raises ToolchainError when there is none."""
    host = shutil.which("g++")
    if host is None:
        raise ToolchainError("no g++ on PATH, which nvcc needs for host code: install it (apt-get install g++)")
    return Path(host)


def _candidates() -> Iterator[tuple[Path, str]]:
    seen: set[Path] = set()
    on_path = shutil.which("nvcc")
    for nvcc, origin in (
        *((nvcc, "wheels") for nvcc in _wheels()),
        *([(Path(on_path), "PATH")] if on_path else []),
        (_SYSTEM, "/usr/local/cuda"),
    ):
        if nvcc.is_file() and nvcc.resolve() not in seen:
            seen.add(nvcc.resolve())
            yield nvcc, origin


def _wheels() -> list[Path]:
    """``nvidia/cu13/bin/nvcc`` in this environment's site-packages; a later major version first."""
    try:
        spec = importlib.util.find_spec("nvidia")  # a namespace package: located, not imported
    except (ImportError, ValueError):
        return []
    roots = [Path(location) for location in (spec.submodule_search_locations or ())] if spec else []
    found = [nvcc for root in roots for nvcc in root.glob("cu[0-9]*/bin/nvcc")]
    return sorted(found, key=lambda nvcc: int(re.sub(r"\D", "", nvcc.parts[-3]) or 0), reverse=True)


def _checked(nvcc: Path, origin: str, host: Path) -> Compiler:
    root = nvcc.resolve().parent.parent
    if origin == "wheels":
        missing = sorted({wheel for part, wheel in _WHEEL_PARTS.items() if not (root / part).exists()})
        if missing:
            raise ToolchainError(f"the nvcc of the wheels in {root} lacks {', '.join(missing)}: {INSTALL_COMMAND}")
    wheel_layout = (root / "lib" / "libcudart_static.a").is_file() and not (root / "lib64").exists()
    flags = (f"-L{root / 'lib'}",) if wheel_layout else ()
    try:
        answer = subprocess.run([str(nvcc), "--version"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ToolchainError(f"{nvcc} ({origin}) does not run: {error}") from None
    found = _RELEASE.search(answer.stdout)
    if answer.returncode or found is None:
        raise ToolchainError(f"{nvcc} ({origin}) is not nvcc: --version says no release")
    if (int(found[1]), int(found[2])) < OLDEST:
        raise ToolchainError(
            f"{nvcc} ({origin}) is CUDA {found[1]}.{found[2]}, which does not know sm_120a: "
            f"{OLDEST[0]}.{OLDEST[1]} is the first that does"
        )
    return Compiler(nvcc, f"{found[1]}.{found[2]}", found[3], origin, host, flags)
