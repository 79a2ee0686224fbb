"""Pretend kernels on the CPU through the real steps: real inputs, reference, check, worker. For tests.

Imports torch. Times are the CPU's and mean nothing.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from tileforge.measure.backend import KernelFailure, Launch, TorchBackend
from tileforge.measure.inputs import GUARD_ROWS, Inputs
from tileforge.measure.quantize import dequantize
from tileforge.measure.result import LAUNCH_FAILED
from tileforge.tactic import Tactic

#: What can be planted on a pretend kernel.
BUGS = ("zeros", "nan", "unwritten", "guard", "alpha", "neighbour", "element", "late", "launch", "context", "memory")


class HostBackend(TorchBackend):
    """``bugs``: one of ``BUGS`` by tactic id; ``memory`` bytes may be used at most; ``l2_bytes`` asks for sets."""

    def __init__(self, *, bugs: Mapping[str, str] | None = None, memory: int = 4 * 2**30, l2_bytes: int = 0) -> None:
        super().__init__(torch.device("cpu"))
        self._bugs, self._memory, self._l2_bytes = dict(bugs or {}), memory, l2_bytes
        unknown = set(self._bugs.values()) - set(BUGS)
        assert not unknown, unknown

    def facts(self) -> dict[str, Any]:
        return {"name": "host", "sm": None, "sms": 1, "l2_bytes": self._l2_bytes, "fake": True, "pid": os.getpid()}

    def free_memory(self) -> int:
        return self._memory

    def synchronize(self) -> None:
        pass

    def launcher(self, inputs: Inputs, tactic: Tactic, kernel: Path | None) -> Launch:
        bug = self._bugs.get(tactic.id, "")
        if bug == "launch":
            raise KernelFailure(LAUNCH_FAILED, "the GEMM did not launch (planted)")
        launches = 0

        def launch(index: int) -> None:
            nonlocal launches
            launches += 1
            if bug == "context":
                raise RuntimeError("CUDA error: an illegal memory access was encountered (planted)\nadvice")
            if bug == "memory":
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate (planted)")
            pretend(inputs, index, bug if bug != "late" or launches > 1 else "")

        return launch

    def capture(self, launch: Launch, sets: int) -> Any:
        return launch, sets

    def samples(self, clock: Any, count: int) -> tuple[list[float], dict[str, Any]]:
        launch, sets = clock
        times = []
        for _ in range(count):
            before = time.perf_counter()
            for index in range(sets):
                launch(index)
            times.append((time.perf_counter() - before) * 1e6 / sets)
        return times, {"calls": sets}


def pretend(inputs: Inputs, index: int, bug: str = "") -> None:
    """Computes a set's output as a kernel would, rounded to the output type, with a bug if asked for."""
    problem, operands = inputs.problem, inputs.sets[index]
    output, first = operands.output.rows, 0
    for group, rows in enumerate(inputs.sizes):
        other = (group + 1) % problem.groups
        alpha = inputs.alpha[other if bug == "alpha" else group]
        base = (other if bug == "neighbour" else group) * problem.n
        b = dequantize(inputs.b, slice(base, base + problem.n))
        a = dequantize(inputs.a, slice(first, first + rows))
        output[first : first + rows] = ((a @ b.T) * alpha).to(output.dtype)
        if bug in ("zeros", "late"):
            output[first + 64 : first + min(rows, 128)] = 0
        first += rows
    last = problem.m - 1
    if bug == "nan":
        output[last, 3] = float("nan")
    elif bug == "element":
        output[last, 3] *= -1
    elif bug == "unwritten":
        operands.output.bits[GUARD_ROWS + last, 3:] = operands.output.bits[0, 3:]
    elif bug == "guard":
        operands.output.buffer[GUARD_ROWS + problem.m, 0] = 1.0
