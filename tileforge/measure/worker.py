"""The bench in front of a worker process: waits with a time-out, kills, blames, restarts.

A tactic that kills its process, hangs it or loses its CUDA context costs itself and nothing else: what was
measured is in the caller's hands already, and the next call starts a new worker.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing import Pipe
from typing import TYPE_CHECKING, Any, TypeVar

from tileforge.errors import DeviceError
from tileforge.measure.messages import Baseline, Call, InPhase, Measure, Ready, Refused, Reply, Start
from tileforge.measure.result import CRASHED, NOT_MEASURED, OUT_OF_MEMORY, OWN, TIMEOUT, Measurement
from tileforge.problem import GroupedGemm
from tileforge.tactic import Tactic

if TYPE_CHECKING:
    from tileforge.toolchain import Kernel

_Bench = TypeVar("_Bench", bound="WorkerBench")

#: Requests between two workers: minutes of measuring, against the seconds that a new context takes.
RECYCLE = 256
#: What a kernel that ran before, or somebody outside, may have caused as well.
_DOUBTFUL = frozenset({*OWN, OUT_OF_MEMORY})


@dataclass(frozen=True)
class Timeouts:
    """Seconds that each phase may take. Only ``check`` and ``time`` are the tactic's own doing.

    ``step``: phases of other names, which a called method of a backend's own goes through.
    """

    start: float = 180.0  # torch's import and the CUDA context, on a cold machine
    inputs: float = 300.0  # operands and reference of a new problem
    check: float = 60.0  # loading the kernel, its first launch, comparing
    time: float = 120.0
    baseline: float = 180.0
    step: float = 60.0
    close: float = 30.0  # the driver takes seconds to end a process whose kernel hangs


@dataclass(frozen=True)
class Lost:
    """How a worker was lost: ``hung`` or dead, in which phase ("" = before it took the request up)."""

    phase: str
    hung: bool
    message: str


class WorkerProcess:
    """One process and its pipe. Not restarted: a new one is made."""

    def __init__(self, backend: str, options: Mapping[str, Any], timeouts: Timeouts) -> None:
        """Starts it and waits until its backend is ready. Raises DeviceError when it is not."""
        self._timeouts = timeouts
        self._connection, theirs = Pipe()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)}
        code = f"from tileforge.measure.child import main; main({theirs.fileno()}, {os.getpid()})"
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-c", code],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,  # a process group of its own: killable as a whole, deaf to our Ctrl-C
            )
        finally:
            theirs.close()
        try:
            self._connection.send(Start(backend, dict(options)))
            answer = self._receive(timeouts.start)
        except (EOFError, OSError):
            raise DeviceError(f"the measuring worker did not start: {self.kill()}") from None
        except BaseException:
            self.kill()
            raise
        if isinstance(answer, Ready):
            self.facts = answer.facts
            return
        self.kill()
        if isinstance(answer, Refused):
            raise DeviceError(answer.message)
        raise DeviceError(f"the measuring worker did not start within {timeouts.start:g} s: look at nvidia-smi")

    @property
    def pid(self) -> int:
        return self._process.pid

    def alive(self) -> bool:
        """Whether it can take a request. Drops anything that it still had to say."""
        try:
            while self._connection.poll(0):
                self._connection.recv()
        except (EOFError, OSError):
            return False
        return True

    def ask(self, request: Measure | Baseline | Call) -> Reply | Lost:
        """Sends a request and waits for its reply, each phase within its own time-out.

        When it returns Lost the process has been killed. An interrupt (Ctrl-C) kills it too, and goes on up.
        """
        phase = ""
        try:
            self._connection.send(request)
            limit = self._timeouts.inputs
            deadline = time.monotonic() + limit
            while True:
                answer = self._receive(max(0.0, deadline - time.monotonic()))
                if answer is None:
                    self.kill()
                    return Lost(phase, True, f"no answer from {phase or 'the worker'} within {limit:g} s: killed")
                if getattr(answer, "sequence", None) != request.sequence:
                    continue
                if isinstance(answer, InPhase):
                    phase = answer.phase
                    limit = getattr(self._timeouts, phase, self._timeouts.step)
                    deadline = time.monotonic() + limit
                elif isinstance(answer, Reply):
                    return answer
        except (EOFError, OSError):  # its end of the pipe is closed: it is dead or dying
            return Lost(phase, False, f"the worker died in {phase or 'idleness'}: {self.kill()}")
        except BaseException:
            self.kill()
            raise

    def _receive(self, seconds: float) -> Any:
        """The next message, None when there is none in time."""
        return self._connection.recv() if self._connection.poll(seconds) else None

    def kill(self) -> str:
        """Kills the process group if need be. Returns how the process ended, in one line."""
        self._connection.close()
        if self._process.returncode is None:  # not reaped, so the group's id is still ours, dead leader or not
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
        try:
            code = self._process.wait(self._timeouts.close)
        except subprocess.TimeoutExpired:
            return f"process {self._process.pid} does not die: the driver holds it"
        how = f"exit code {code}" if code >= 0 else f"signal {_signal_name(-code)}"
        last = self._last_words()
        return f"{how}{': ' if last else ''}{last}"

    def close(self) -> None:
        """Lets it end by itself, then makes sure."""
        self._connection.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(self._timeouts.close)
        if self._process.returncode is None:
            self.kill()
        self._log.close()

    def _last_words(self) -> str:
        """The fatal error or the last line that it printed."""
        with contextlib.suppress(OSError, ValueError):
            self._log.seek(max(0, self._log.seek(0, os.SEEK_END) - 8192))
            lines = [line.strip() for line in self._log.read().decode(errors="replace").splitlines() if line.strip()]
            self._log.close()
            fatal = [line for line in lines if line.startswith("Fatal Python error")]
            if lines:
                return (fatal or lines)[-1][:200]
        return ""


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)


class WorkerBench:
    """A :class:`~tileforge.measure.protocol.Bench` whose backend runs in a worker process.

    ``backend`` is ``"package.module:Class"``, made in the worker with ``options`` as keyword arguments, which
    must pickle. ``restarts`` counts workers lost or given up so far. After ``recycle`` tactics a worker is replaced by
    a new one, so that nothing that kernels and their libraries leave behind adds up.

    A kernel can leave a context in which those after it fail. So a failure is a tactic's own only when the last kernel
    that was right, the canary, still is right after it in the same worker; otherwise the tactic is measured again in a
    new worker, and what it does there counts.
    """

    def __init__(
        self,
        backend: str,
        options: Mapping[str, Any] | None = None,
        *,
        timeouts: Timeouts | None = None,
        recycle: int = RECYCLE,
    ) -> None:
        self._backend, self._options = backend, dict(options or {})
        self._recycle = recycle
        self._timeouts = timeouts or Timeouts()
        self._worker: WorkerProcess | None = None
        self._facts: dict[str, Any] | None = None
        self._sequence = 0
        self._canary: tuple[GroupedGemm, Tactic, Kernel | None] | None = None
        self._ran = 0  # requests that this worker has taken up
        self._lost: Lost | None = None  # how the last request cost its worker
        self.restarts = 0

    def start(self) -> WorkerProcess:
        """A worker that can take a request, a new one if need be. Raises DeviceError when there is no device."""
        if self._worker is not None and not self._worker.alive():
            self._drop()
        if self._worker is None:
            self._worker = WorkerProcess(self._backend, self._options, self._timeouts)
            self._facts = self._worker.facts
            self._ran = 0
        return self._worker

    def facts(self) -> dict[str, Any]:
        if self._facts is None:
            self.start()
        return dict(self._facts or {})

    def measure(
        self, problem: GroupedGemm, tactic: Tactic, kernel: Kernel | None = None, samples: int = 7
    ) -> Measurement:
        if self._ran >= self._recycle:
            self.renew()
        self.start()
        alone = not self._ran
        found = self._measure(problem, tactic, kernel, samples)
        doubtful = found.status in _DOUBTFUL or self._lost is not None
        if doubtful and not self._its_own(alone):
            self._drop()
            found = self._measure(problem, tactic, kernel, samples)
        if found.ok:
            self._canary = (problem, tactic, kernel)
        return found

    def _its_own(self, alone: bool) -> bool:
        """Whether the failure just seen is the tactic's own doing. ``alone``: nothing ran in its worker before it."""
        if alone:  # a process may be killed from outside once; twice in a row is no accident
            return self._lost is None or self._lost.hung
        if self._worker is None or self._canary is None:
            return False
        if self._measure(*self._canary, samples=1).ok:
            return True
        self._canary = None  # it may be what spoilt the context
        return False

    def _measure(self, problem: GroupedGemm, tactic: Tactic, kernel: Kernel | None, samples: int) -> Measurement:
        self._sequence += 1
        answer = self._ask(Measure(self._sequence, problem, tactic, kernel.path if kernel else None, samples))
        if isinstance(answer, Lost):
            mine = answer.phase in ("check", "time")
            status = (TIMEOUT if answer.hung else CRASHED) if mine else NOT_MEASURED
            return Measurement.failed(tactic, status, answer.message)
        assert answer.measurement is not None
        return answer.measurement

    def baseline(self, name: str, problem: GroupedGemm | None = None, samples: int = 7) -> dict[str, Any]:
        """Times ``copy`` or ``grouped_mm`` (:mod:`tileforge.measure.baselines`). Raises DeviceError if it fails."""
        self._sequence += 1
        answer = self._ask(Baseline(self._sequence, name, problem, samples))
        if isinstance(answer, Lost):
            raise DeviceError(f"baseline {name}: {answer.message}")
        if answer.values is None:
            raise DeviceError(f"baseline {name}: {answer.error}")
        return answer.values

    def call(self, method: str, **arguments: Any) -> dict[str, Any] | Lost:
        """What the backend's ``method`` answers; Lost, with the phase, when it cost the worker.

        Arguments and answer must pickle. Raises DeviceError with the backend's line when it refuses.
        """
        self._sequence += 1
        answer = self._ask(Call(self._sequence, method, arguments))
        if isinstance(answer, Lost):
            return answer
        if answer.values is None:
            raise DeviceError(answer.error)
        return answer.values

    def _ask(self, request: Measure | Baseline | Call) -> Reply | Lost:
        answer = self.start().ask(request)
        if isinstance(answer, Lost) and not answer.phase and not answer.hung:
            self._drop()  # it died between two requests: nobody's fault, so once more
            answer = self.start().ask(request)
        self._ran += 1
        self._lost = answer if isinstance(answer, Lost) else None
        if isinstance(answer, Lost) or answer.dead:
            self._drop()
        return answer

    def _drop(self) -> None:
        if self._worker is not None:
            self._worker.kill()
            self._worker = None
            self.restarts += 1

    def renew(self) -> None:
        self.close()

    def close(self) -> None:
        """A call after it starts another worker."""
        if self._worker is not None:
            self._worker.close()
            self._worker = None

    def __enter__(self: _Bench) -> _Bench:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
