"""The oracle: what the compiler itself says a tactic would be, many tactics to a question, no GPU needed.

``nvcc -ptx`` on declarations only (``kernels/oracle.cuh``) evaluates the types of the kernels that tileforge builds
and generates no code: a dozen tactics take about ten seconds where one kernel takes a minute. One tactic that CUTLASS
refuses fails its whole file; the compiler names the line, that tactic is taken out with its first real message, and
the others are asked again. Answers are kept by the headers', the kernel sources' and the compiler's version.

What instantiates here may still fail in a full compile, and what compiles may still be wrong: those are other checks.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import struct
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from tileforge import paths
from tileforge.arch import get_arch
from tileforge.errors import ToolchainError
from tileforge.toolchain.compiler import Compiler, find_compiler
from tileforge.toolchain.cutlass import Cutlass, find_cutlass
from tileforge.toolchain.diagnose import first_error, is_machine_failure
from tileforge.toolchain.machine import usable_cores
from tileforge.toolchain.process import run_group
from tileforge.toolchain.spec import KernelSpec, language_flags

#: Tactics to a file: reading the headers costs 5 s, each tactic then 0.7 s (nvcc 13.0.88, 2 cores, 2026-11-30).
BATCH = 16
_ANSWER = re.compile(r"tf_oracle_t(\d+)\[(\d+)\] = \{([^}]*)\}")
_LINE = re.compile(r"at line (\d+) of \"?[^\"]*question\.cu|question\.cu\((\d+)\)")
_FIELDS = 15


class Toolchain(Protocol):
    """What :func:`ask` needs: headers and a compiler. A Builder is one; :class:`Found` is another."""

    @property
    def cutlass(self) -> Cutlass | None: ...

    @property
    def compiler(self) -> Compiler | None: ...


@dataclass(frozen=True)
class Found:
    """Headers and compiler, found when not named. Raises ToolchainError where there are none."""

    cutlass: Cutlass
    compiler: Compiler

    @classmethod
    def find(cls, cutlass: Path | str | None = None) -> Found:
        return cls(find_cutlass(cutlass), find_compiler())


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


@dataclass(frozen=True)
class Scope:
    """Where the templates that are asked about live: headers to include, and their C++ namespace.

    The default is the kernels that tileforge builds. ``flags`` are further arguments of nvcc, put first.
    """

    headers: tuple[str, ...]
    namespace: str
    flags: tuple[str, ...] = ()

    @classmethod
    def kernels(cls, spec: KernelSpec) -> Scope:
        kernels = get_arch(spec.arch).kernels
        return cls((f"{kernels}.cuh", "oracle.cuh"), f"tf::{kernels}")


def ask(
    specs: Iterable[KernelSpec],
    toolchain: Toolchain | None = None,
    *,
    scope: Scope | None = None,
    cache_dir: Path | None = None,
    jobs: int | None = None,
    timeout_s: float = 300.0,
) -> dict[KernelSpec, OracleAnswer]:
    """The compiler's answers about ``specs``, in their order; those asked before come from the cache.

    ``scope``: other templates than the project's own kernels, for comparisons; such answers are not cached.
    ``jobs``: compilers at once (default: one per usable core). Raises ToolchainError when there is no compiler or no
    CUTLASS, when the machine fails (memory, disk), or when the compiler gives no answer within ``timeout_s``.
    """
    wanted = list(dict.fromkeys(specs))
    toolchain = toolchain or Found.find()
    cutlass, compiler = toolchain.cutlass, toolchain.compiler
    if cutlass is None or compiler is None:
        Found.find()  # says what is missing and how to mend it
        raise ToolchainError("the oracle needs CUTLASS headers and nvcc: run `tileforge doctor`")
    answers: dict[KernelSpec, OracleAnswer] = {}
    for arch in dict.fromkeys(spec.arch for spec in wanted):
        mine = [spec for spec in wanted if spec.arch == arch]
        own = scope or Scope.kernels(mine[0])
        cache = None if scope else _Cache(cutlass, compiler, own, arch, cache_dir)
        if cache is not None:
            answers.update(cache.read(mine))
        asker = _Asker(cutlass, compiler, own, timeout_s)
        fresh = asker.ask_all([spec for spec in mine if spec not in answers], jobs or usable_cores())
        if cache is not None and fresh:
            cache.write(fresh)
        answers.update(fresh)
    return {spec: answers[spec] for spec in wanted}


@dataclass(frozen=True)
class _Asker:
    cutlass: Cutlass
    compiler: Compiler
    scope: Scope
    timeout_s: float

    def ask_all(self, specs: Sequence[KernelSpec], jobs: int) -> dict[KernelSpec, OracleAnswer]:
        if not specs:
            return {}
        files = max(-(-len(specs) // BATCH), min(jobs, -(-len(specs) // 4)))
        batches = [specs[index::files] for index in range(files)]
        with ThreadPoolExecutor(max_workers=jobs) as pool:
            parts = list(pool.map(self._ask, batches))
        return {spec: answer for part in parts for spec, answer in part.items()}

    def _ask(self, specs: Sequence[KernelSpec]) -> dict[KernelSpec, OracleAnswer]:
        """One file; what it refuses is named by the compiler, else found by halving."""
        if not specs:
            return {}
        answers, log = self._compile(specs)
        if answers is not None:
            return answers
        refused = _refusals(log, len(self.scope.headers), specs)
        if not refused and len(specs) == 1:
            refused = {specs[0]: OracleAnswer(error=first_error(log))}
        if refused:
            return refused | self._ask([spec for spec in specs if spec not in refused])
        half = len(specs) // 2
        return self._ask(specs[:half]) | self._ask(specs[half:])

    def _compile(self, specs: Sequence[KernelSpec]) -> tuple[dict[KernelSpec, OracleAnswer] | None, str]:
        lines = [f'#include "{header}"' for header in self.scope.headers]
        lines += [
            f"TF_ORACLE(t{number}, {self.scope.namespace}, {', '.join(list(spec.macros().values())[1:])})"
            for number, spec in enumerate(specs)
        ]
        with tempfile.TemporaryDirectory(prefix="tileforge-oracle-") as name:
            room = Path(name)
            (room / "question.cu").write_text("\n".join(lines) + "\n", encoding="utf-8")
            command = self.compiler.command(
                [
                    *self.scope.flags,
                    *(flag for flag in language_flags() if flag != "-O3"),
                    f"-arch=sm_{specs[0].sm}a",
                    "-ptx",
                    f"-I{self.cutlass.include}",
                    f"-I{paths.kernels_dir()}",
                    "question.cu",
                    "-o",
                    "answer.ptx",
                ]
            )
            try:
                log = room / "log.txt"
                ran = run_group(command, cwd=room, log=log, timeout_s=self.timeout_s, env=self.compiler.env)
                text = log.read_text(encoding="utf-8", errors="replace")
                if ran.timed_out:
                    raise ToolchainError(f"nvcc gave no answer about {len(specs)} tactics in {self.timeout_s:g} s")
                if ran.returncode == 0:
                    return _read((room / "answer.ptx").read_text(encoding="utf-8"), specs), text
            except OSError as error:
                raise ToolchainError(f"the oracle cannot run {self.compiler.nvcc}: {error.strerror or error}") from None
        if is_machine_failure(text) or "error" not in text:
            raise ToolchainError(f"nvcc failed, and not because of a tactic: {first_error(text)}")
        return None, text


def _read(ptx: str, specs: Sequence[KernelSpec]) -> dict[KernelSpec, OracleAnswer]:
    """The initialisers of the .global arrays; PTX leaves trailing zero bytes out."""
    answers: dict[KernelSpec, OracleAnswer] = {}
    for number, size, values in _ANSWER.findall(ptx):
        raw = bytes(int(value) for value in values.split(",")).ljust(int(size), b"\0")
        f = struct.unpack(f"<{_FIELDS}i", raw[: 4 * _FIELDS])
        answers[specs[int(number)]] = OracleAnswer(f[1], f[2], f[3], f[4], f[8], (f[9], f[10]))
    if len(answers) != len(specs):
        raise ToolchainError(f"nvcc answered about {len(answers)} of {len(specs)} tactics: kernels/oracle.cuh changed?")
    return answers


def _refusals(log: str, first_line: int, specs: Sequence[KernelSpec]) -> dict[KernelSpec, OracleAnswer]:
    """Tactics that the compiler's own traces blame, each with the first real message of its traces."""
    blocks: dict[int, list[str]] = {}
    block: list[str] = []
    for line in log.splitlines():
        if re.search(r"\berror\s*:", line):
            block = []
        block.append(line)
        found = _LINE.search(line)
        if found:
            number = int(found[1] or found[2]) - first_line - 1
            if 0 <= number < len(specs):
                blocks.setdefault(number, []).extend(block)
                block = []
    return {specs[number]: OracleAnswer(error=first_error("\n".join(text))) for number, text in blocks.items()}


