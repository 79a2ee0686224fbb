"""The oracle: what the compiler itself says a tactic would be, many tactics to a question, no GPU needed.

``nvcc -ptx`` on declarations only (``kernels/oracle.cuh``) evaluates the types of CUTLASS's kernels and generates no
code: hundreds of tactics take the time of one kernel. One tactic that CUTLASS refuses fails its whole file; the
compiler names the line, that tactic is taken out with its first real message, and the others are asked again. Answers
are kept by the headers', the oracle sources' and the compiler's version.

What instantiates here may still fail in a full compile (:func:`ask_bodies` asks about that as well, for more time),
and what compiles may still be wrong: those are other checks.
"""

from __future__ import annotations

import re
import struct
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol

from tileforge import paths
from tileforge.errors import ToolchainError
from tileforge.formats import get_format
from tileforge.toolchain.compiler import Compiler, find_compiler
from tileforge.toolchain.cutlass import Cutlass, find_cutlass, find_extensions
from tileforge.toolchain.diagnose import first_error, is_machine_failure
from tileforge.toolchain.machine import usable_cores
from tileforge.toolchain.oracle_cache import AnswerCache, OracleAnswer, Question
from tileforge.toolchain.process import run_group
from tileforge.toolchain.spec import KernelSpec, language_flags

__all__ = ["Found", "OracleAnswer", "Question", "Toolchain", "ask", "ask_all", "ask_bodies"]

#: Tactics to a file: reading the headers costs 4 s, each tactic then 0.05 s where neighbours share types, 0.15 s where
#: they do not (nvcc 13.0.88, 2 cores, 2026-12-01).
BATCH = 128
#: Kernel bodies to a file: 20 s each, about 3 GB at once.
BODIES = 4
#: Seconds between two writes of the cache.
_KEEP_S = 10.0
_ANSWER = re.compile(r"tf_oracle_(\d+)\[(\d+)\] = \{([^}]*)\}")
_LINE = re.compile(r"at line (\d+) of \"?[^\"]*question\.cu|question\.cu\((\d+)\)")
_FIELDS = 14


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


def ask(
    specs: Iterable[KernelSpec],
    toolchain: Toolchain | None = None,
    *,
    cache_dir: Path | None = None,
    jobs: int | None = None,
    timeout_s: float = 300.0,
) -> dict[KernelSpec, OracleAnswer]:
    """:func:`ask_all` of kernels with no C operand and a plain epilogue: those that tileforge builds."""
    questions = [Question(spec) for spec in specs]
    answers = ask_all(questions, toolchain, cache_dir=cache_dir, jobs=jobs, timeout_s=timeout_s)
    return {question.spec: answer for question, answer in answers.items()}


def ask_all(
    questions: Iterable[Question],
    toolchain: Toolchain | None = None,
    *,
    cache_dir: Path | None = None,
    jobs: int | None = None,
    timeout_s: float = 300.0,
    progress: Callable[[int], None] | None = None,
) -> dict[Question, OracleAnswer]:
    """The compiler's answers about ``questions``, in their order; those asked before come from the cache.

    ``jobs``: compilers at once (default: one per usable core); questions that are alike are best asked next to each
    other. ``progress`` is told how many were answered, file by file. Raises ToolchainError when there is no compiler
    or no CUTLASS, no FlashInfer headers for a finalize epilogue, when the machine fails (memory, disk), or when the
    compiler gives no answer within ``timeout_s``.
    """
    return _ask(questions, toolchain, _Types, cache_dir, jobs, timeout_s, progress)


def ask_bodies(
    questions: Iterable[Question],
    toolchain: Toolchain | None = None,
    *,
    cache_dir: Path | None = None,
    jobs: int | None = None,
    timeout_s: float = 900.0,
    progress: Callable[[int], None] | None = None,
) -> dict[Question, str]:
    """Whether the kernels' bodies hold, assertions and all: "" or the first error. About 20 CPU-seconds each."""
    answers = _ask(questions, toolchain, _Bodies, cache_dir, jobs, timeout_s, progress)
    return {question: answer.error for question, answer in answers.items()}


