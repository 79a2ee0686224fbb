"""The builder: kernels out of specifications, in parallel, each at most once. Needs no GPU."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from tileforge import paths
from tileforge.arch import get_arch
from tileforge.errors import BuildError, InputError, ToolchainError
from tileforge.toolchain.cache import KernelCache, file_facts, key_inputs, key_of, write_meta
from tileforge.toolchain.compiler import Compiler, find_compiler
from tileforge.toolchain.cutlass import Cutlass, find_cutlass
from tileforge.toolchain.diagnose import first_error, is_machine_failure
from tileforge.toolchain.kernel import Failure, Kernel
from tileforge.toolchain.lean import lean_digest, write_lean
from tileforge.toolchain.machine import default_jobs
from tileforge.toolchain.overlay import overlay_digest, write_overlay
from tileforge.toolchain.process import Ran, run_group
from tileforge.toolchain.spec import KernelSpec, compile_flags, kernel_command, sources_digest
from tileforge.toolchain.usage import gemm_usage
from tileforge.toolchain.verify import NO_ANSWER, query

COMPILE_FAILED, TIMEOUT = "compile_failed", "timeout"
MACHINE_HINT = " (not remembered: this looks like the machine's memory, disk or installation; try fewer jobs)"
_LOG_KEPT = 200_000


@dataclass(frozen=True)
class BuildOutcome:
    """What became of one spec. ``failure`` is "", ``compile_failed`` or ``timeout``; ``message`` one line.

    ``cached``: the kernel (or the known failure) was there before. ``log``: the compiler's whole output, when
    the compile failed and that is kept.
    """

    spec: KernelSpec
    kernel: Kernel | None
    failure: str = ""
    message: str = ""
    seconds: float = 0.0
    cached: bool = False
    log: Path | None = None

    @property
    def ok(self) -> bool:
        return self.kernel is not None


class Builder:
    """Builds and finds kernels.

    ``cutlass`` and ``compiler`` are found when not given; a machine that lacks one of them can still look up
    kernels that were built elsewhere. ``cache_dir`` is the directory of entries (default: ``kernels`` in
    tileforge's cache), ``jobs`` the compiles at once (default: by cores and memory), ``timeout_s`` what one
    compile may take (a kernel takes 40 to 100 s on one core).
    """

    def __init__(
        self,
        cutlass: Cutlass | None = None,
        compiler: Compiler | None = None,
        *,
        cache_dir: Path | None = None,
        jobs: int | None = None,
        timeout_s: float = 900.0,
        kernels_dir: Path | None = None,
    ) -> None:
        if jobs is not None and jobs < 1:
            raise InputError(f"jobs = {jobs} is not a number of compiles: use 1 or more")
        if timeout_s <= 0:
            raise InputError(f"a time-out of {timeout_s:g} s leaves no time to compile: use a positive number")
        self.cache = KernelCache(cache_dir)
        self.jobs = jobs
        self.timeout_s = timeout_s
        self.kernels_dir = kernels_dir or paths.kernels_dir()
        self.cutlass, self.compiler = cutlass, compiler
        problems: list[str] = []
        if cutlass is None:
            try:
                self.cutlass = find_cutlass()
            except ToolchainError as error:
                # What was named and is not there is a mistake to report now, not a machine without a toolchain.
                if paths.variable("TILEFORGE_CUTLASS"):
                    raise
                problems.append(str(error))
        if compiler is None:
            try:
                self.compiler = find_compiler()
            except ToolchainError as error:
                if paths.variable("TILEFORGE_NVCC"):
                    raise
                problems.append(str(error))
                # Headers alone build nothing, and kernels that were brought here may be of others than those that
                # happen to be here: pip brings 4.2.0's along with tileforge.
                self.cutlass = cutlass
        #: Why nothing can be built here; None when everything is there.
        self.missing = ToolchainError("; ".join(problems)) if problems else None
        self._index: tuple[int, dict[KernelSpec, list[Kernel]]] = (-1, {})
        self._sources: dict[tuple[str, bool], str] = {}

    @property
    def cutlass_version(self) -> str | None:
        """Of the headers that a build takes; where nothing can build, that of the newest kernels brought here."""
        if self.cutlass is not None:
            return self.cutlass.version
        kernels = (entry for entry in self.cache.entries() if isinstance(entry, Kernel))
        known = {kernel.cutlass for kernel in kernels if not kernel.spec.emulated}
        return max(known, key=lambda version: [int(part) for part in version.split(".")], default=None)

    def inputs(self, spec: KernelSpec) -> dict[str, Any]:
        """Everything that names the kernel of ``spec`` here. Raises ToolchainError without a toolchain."""
        if self.cutlass is None or self.compiler is None:
            raise self.missing or ToolchainError("no toolchain here")
        return key_inputs(
            spec,
            headers=self.cutlass.digest,
            sources=self._digest(spec),
            compiler=f"nvcc {self.compiler.build}",
            flags=compile_flags(spec),
            cutlass_version=self.cutlass.version,
            lean=lean_digest(self.kernels_dir),
            overlay=overlay_digest() if spec.emulated else "",
        )

    def key(self, spec: KernelSpec) -> str:
        """The key of what a build of ``spec`` would make here. Raises ToolchainError without a toolchain."""
        return key_of(self.inputs(spec))

    def lookup(self, spec: KernelSpec) -> Kernel | None:
        """The kernel if it has been built.

        With a toolchain: exactly what this toolchain would build. Without one: any kernel of this spec and of
        these kernel sources and edited headers, whatever compiler made it, newest CUTLASS first (of ``cutlass``, if
        that is known).
        """
        if self.cutlass is not None and self.compiler is not None:
            entry = self.cache.get(self.key(spec))
            return entry if isinstance(entry, Kernel) else None
        ours = {"sources": self._digest(spec), "lean": lean_digest(self.kernels_dir)}
        if spec.emulated:
            ours["overlay"] = overlay_digest()
        found = [
            kernel
            for kernel in self._carried().get(spec, [])
            if all(kernel.meta["inputs"].get(name) == digest for name, digest in ours.items())
            and (self.cutlass is None or kernel.meta["inputs"]["headers"] == self.cutlass.digest)
        ]
        return max(found, key=lambda k: ([int(n) for n in k.cutlass.split(".")], k.key), default=None)

    def _carried(self) -> dict[KernelSpec, list[Kernel]]:
        """All kernels in the cache by spec; read again only when the directory changed."""
        try:
            changed = self.cache.root.stat().st_mtime_ns
        except OSError:
            return {}
        if self._index[0] != changed:
            kernels: dict[KernelSpec, list[Kernel]] = {}
            for entry in self.cache.entries():
                if isinstance(entry, Kernel):
                    kernels.setdefault(entry.spec, []).append(entry)
            self._index = (changed, kernels)
        return self._index[1]

    def build(
        self,
        specs: Iterable[KernelSpec],
        on_done: Callable[[BuildOutcome], None] | None = None,
        *,
        retry_failed: bool = False,
    ) -> list[BuildOutcome]:
        """One outcome for each spec, in the order given; compiles start in that order.

        ``on_done`` is called in this thread as each is known. A failure that is on record is not tried again
        unless ``retry_failed`` (or, for a time-out, unless more time is allowed now). Ctrl-C kills the running
        compiles and leaves the kernels finished so far. Raises BuildError when a kernel is missing and nothing
        here can build it, or when the cache cannot be written.
        """
        self._sources.clear()  # sources may have been edited since the last call
        wanted = list(specs)
        outcomes: dict[KernelSpec, BuildOutcome] = {}
        todo: list[KernelSpec] = []
        for spec in dict.fromkeys(wanted):
            known = self._known(spec, retry_failed)
            if known is None:
                todo.append(spec)
                continue
            outcomes[spec] = known
        if todo and self.missing is not None:
            raise BuildError(
                f"{len(todo)} of {len(set(wanted))} kernels are missing (first: {todo[0].id}) and nothing here can "
                f"build them: {self.missing}; or build them on another machine with `tileforge build --pack FILE` "
                "and bring them here with `tileforge build --unpack FILE`"
            )
        for outcome in outcomes.values():
            if on_done:
                on_done(outcome)
        if todo:
            self.cache.sweep()
            outcomes.update(self._build_all(todo, on_done))
        return [outcomes[spec] for spec in wanted]

    def _build_all(
        self, specs: Sequence[KernelSpec], on_done: Callable[[BuildOutcome], None] | None
    ) -> dict[KernelSpec, BuildOutcome]:
        stop = threading.Event()
        outcomes: dict[KernelSpec, BuildOutcome] = {}
        jobs = self.jobs or default_jobs({spec.arch for spec in specs})
        pool = ThreadPoolExecutor(min(jobs, len(specs)), thread_name_prefix="tileforge-build")
        pending: set[Future[BuildOutcome]] = {pool.submit(self._build, spec, stop) for spec in specs}
        try:
            while pending:
                done, pending = wait(pending, return_when=FIRST_COMPLETED)
                for future in done:
                    outcome = future.result()
                    outcomes[outcome.spec] = outcome
                    if on_done:
                        on_done(outcome)
        finally:
            # Left by an exception (Ctrl-C among them): running compiles are killed, waiting ones never start.
            stop.set()
            pool.shutdown(wait=True, cancel_futures=True)
        return outcomes

    def _known(self, spec: KernelSpec, retry_failed: bool) -> BuildOutcome | None:
        kernel = self.lookup(spec)
        if kernel is not None:
            return BuildOutcome(spec, kernel, cached=True)
        if self.cutlass is None or self.compiler is None or retry_failed:
            return None
        entry = self.cache.get(self.key(spec))
        if not isinstance(entry, Failure) or entry.failure == TIMEOUT and self.timeout_s > entry.timeout_s:
            return None
        return BuildOutcome(spec, None, entry.failure, entry.message, cached=True, log=entry.log)

    def _build(self, spec: KernelSpec, stop: threading.Event) -> BuildOutcome:
        """Compiles one kernel; runs in a thread of the pool."""
        work = self.cache.workspace()
        try:
            entry, log = work / "entry", work / "log.txt"
            entry.mkdir()
            ran, lean = self._compile(spec, entry / "kernel.so", log, stop)
            text = log.read_text(encoding="utf-8", errors="replace")
            info, failure, message = self._judge(spec, ran, entry / "kernel.so", text)
            message = f"{spec.tactic.kernel_id}: {message}" if failure else ""
            if self._read_digest(spec) != self._digest(spec):
                raise BuildError(f"the kernel sources in {self.kernels_dir} changed during the build: run it again")
            if failure == COMPILE_FAILED and (is_machine_failure(text) or NO_ANSWER in message):
                return BuildOutcome(spec, None, failure, message + MACHINE_HINT, ran.seconds)
            meta = self._meta(spec, ran)
            if failure:
                meta |= {"failure": failure, "message": message, "timeout_s": self.timeout_s}
                (entry / "kernel.so").unlink(missing_ok=True)
                (entry / "log.txt").write_text(text[-_LOG_KEPT:], encoding="utf-8")
            else:
                meta |= {"info": info, "lean": lean, **gemm_usage(text), **file_facts(entry / "kernel.so")}
            write_meta(entry, meta)
            stored = self.cache.commit(entry, key_of(meta["inputs"]))
            if isinstance(stored, Kernel):
                return BuildOutcome(spec, stored, seconds=ran.seconds)
            return BuildOutcome(spec, None, failure, message, ran.seconds, log=stored.log)
        except OSError as error:
            raise BuildError(f"cannot store kernels in {self.cache.root}: {error.strerror}") from None
        finally:
            shutil.rmtree(work, ignore_errors=True)

    def _compile(self, spec: KernelSpec, output: Path, log: Path, stop: threading.Event) -> tuple[Ran, bool]:
        """Compiles with the headers that are quick to read; what fails is tried, and judged, with the original ones.

        Returns the run that counts, and whether it was with the quick ones (lean.py).
        """
        assert self.cutlass is not None and self.compiler is not None
        lean, before = log.parent / "lean", []
        if spec.emulated:
            before.append(log.parent / "overlay")
            write_overlay(self.cutlass, before[0])
        if write_lean(self.cutlass.include, lean, self.kernels_dir, get_arch(spec.arch).kernels):
            ran = self._run(spec, output, log, stop, [*before, lean])
            if not ran.returncode or is_machine_failure(log.read_text(encoding="utf-8", errors="replace")):
                return ran, True
        return self._run(spec, output, log, stop, before), False

    def _run(self, spec: KernelSpec, output: Path, log: Path, stop: threading.Event, before: Sequence[Path]) -> Ran:
        assert self.cutlass is not None and self.compiler is not None
        command = kernel_command(spec, self.cutlass.include, self.kernels_dir, output, before)
        try:
            ran = run_group(
                self.compiler.command(command),
                cwd=log.parent,
                log=log,
                timeout_s=self.timeout_s,
                env=self.compiler.env,
                stop=stop,
            )
        except OSError as error:
            raise ToolchainError(f"{self.compiler.nvcc} cannot be started: {error.strerror}") from None
        if ran.returncode is None and not ran.timed_out:
            raise BuildError(f"{spec.id}: the build was stopped")
        return ran

    def _judge(self, spec: KernelSpec, ran: Ran, output: Path, text: str) -> tuple[dict[str, int], str, str]:
        """(what the kernel says of itself, failure class, message)."""
        if ran.timed_out:
            return {}, TIMEOUT, f"compiling took longer than {self.timeout_s:g} s"
        if ran.returncode:
            return {}, COMPILE_FAILED, first_error(text)
        try:
            return query(output, spec), "", ""
        except BuildError as error:
            return {}, COMPILE_FAILED, str(error)

    def _meta(self, spec: KernelSpec, ran: Ran) -> dict[str, Any]:
        assert self.cutlass is not None and self.compiler is not None
        return {
            "inputs": self.inputs(spec),
            "seconds": round(ran.seconds, 2),
            "cpu_seconds": round(ran.cpu_s, 2),
            "peak_bytes": ran.peak_bytes,
            "cutlass_origin": self.cutlass.origin,
            "compiler_origin": self.compiler.origin,
            "built": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        }

    def _digest(self, spec: KernelSpec) -> str:
        which = (spec.arch, spec.emulated)
        if which not in self._sources:
            self._sources[which] = self._read_digest(spec)
        return self._sources[which]

    def _read_digest(self, spec: KernelSpec) -> str:
        return sources_digest(spec.arch, self.kernels_dir, emulated=spec.emulated)
