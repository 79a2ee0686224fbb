"""Running a compiler: one process group that can be killed as a whole, its output in a file, its cost measured."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_POLL_S = 0.02
#: A compile touches 3 to 6 GB; in huge pages that takes fewer page faults, which parallel compiles otherwise queue for.
#: 16 SM90 kernels at once on 16 cores: 44.3 to 39.9 CPU-seconds each, and 1.58 to 1.44 times one kernel's wall time
#: (benchmarks/parallel_build.py, 2026-11-30, virtual machine, Xeon). Needs glibc 2.35; older ones ignore it.
_DEFAULTS = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}


@dataclass(frozen=True)
class Ran:
    """How a run ended. ``returncode`` is None when it was killed for its time or because of ``stop``.

    ``cpu_s`` and ``peak_bytes`` (largest resident set of any one process of the group that was waited for) are
    the kernel's own accounting, so they cost nothing.
    """

    returncode: int | None
    seconds: float
    cpu_s: float
    peak_bytes: int
    timed_out: bool = False


def run_group(
    command: Sequence[str],
    *,
    cwd: Path,
    log: Path,
    timeout_s: float,
    env: Mapping[str, str] | None = None,
    stop: threading.Event | None = None,
) -> Ran:
    """Runs ``command`` in a process group of its own, stdout and stderr to ``log``.

    nvcc starts a dozen programs; killing nvcc alone would leave cicc running for a minute. So the group is
    killed when ``timeout_s`` is over or when ``stop`` is set, and whenever this call is left by an exception.
    Temporary files of the compiler go to ``cwd``, so that who removes ``cwd`` removes them too. Raises OSError
    when the program cannot be started.
    """
    start = time.monotonic()
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=cwd,
            env={**_DEFAULTS, **os.environ, **(env or {}), "TMPDIR": str(cwd)},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    status: int | None = None
    timed_out = stopped = False
    try:
        while True:
            pid, status, usage = os.wait4(process.pid, os.WNOHANG)
            if pid:
                break
            timed_out = time.monotonic() - start > timeout_s
            stopped = stop is not None and stop.is_set()
            if timed_out or stopped:
                _kill_group(process.pid)
                _, status, usage = os.wait4(process.pid, 0)
                break
            time.sleep(_POLL_S)
    except BaseException:
        _kill_group(process.pid)
        process.wait()
        raise
    process.returncode = os.waitstatus_to_exitcode(status)  # Popen must not wait for it again
    return Ran(
        returncode=None if timed_out or stopped else process.returncode,
        seconds=time.monotonic() - start,
        cpu_s=usage.ru_utime + usage.ru_stime,
        peak_bytes=usage.ru_maxrss * 1024,
        timed_out=timed_out,
    )


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