class _Cache:
    """One JSON file per headers, kernel sources, compiler and SM: spec id to answer. Only ever a saving of time."""

    def __init__(self, cutlass: Cutlass, compiler: Compiler, scope: Scope, arch: str, root: Path | None) -> None:
        digest = hashlib.sha256(f"{cutlass.digest}\0{compiler.build}\0{arch}\0".encode())
        for name in sorted({"abi.h", "common.cuh", *scope.headers}):
            try:
                digest.update((paths.kernels_dir() / name).read_bytes())
            except OSError as error:
                raise ToolchainError(f"kernel sources are missing: {error}: reinstall tileforge") from None
        folder = root if root is not None else paths.cache_dir() / "oracle"
        self.path = folder / f"{arch}-{cutlass.version}-{digest.hexdigest()[:16]}.json"

    def read(self, specs: Iterable[KernelSpec]) -> dict[KernelSpec, OracleAnswer]:
        known = self._load()
        return {spec: OracleAnswer.from_dict(known[spec.id]) for spec in specs if spec.id in known}

    def _load(self) -> dict[str, dict[str, Any]]:
        try:
            known = json.loads(self.path.read_text(encoding="utf-8"))
            for fields in known.values():
                OracleAnswer.from_dict(fields)
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            return {}  # not there, or damaged: asked afresh and replaced
        return dict(known)

    def write(self, answers: Mapping[KernelSpec, OracleAnswer]) -> None:
        merged = self._load() | {spec.id: asdict(answer) for spec, answer in answers.items()}
        with contextlib.suppress(OSError):  # a cache that cannot be written only costs time
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile("w", dir=self.path.parent, prefix=".tmp-", delete=False) as file:
                json.dump(merged, file)
                file.flush()
                os.fsync(file.fileno())
            os.replace(file.name, self.path)
