"""Headers, compiler and builder of a run, as far as they are here, and what of them a record names."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from tileforge import smem
from tileforge._version import __version__
from tileforge.errors import ToolchainError
from tileforge.toolchain.compiler import Compiler, find_compiler
from tileforge.toolchain.cutlass import Cutlass, find_all_cutlass, find_cutlass
from tileforge.toolchain.oracle import Found, OracleAnswer, ask
from tileforge.toolchain.spec import KernelSpec, sources_digest

if TYPE_CHECKING:
    from tileforge.toolchain.build import Builder

_VERSION = re.compile(r"\d+\.\d+(\.\d+)?")


class Tools:
    """``version``: the CUTLASS whose rules hold, with or without headers. ``notes``: what is missing and matters.

    cutlass: :class:`Cutlass`, a version, a directory, or None for the newest found. Raises ToolchainError when a
    directory that was named is not CUTLASS.
    """

    def __init__(
        self, cutlass: Cutlass | str | os.PathLike[str] | None, compiler: Compiler | None, builder: Any
    ) -> None:
        self.builder = builder
        self.cutlass: Cutlass | None = None
        self.compiler = compiler
        self.notes: list[str] = []
        if isinstance(cutlass, Cutlass):
            self.cutlass = cutlass
        elif cutlass is not None and _VERSION.fullmatch(str(cutlass)):
            # Its rules can be asked about without its headers; whoever has to compile says what is missing.
            self.cutlass = next((found for found in find_all_cutlass() if found.version == str(cutlass)), None)
        elif cutlass is not None:
            self.cutlass = find_cutlass(os.fspath(cutlass))
        elif builder is not None:
            self.cutlass = getattr(builder, "cutlass", None)
        else:
            try:
                self.cutlass = find_cutlass()
            except ToolchainError as error:
                self.notes.append(f"rules of CUTLASS {smem.CUTLASS} assumed: {error}")
        self._named = cutlass is not None
        asked = str(cutlass) if self.cutlass is None and cutlass is not None else smem.CUTLASS
        self.version = self.cutlass.version if self.cutlass else asked

    def make_builder(self) -> Builder:
        """The builder given, or one with these headers. Raises ToolchainError when only their version is known."""
        from tileforge.toolchain.build import Builder

        if self.builder is None:
            if self.cutlass is None and not self.notes:
                raise ToolchainError(f"CUTLASS {self.version} is not here: `tileforge doctor` says which are")
            self.builder = Builder(self.cutlass if self._named else None, self.compiler)
            if not self._named:
                # Where nothing can compile, the kernels that were brought here say whose rules hold.
                self.cutlass = self.builder.cutlass
                self.version = self.builder.cutlass_version or self.version
        made: Builder = self.builder
        return made

    def oracle(self, specs: Iterable[KernelSpec]) -> dict[KernelSpec, OracleAnswer] | None:
        """The compiler's answers; None, with a note, where there is no compiler or it fails altogether."""
        if self.cutlass is None:
            return None
        try:
            self.compiler = self.compiler or find_compiler()
            return ask(specs, Found(self.cutlass, self.compiler))
        except ToolchainError as error:
            note = f"not confirmed by the compiler: {error}"
            if note not in self.notes:
                self.notes.append(note)
            return None

    def environment(
        self, arch: str, *, kernel: Any = None, driver: str | None = None, fake: bool = False
    ) -> dict[str, str]:
        """What a record's answer depends on; the kernel that ran says it best. Unknown figures are left out."""
        inputs = getattr(kernel, "meta", {}).get("inputs", {}) if kernel is not None else {}
        compiler = self.compiler or getattr(self.builder, "compiler", None)
        known: dict[str, str | None] = {
            "cutlass": getattr(kernel, "cutlass", "") or self.version,
            "cutlass_digest": inputs.get("headers") or (self.cutlass.digest if self.cutlass else None),
            "compiler": inputs.get("compiler") or (f"nvcc {compiler.build}" if compiler is not None else None),
            "kernels": inputs.get("sources") or _sources(arch),
            "driver": driver,
            "timer": "fake" if fake else None,
            "tileforge": __version__,
        }
        return {name: str(value) for name, value in known.items() if value}


def _sources(arch: str) -> str | None:
    try:
        return sources_digest(arch)
    except ToolchainError:
        return None