def _ask(
    questions: Iterable[Question],
    toolchain: Toolchain | None,
    kind: type[_Types],
    cache_dir: Path | None,
    jobs: int | None,
    timeout_s: float,
    progress: Callable[[int], None] | None,
) -> dict[Question, OracleAnswer]:
    wanted = list(dict.fromkeys(questions))
    toolchain = toolchain or Found.find()
    cutlass, compiler = toolchain.cutlass, toolchain.compiler
    if cutlass is None or compiler is None:
        Found.find()  # says what is missing and how to mend it
        raise ToolchainError("the oracle needs CUTLASS headers and nvcc: run `tileforge doctor`")
    answers: dict[Question, OracleAnswer] = {}
    # One file holds one SM, and finalize epilogues apart: they need other headers.
    for arch, finalize in dict.fromkeys((each.spec.arch, each.epilogue == "finalize") for each in wanted):
        mine = [each for each in wanted if (each.spec.arch, each.epilogue == "finalize") == (arch, finalize)]
        extra = ("-DTF_ORACLE_FINALIZE", f"-I{find_extensions()}") if finalize else ()
        cache = AnswerCache(cutlass, compiler, arch, cache_dir, (kind.macro, *extra[:1]))
        answers.update(cache.read(mine))
        asker = kind(cutlass, compiler, extra, timeout_s)
        unkept: dict[Question, OracleAnswer] = {}
        written = time.monotonic()
        try:
            for part in asker.ask_all([each for each in mine if each not in answers], jobs or usable_cores()):
                unkept.update(part)
                answers.update(part)
                if progress is not None:
                    progress(len(part))
                if time.monotonic() - written > _KEEP_S:
                    cache.write(unkept)
                    unkept, written = {}, time.monotonic()
        finally:  # what was answered before an interruption stays
            if unkept:
                cache.write(unkept)
    return {each: answers[each] for each in wanted}


