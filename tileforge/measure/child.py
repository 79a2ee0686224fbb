"""The worker process: owns the device, answers one request at a time, and may die at any of them.

It is started by :mod:`tileforge.measure.worker` as a fresh interpreter in a session of its own. That is what
``multiprocessing``'s spawn does too, but spawn runs the caller's main module again, which tunes a second time
when a user's script has no ``__main__`` guard.
"""

from __future__ import annotations

import faulthandler
import importlib
import os
import threading
import time
import traceback
from multiprocessing.connection import Connection
from typing import Any

from tileforge.errors import InputError, TileforgeError
from tileforge.measure.messages import Baseline, Call, InPhase, Measure, Ready, Refused, Reply, Start
from tileforge.measure.protocol import Owner
from tileforge.measure.result import CRASHED, Measurement


def main(fd: int, parent: int) -> None:
    """Serves requests of process ``parent`` from the connection on file descriptor ``fd`` until it closes."""
    faulthandler.enable()
    threading.Thread(target=_die_with_parent, args=(parent,), daemon=True).start()
    connection = Connection(fd)
    try:
        start = connection.recv()
        assert isinstance(start, Start)
        backend = _make(start)
        connection.send(Ready(backend.facts()))
    except TileforgeError as error:
        connection.send(Refused(str(error)))
        return
    except Exception as error:
        traceback.print_exc()
        connection.send(Refused(f"the measuring backend failed to start: {_line(error)}"))
        return
    dead = False
    while not dead:
        try:
            request = connection.recv()
        except (EOFError, OSError):
            break
        reply = _answer(backend, connection, request)
        connection.send(reply)
        dead = reply.dead
    if not dead:  # a lost context can hang on release; the driver cleans up after the process
        backend.close()


def _make(start: Start) -> Owner:
    module, _, name = start.backend.partition(":")
    backend: Owner = getattr(importlib.import_module(module), name)(**start.options)
    return backend


def _answer(backend: Any, connection: Connection, request: Any) -> Reply:
    def phase(name: str) -> None:
        connection.send(InPhase(request.sequence, name))

    if isinstance(request, Measure):
        try:
            measurement = backend.measure(request.problem, request.tactic, request.kernel, request.samples, phase)
            return Reply(request.sequence, measurement, dead=backend.dead)
        except Exception as error:  # a bug in the backend: the state behind it is unknown, so start over
            traceback.print_exc()
            return Reply(request.sequence, Measurement.failed(request.tactic, CRASHED, _line(error)), dead=True)
    if isinstance(request, (Baseline, Call)):
        try:
            if isinstance(request, Call):
                values = getattr(backend, request.method)(phase=phase, **request.arguments)
            else:
                phase("baseline")
                values = backend.baseline(request.name, request.problem, request.samples)
            return Reply(request.sequence, values=values, dead=backend.dead)
        except Exception as error:
            if not isinstance(error, TileforgeError):
                traceback.print_exc()
            return Reply(request.sequence, error=_line(error), dead=not isinstance(error, InputError))
    raise AssertionError(f"not a request: {request!r}")


def _line(error: BaseException) -> str:
    text = str(error).strip().splitlines()
    first = text[0] if text else ""
    return first if isinstance(error, TileforgeError) else f"{type(error).__name__}: {first}"


def _die_with_parent(parent: int) -> None:
    """Ends this process when its parent is gone, also while a kernel hangs: the GPU must not stay taken."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)
