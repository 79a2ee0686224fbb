"""A kernel's specification: everything that names one compiled kernel, and how it is said to nvcc."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tileforge import paths
from tileforge.arch import get_arch
from tileforge.errors import InputError, ToolchainError
from tileforge.formats import OUT_BITS, get_format
from tileforge.tactic import Tactic

_ENTRY, _EMULATED_ENTRY = "entry.cu", "emulated.cu"
_EMULATED = "_emulated"
#: Seen by kernels/emulated.cu, and by CUTLASS: loads take the form that they have on SM120 (shared::cta).
_EMULATED_DEFINES = ["-DTF_EMULATED", "-DCUTE_ARCH_TMA_SM120_ENABLED"]
#: What runs emulated kernels.
EMULATED_ON = "sm90"
_EXPORTS = "exports.map"
_INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)
_SM_HEADER = re.compile(r"sm(\d+)\.cuh")


@dataclass(frozen=True)
class KernelSpec:
    """One kernel: architecture (``sm90``, ``sm120``, ``sm121``), operand format, output type and tactic.

    Of the tactic only the compile-time fields count; run-time fields are put to their defaults here, so that
    two tactics that differ in raster or swizzle have equal specs. Whether the combination is legal is not
    asked: :mod:`tileforge.legality` answers that before anything is built.

    ``emulated``: the kernel of ``arch`` made to run on SM90 (overlay.py), to see what it computes. It is another
    kernel, with another id and key; no look-up for ``arch`` finds it, and its times say nothing.
    """

    arch: str
    format: str
    out: str
    tactic: Tactic
    emulated: bool = False

    def __post_init__(self) -> None:
        if self.emulated and get_arch(self.arch).kernels != "sm120":
            raise InputError(f"{self.arch} kernels are not emulated: SM120's and SM121's are, on {EMULATED_ON}")
        get_format(self.format)
        if self.out not in OUT_BITS:
            raise InputError(f"unknown output type {self.out!r}: use one of {', '.join(OUT_BITS)}")
        object.__setattr__(self, "tactic", self.tactic.compile_time())

    @property
    def sm(self) -> int:
        """The SM that runs the kernel."""
        return get_arch(EMULATED_ON if self.emulated else self.arch).sm

    @property
    def id(self) -> str:
        """``sm120_nvfp4_bf16_128x64x256_c1x1_coop_s3``: for people and file names; parses back."""
        return f"{self.arch}_{self.format}_{self.out}_{self.tactic.kernel_id}{_EMULATED if self.emulated else ''}"

    def __str__(self) -> str:
        return self.id

    @classmethod
    def parse(cls, text: str) -> KernelSpec:
        """Reads an id back. Raises InputError with an example."""
        found = re.fullmatch(rf"(sm\d+)_([a-z0-9_]+)_(bf16|fp16|fp32)_(\d+x\d+x\d+.*?)({_EMULATED})?", text)
        if found is None:
            raise InputError(f"{text!r} is not a kernel: write it as sm120_nvfp4_bf16_128x64x256_c1x1_coop")
        return cls(found[1], found[2], found[3], Tactic.parse(found[4]), bool(found[5]))

    def as_dict(self) -> dict[str, Any]:
        fields = {"arch": self.arch, "format": self.format, "out": self.out, "tactic": self.tactic.kernel_id}
        return fields | {"emulated": True} if self.emulated else fields

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> KernelSpec:
        """The reverse of :meth:`as_dict`."""
        try:
            emulated = bool(fields.get("emulated", False))
            return cls(fields["arch"], fields["format"], fields["out"], Tactic.parse(fields["tactic"]), emulated)
        except KeyError as missing:
            raise InputError(f"a kernel needs {missing}") from None

    def macros(self) -> dict[str, str]:
        """The macros that kernels/entry.cu and kernels/oracle.cuh read; 0 stands for automatic."""
        tactic = self.tactic
        epilogue = tactic.epilogue_tile or (0, 0)
        return {
            "TF_SM": str(get_arch(self.arch).sm),
            "TF_FORMAT": f"TF_FORMAT_{self.format.upper()}",
            "TF_OUT": f"TF_OUT_{self.out.upper()}",
            "TF_TILE_M": str(tactic.tile[0]),
            "TF_TILE_N": str(tactic.tile[1]),
            "TF_TILE_K": str(tactic.tile[2]),
            "TF_CLUSTER_M": str(tactic.cluster[0]),
            "TF_CLUSTER_N": str(tactic.cluster[1]),
            "TF_SCHEDULE": f"TF_SCHEDULE_{tactic.schedule.upper()}",
            "TF_STAGES": str(tactic.stages or 0),
            "TF_EPI_M": str(epilogue[0]),
            "TF_EPI_N": str(epilogue[1]),
            "TF_SWAP_AB": str(int(tactic.swap_ab)),
        }

    def defines(self) -> list[str]:
        """The macros as nvcc arguments: ``-DTF_SM=120`` and so on."""
        return [f"-D{name}={value}" for name, value in self.macros().items()]

    def arch_flags(self) -> list[str]:
        """The ``a`` architectures: block-scaled MMA and WGMMA exist only in those."""
        real = get_arch(EMULATED_ON if self.emulated else self.arch).nvcc_arch
        return [f"-gencode=arch={real.replace('sm_', 'compute_')},code={real}"]


def language_flags() -> list[str]:
    """How all CUDA code of this project is read, by the builder and by the oracle alike.

    ``-O1`` is for host code, which prepares a launch; device code is optimised by ptxas's own level, 3.
    """
    return ["-std=c++17", "-O1", "--expt-relaxed-constexpr", "-DNDEBUG"]


def library_flags() -> list[str]:
    """How a kernel becomes a shared object that carries its own CUDA runtime and shows only the C interface.

    ``-lcuda`` is left out on purpose: a build machine has no driver.
    """
    return ["-shared", "-cudart=static", "-Xcompiler=-fPIC,-fvisibility=hidden"]


def compile_flags(spec: KernelSpec) -> list[str]:
    """Every flag that shapes the result and names no path: a part of the cache key."""
    emulated = _EMULATED_DEFINES if spec.emulated else []
    return [*language_flags(), *library_flags(), *spec.arch_flags(), *spec.defines(), *emulated]


def report_flags() -> list[str]:
    """What makes the compiler say more and changes nothing: no part of the cache key. See usage.py."""
    return ["-Xptxas=-v"]


def kernel_command(
    spec: KernelSpec, include: Path, kernels: Path, output: Path, before: Sequence[Path] = ()
) -> list[str]:
    """Arguments of nvcc (without nvcc itself and the compiler's own flags) that compile ``spec`` to ``output``.

    ``before``: directories of edited headers that go before those of ``include`` (lean.py, overlay.py).
    """
    return [
        *compile_flags(spec),
        *report_flags(),
        *(f"-I{directory}" for directory in before),
        f"-I{include}",
        f"-I{kernels}",
        *(["-Xlinker", f"--version-script={kernels / _EXPORTS}"] if (kernels / _EXPORTS).is_file() else []),
        str(kernels / (_EMULATED_ENTRY if spec.emulated else _ENTRY)),
        "-o",
        str(output),
    ]


def sources_digest(arch: str, kernels: Path | None = None, *, emulated: bool = False) -> str:
    """Twelve hex digits over the kernel sources that a kernel of ``arch`` is made of.

    Those are the entry file, the exports and what they include from the same directory; of the headers of
    single SMs only this SM's (``sm120.cuh`` also serves sm121), so that work on one SM leaves the kernels of
    another alone. Raises ToolchainError when the sources are not there.
    """
    kernels = kernels or paths.kernels_dir()
    digest = hashlib.sha256()
    entry = _EMULATED_ENTRY if emulated else _ENTRY
    for name in sorted(_sources(entry, f"{get_arch(arch).kernels}.cuh", kernels)):
        content = (kernels / name).read_bytes()
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()[:12]


def _sources(entry: str, own: str, kernels: Path) -> set[str]:
    """Files of ``kernels`` that a kernel compiled from ``entry``, whose SM's header is ``own``, is made of."""
    if not (kernels / entry).is_file():
        raise ToolchainError(f"no kernel sources in {kernels}: reinstall tileforge, which carries them")
    seen = {_EXPORTS} if (kernels / _EXPORTS).is_file() else set()
    pending = [entry]
    while pending:
        name = pending.pop()
        if name in seen or not (kernels / name).is_file():
            continue
        seen.add(name)
        found = _INCLUDE.findall((kernels / name).read_text(encoding="utf-8"))
        beside = name.rpartition("/")[0]  # an include without a directory names a file beside the includer
        found += [f"{beside}/{i}" for i in found] if beside else []
        pending += [i for i in found if name != entry or i == own or not _SM_HEADER.fullmatch(i)]
    return seen
