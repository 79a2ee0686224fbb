"""The oracle's memory: answers by headers, oracle sources, compiler and SM. Only ever a saving of time."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tileforge import paths
from tileforge.arch import get_arch
from tileforge.errors import ToolchainError
from tileforge.toolchain.compiler import Compiler
from tileforge.toolchain.cutlass import Cutlass
from tileforge.toolchain.spec import KernelSpec


@dataclass(frozen=True)
class Question:
    """One kernel to ask about: ``c`` is the type of the C operand (None: none), ``epilogue`` plain or finalize."""

    spec: KernelSpec
    c: str | None = None
    epilogue: str = "plain"

    @property
    def id(self) -> str:
        """``sm120_nvfp4_bf16_128x128x128_c1x1_coop``, then ``+c_fp16`` and ``+finalize`` where they apply."""
        return self.spec.id + (f"+c_{self.c}" if self.c else "") + (f"+{self.epilogue}" * (self.epilogue != "plain"))

    def line(self, number: int, macro: str) -> str:
        """The line of CUDA that asks; the macros are kernels/oracle.cuh's."""
        fields = list(self.spec.macros().values())[1:]
        source = f"TF_OUT_{self.c.upper()}" if self.c and self.epilogue == "plain" else "TF_C_NONE"
        return f"{macro}({number}, {', '.join([*fields, source, str(int(self.epilogue == 'finalize'))])})"


@dataclass(frozen=True)
class OracleAnswer:
    """What the compiler said of one kernel: counts, sizes in bytes, the epilogue tile; or ``error``, one line.

    ``smem_bytes``: ``sizeof(GemmKernel::SharedStorage)``, what the launch asks for. ``mainloop_bytes``: operand and
    scale tiles of all stages. ``epilogue_bytes``: the epilogue's SharedStorage, what an automatic stage count sets
    aside. All are 0 with an error.
    """

    stages: int = 0
    smem_bytes: int = 0
    mainloop_bytes: int = 0
    epilogue_bytes: int = 0
    threads: int = 0
    epilogue_tile: tuple[int, int] = (0, 0)
    error: str = ""

    @property
    def ok(self) -> bool:
        return not self.error

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> OracleAnswer:
        return cls(**{**fields, "epilogue_tile": tuple(fields["epilogue_tile"])})


class AnswerCache:
    """One JSON file: question id to answer.

    ``flags`` (whatever else decides the answer) take part in the name. A file that is damaged is asked afresh and
    replaced; one that cannot be written (no room, no permission) only costs time, and leaves the old one whole.
    """

    def __init__(
        self, cutlass: Cutlass, compiler: Compiler, arch: str, root: Path | None, flags: Iterable[str] = ()
    ) -> None:
        digest = hashlib.sha256("\0".join([cutlass.digest, compiler.build, arch, *flags, ""]).encode())
        for name in ("abi.h", "common.cuh", f"{get_arch(arch).kernels}.cuh", "oracle.cuh"):
            try:
                digest.update((paths.kernels_dir() / name).read_bytes())
            except OSError as error:
                raise ToolchainError(f"kernel sources are missing: {error}: reinstall tileforge") from None
        folder = root if root is not None else paths.cache_dir() / "oracle"
        self.path = folder / f"{arch}-{cutlass.version}-{digest.hexdigest()[:16]}.json"

    def read(self, questions: Iterable[Question]) -> dict[Question, OracleAnswer]:
        known = self._load()
        return {each: OracleAnswer.from_dict(known[each.id]) for each in questions if each.id in known}

    def _load(self) -> dict[str, dict[str, Any]]:
        try:
            known = json.loads(self.path.read_text(encoding="utf-8"))
            for fields in known.values():
                OracleAnswer.from_dict(fields)
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            return {}  # not there, or damaged: asked afresh and replaced
        return dict(known)

    def write(self, answers: Mapping[Question, OracleAnswer]) -> None:
        merged = self._load() | {question.id: asdict(answer) for question, answer in answers.items()}
        temporary = None
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile("w", dir=self.path.parent, prefix=".tmp-", delete=False) as file:
                temporary = file.name
                json.dump(merged, file)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, self.path)
        except OSError:
            if temporary is not None:
                with contextlib.suppress(OSError):
                    os.unlink(temporary)