@dataclass(frozen=True)
class _Types:
    """Asks about types: stages, bytes, threads."""

    cutlass: Cutlass
    compiler: Compiler
    extra: tuple[str, ...]
    timeout_s: float

    macro: ClassVar[str] = "TF_ORACLE"
    batch: ClassVar[int] = BATCH
    mode: ClassVar[tuple[str, ...]] = ("-ptx",)

    def ask_all(self, questions: Sequence[Question], jobs: int) -> Iterator[dict[Question, OracleAnswer]]:
        """The answers, file by file."""
        if not questions:
            return
        # Few questions are still spread over the cores; runs of neighbours share types.
        size = min(self.batch, max(-(-len(questions) // jobs), 8))
        with ThreadPoolExecutor(max_workers=jobs) as pool:
            files = [pool.submit(self._file, questions[at : at + size]) for at in range(0, len(questions), size)]
            try:
                for file in as_completed(files):
                    yield file.result()
            finally:
                for file in files:
                    file.cancel()

    def _file(self, questions: Sequence[Question]) -> dict[Question, OracleAnswer]:
        """One file; what it refuses is named by the compiler, else found by halving."""
        if not questions:
            return {}
        answers, log = self._compile(questions)
        if answers is not None:
            return answers
        refused = _refusals(log, questions)
        if not refused and len(questions) == 1:
            refused = {questions[0]: OracleAnswer(error=first_error(log))}
        if refused:
            return refused | self._file([each for each in questions if each not in refused])
        half = len(questions) // 2
        return self._file(questions[:half]) | self._file(questions[half:])

    def _compile(self, questions: Sequence[Question]) -> tuple[dict[Question, OracleAnswer] | None, str]:
        sm = questions[0].spec.sm
        lines = [_INCLUDE, *(each.line(number, self.macro) for number, each in enumerate(questions))]
        with tempfile.TemporaryDirectory(prefix="tileforge-oracle-") as name:
            room = Path(name)
            command = self.compiler.command(
                [
                    *self.extra,
                    *(flag for flag in language_flags() if not flag.startswith("-O")),
                    f"-DTF_SM={sm}",
                    f"-arch=sm_{sm}a",
                    *self.mode,
                    f"-I{self.cutlass.include}",
                    f"-I{paths.kernels_dir()}",
                    "question.cu",
                    "-o",
                    "answer.ptx",
                ]
            )
            try:
                (room / "question.cu").write_text("\n".join(lines) + "\n", encoding="utf-8")
                log = room / "log.txt"
                ran = run_group(command, cwd=room, log=log, timeout_s=self.timeout_s, env=self.compiler.env)
                text = log.read_text(encoding="utf-8", errors="replace")
                if ran.timed_out:
                    raise ToolchainError(
                        f"nvcc gave no answer about {len(questions)} tactics in {self.timeout_s:g} s: ask about fewer"
                    )
                if ran.returncode == 0:
                    return self._read(room / "answer.ptx", questions), text
            except OSError as error:
                raise ToolchainError(f"the oracle cannot run {self.compiler.nvcc}: {error.strerror or error}") from None
        if is_machine_failure(text) or "error" not in text:
            raise ToolchainError(f"nvcc failed, and not because of a tactic: {first_error(text)}")
        return None, text

    def _read(self, ptx: Path, questions: Sequence[Question]) -> dict[Question, OracleAnswer]:
        """The initialisers of the .global arrays; PTX leaves trailing zero bytes out."""
        answers: dict[Question, OracleAnswer] = {}
        for number, size, values in _ANSWER.findall(ptx.read_text(encoding="utf-8")):
            raw = bytes(int(value) for value in values.split(",")).ljust(int(size), b"\0")
            f = struct.unpack(f"<{_FIELDS}i", raw[: 4 * _FIELDS])
            question = questions[int(number)]
            answer = OracleAnswer(f[0], f[1], f[2], f[3], f[7], (f[8], f[9]))
            starved = _starved(question.spec, f[0], f[10], f[11])
            answers[question] = OracleAnswer(error=starved) if starved else answer
        if len(answers) != len(questions):
            raise ToolchainError(
                f"nvcc answered about {len(answers)} of {len(questions)} tactics: kernels/oracle.cuh changed?"
            )
        return answers


class _Bodies(_Types):
    """Asks about bodies: nothing is answered but refusals."""

    macro = "TF_ORACLE_BODY"
    batch = BODIES
    mode = ("-ptx", "-fdevice-syntax-only")

    def _read(self, ptx: Path, questions: Sequence[Question]) -> dict[Question, OracleAnswer]:
        return dict.fromkeys(questions, OracleAnswer())


#: The first line of every file, so that question n stands on line n + 2.
_INCLUDE = '#include "oracle.cuh"'


def _starved(spec: KernelSpec, stages: int, room_a: int, room_b: int) -> str:
    """CUTLASS instantiates some tiles with less room for scale factors than the tile has: those would be wrong."""
    vector = get_format(spec.format).scale_vector
    if vector is None:
        return ""
    m, n, k = spec.tactic.tile
    for name, rows, room in (("A", m, room_a // stages), ("B", n, room_b // stages)):
        if room < rows * -(-k // vector):
            return (
                f"instantiates with {room:,} B a stage for the {rows * -(-k // vector):,} B of {name}'s scale factors"
            )
    return ""


def _refusals(log: str, questions: Sequence[Question]) -> dict[Question, OracleAnswer]:
    """Tactics that the compiler's own traces blame, each with the first real message of its traces."""
    blocks: dict[int, list[str]] = {}
    block: list[str] = []
    for line in log.splitlines():
        if re.search(r"\berror\s*:", line):
            block = []
        block.append(line)
        found = _LINE.search(line)
        if found:
            number = int(found[1] or found[2]) - 2
            if 0 <= number < len(questions):
                blocks.setdefault(number, []).extend(block)
                block = []
    return {questions[number]: OracleAnswer(error=first_error("\n".join(text))) for number, text in blocks.items()}
