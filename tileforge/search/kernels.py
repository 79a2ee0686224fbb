"""Kernels for tactics, compiled in parallel batches ahead of the GPU, once for all problems of a job."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from tileforge.measure.result import COMPILE_FAILED, TIMEOUT, Measurement
from tileforge.problem import GroupedGemm
from tileforge.tactic import Tactic
from tileforge.toolchain.machine import default_jobs
from tileforge.toolchain.spec import KernelSpec


class Outcome(Protocol):
    """What a search reads of a ``toolchain.BuildOutcome``."""

    @property
    def spec(self) -> KernelSpec: ...
    @property
    def kernel(self) -> Any: ...
    @property
    def failure(self) -> str: ...
    @property
    def message(self) -> str: ...


class Builder(Protocol):
    """What a search asks of a ``toolchain.Builder``."""

    def build(self, specs: Sequence[KernelSpec], on_done: Callable[[Any], None] | None = None) -> Sequence[Any]: ...


class KernelSource:
    """Kernels by specification. Without a builder there are none, and a fake bench needs none."""

    def __init__(self, builder: Builder | None, arch: str) -> None:
        self.builder, self.arch = builder, arch
        self._outcomes: dict[KernelSpec, Any] = {}
        jobs = getattr(builder, "jobs", None)
        #: Kernels of one batch: enough to keep the compilers busy, few enough to keep the GPU waiting briefly.
        self.batch = max(2, int(jobs or default_jobs([arch] if arch else [])))

    def spec(self, problem: GroupedGemm, tactic: Tactic) -> KernelSpec:
        return KernelSpec(self.arch, problem.format, problem.out, tactic.compile_time())

    def missing(self, problem: GroupedGemm, tactics: Iterable[Tactic]) -> list[KernelSpec]:
        """Specifications not built yet, each once, in order."""
        if self.builder is None:
            return []
        specs = dict.fromkeys(self.spec(problem, tactic) for tactic in tactics)
        return [spec for spec in specs if spec not in self._outcomes]

    def build(self, specs: Sequence[KernelSpec], on_done: Callable[[Any], None] | None = None) -> None:
        """Compiles ``specs`` in one parallel batch; failures are kept with their class."""
        if self.builder is None or not specs:
            return
        for outcome in self.builder.build(list(specs), on_done):
            self._outcomes[outcome.spec] = outcome

    def kernel(self, problem: GroupedGemm, tactic: Tactic) -> Any:
        """The kernel, or None when there is none (yet)."""
        outcome = self._outcomes.get(self.spec(problem, tactic)) if self.builder is not None else None
        return None if outcome is None else outcome.kernel

    def failure(self, problem: GroupedGemm, tactic: Tactic) -> Measurement | None:
        """Why there is no kernel for ``tactic``, as a measurement; None when there is one or none is needed."""
        if self.builder is None:
            return None
        outcome = self._outcomes.get(self.spec(problem, tactic))
        if outcome is not None and outcome.kernel is not None:
            return None
        if outcome is None:
            return Measurement.failed(tactic, COMPILE_FAILED, "the builder did not answer for this kernel")
        status = TIMEOUT if outcome.failure == TIMEOUT else COMPILE_FAILED
        return Measurement.failed(tactic, status, outcome.message or "did not compile")
