"""Measuring one tactic, step by step: inputs, check, time, check again. Which device does it is a subclass's.

:class:`~tileforge.measure.cuda.CudaBackend` runs compiled kernels on a GPU;
:class:`~tileforge.measure.host.HostBackend` runs pretend kernels on the CPU, so that every line here is tested
without a GPU. Imports torch.
"""

from __future__ import annotations

import contextlib
import gc
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from tileforge.measure.check import Checked, check, tolerance
from tileforge.measure.inputs import Inputs, make_inputs, operand_bytes, set_count, working_bytes
from tileforge.measure.protocol import Phase
from tileforge.measure.reference import reference
from tileforge.measure.result import LAUNCH_FAILED, NOT_MEASURED, OUT_OF_MEMORY, WRONG_RESULT, Measurement
from tileforge.measure.sweep import problem_text
from tileforge.problem import GroupedGemm
from tileforge.tactic import Tactic

#: Tactics whose graph and workspace are kept while their problem lasts, for interleaved rounds.
_KEPT = 16

Launch = Callable[[int], None]


class KernelFailure(Exception):
    """A tactic that cannot be measured, with its class; the device is fine."""

    def __init__(self, status: str, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass
class Held:
    """The current problem on the device."""

    text: str
    inputs: Inputs
    reference: torch.Tensor


@dataclass
class Prepared:
    """A tactic that has passed its check, ready to be timed: now, and again when more samples are asked for."""

    launch: Launch
    clock: Any = None


class TorchBackend(ABC):
    """See :class:`~tileforge.measure.protocol.Backend`; made and used inside the worker process."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.dead = False
        self._held: Held | None = None
        self._prepared: OrderedDict[tuple[str, str], Prepared] = OrderedDict()

    # What a device must be able to do.

    @abstractmethod
    def facts(self) -> dict[str, Any]: ...

    @abstractmethod
    def free_memory(self) -> int:
        """Bytes that inputs may take at most."""

    @abstractmethod
    def launcher(self, inputs: Inputs, tactic: Tactic, kernel: Path | None) -> Launch:
        """Makes the tactic ready to run. Raises KernelFailure. The launches themselves may raise it too."""

    @abstractmethod
    def capture(self, launch: Launch, sets: int) -> Any:
        """Warms up and makes what :meth:`samples` replays."""

    @abstractmethod
    def samples(self, clock: Any, count: int) -> tuple[list[float], dict[str, Any]]:
        """``count`` times in us per call, and the conditions they were taken in."""

    @abstractmethod
    def synchronize(self) -> None:
        """Waits for what was launched. Raises RuntimeError when a kernel failed while it ran."""

    def scope(self) -> contextlib.AbstractContextManager[Any]:
        """Where all work is enqueued."""
        return contextlib.nullcontext()

    def floor_us(self, problem: GroupedGemm) -> float:
        """No honest time is below this."""
        return 0.0

    def release(self) -> None:
        """Gives unused device memory back."""
        gc.collect()

    # The steps.

    def measure(
        self, problem: GroupedGemm, tactic: Tactic, kernel: Path | None, samples: int, phase: Phase
    ) -> Measurement:
        phase("inputs")
        with self.scope():
            try:
                held = self.hold(problem)
            except KernelFailure as failure:
                return Measurement.failed(tactic, failure.status, str(failure))
            try:
                return self._measure(held, tactic, kernel, samples, phase)
            except KernelFailure as failure:
                self.dead = not self._alive()
                return Measurement.failed(tactic, failure.status, str(failure))
            except torch.OutOfMemoryError as error:
                self._prepared.clear()
                self.release()
                return Measurement.failed(tactic, OUT_OF_MEMORY, f"not measured: {_first_line(error)}")
            except RuntimeError as error:  # a CUDA error; most kinds take the context with them
                self.dead = True
                return Measurement.failed(tactic, LAUNCH_FAILED, _first_line(error))

    def _measure(self, held: Held, tactic: Tactic, kernel: Path | None, samples: int, phase: Phase) -> Measurement:
        phase("check")
        key = (tactic.id, str(kernel))
        prepared = self._prepared.get(key)
        if prepared is None:
            prepared = Prepared(self.launcher(held.inputs, tactic, kernel))
            held.inputs.sets[0].output.poison()
            prepared.launch(0)
            checked = self._check(held, 0)
            if not checked.ok:
                return Measurement.failed(tactic, WRONG_RESULT, checked.message, error=checked.error)
            if not held.inputs.problem.m:  # nothing is launched, so there is nothing to time
                return Measurement.failed(tactic, NOT_MEASURED, "M = 0: nothing to launch, and nothing was written")
            self._prepared[key] = prepared
            while len(self._prepared) > _KEPT:
                self._prepared.popitem(last=False)
        self._prepared.move_to_end(key)

        phase("time")
        if prepared.clock is None:
            prepared.clock = self.capture(prepared.launch, len(held.inputs.sets))
        for operands in held.inputs.sets:
            operands.output.poison()
        raw, conditions = self.samples(prepared.clock, samples)
        # Once more on what the timed calls left: launched back to back, a kernel can be wrong that was right alone.
        checked, equal = self._check_all(held)
        if not checked.ok:
            del self._prepared[key]
            message = f"after repeated calls: {checked.message}"
            return Measurement.failed(tactic, WRONG_RESULT, message, error=checked.error)
        conditions |= {"sets": len(held.inputs.sets), "cold": round(min(held.inputs.cold, 1e6), 1)}
        if not equal:
            conditions["deterministic"] = False
        floor = self.floor_us(held.inputs.problem)
        return Measurement.of(tactic, raw, floor_us=floor, error=checked.error, conditions=conditions)

    def hold(self, problem: GroupedGemm) -> Held:
        """The problem's operands and reference, made once; the problem before it is let go first."""
        text = problem_text(problem)
        if self._held is not None and self._held.text == text:
            return self._held
        self._prepared.clear()
        self._held = None
        self.release()
        l2_bytes, memory = int(self.facts().get("l2_bytes") or 0), self.free_memory()
        sets = set_count(problem, l2_bytes, memory)
        if not sets:
            needed = operand_bytes(problem) + working_bytes(problem)
            raise KernelFailure(
                OUT_OF_MEMORY,
                f"not measured: the problem needs {needed / 2**30:.1f} GiB of device memory, "
                f"{memory / 2**30:.1f} GiB are free",
            )
        try:
            inputs = make_inputs(problem, self.device, sets=sets, l2_bytes=l2_bytes)
            self._held = Held(text, inputs, reference(inputs))
            self.synchronize()
        except torch.OutOfMemoryError as error:
            self._held = None
            self.release()
            raise KernelFailure(OUT_OF_MEMORY, f"not measured: {_first_line(error)}") from None
        except RuntimeError as error:
            self.dead = True
            raise KernelFailure(NOT_MEASURED, f"inputs could not be made: {_first_line(error)}") from None
        return self._held

    def _check(self, held: Held, index: int) -> Checked:
        self.synchronize()
        problem = held.inputs.problem
        return check(held.inputs.sets[index].output, held.reference, held.inputs.sizes, tolerance(problem))

    def _check_all(self, held: Held) -> tuple[Checked, bool]:
        """All sets' outputs; the sets hold equal operands, so bits equal to the first one's need no comparing."""
        checked, equal = self._check(held, 0), True
        first = held.inputs.sets[0].output.bits
        for index, operands in enumerate(held.inputs.sets[1:], 1):
            if not checked.ok:
                break
            if not torch.equal(operands.output.bits, first):
                checked, equal = self._check(held, index), False
        return checked, equal

    def _alive(self) -> bool:
        try:
            self.synchronize()
        except RuntimeError:
            return False
        return True

    def baseline(self, name: str, problem: GroupedGemm | None, samples: int) -> dict[str, Any]:
        raise NotImplementedError

    def close(self) -> None:
        self._prepared.clear()
        self._held = None


def _first_line(error: BaseException) -> str:
    """A CUDA error's own line, without torch's advice on debugging."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
