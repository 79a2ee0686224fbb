"""What the tests of ``tune`` share: devices that say they are real, a builder without a compiler."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tileforge.errors import BuildError, DeviceError, ToolchainError
from tileforge.measure import FakeBench
from tileforge.problem import GroupedGemm
from tileforge.tactic import Tactic
from tileforge.toolchain.cutlass import Cutlass
from tileforge.toolchain.spec import KernelSpec
from tileforge.tuning import TuneResult, tune

CUTLASS = Cutlass(Path("/nowhere"), "4.5.0", "0123456789ab", "test")


def moe(rows: int, format: str = "bf16") -> GroupedGemm:
    return GroupedGemm(rows * 32, 4096, 6144, 32, format=format)


@pytest.fixture(autouse=True)
def no_gpu_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The same on machines with and without one; nothing goes into the user's cache."""

    def none() -> Any:
        raise DeviceError("no GPU found here: pass gpu=, for example gpu='rtx_pro_6000'")

    monkeypatch.setattr("tileforge.picking.detect_gpu", none)
    monkeypatch.setenv("TILEFORGE_CACHE", str(tmp_path / "cache"))


class H200Bench(FakeBench):
    """A device that says it is an H200 and real, so that what is recorded looks as it would on one."""

    def facts(self) -> dict[str, Any]:
        return {**super().facts(), "name": "NVIDIA H200", "sms": 132, "driver": "570.1", "fake": False}


class UnknownBench(H200Bench):
    def facts(self) -> dict[str, Any]:
        return {**super().facts(), "name": "NVIDIA Z9"}


@dataclass
class Built:
    spec: KernelSpec
    kernel: Any
    failure: str = ""
    message: str = ""


@dataclass
class Kernel:
    spec: KernelSpec
    cutlass: str = "4.5.0"

    @property
    def meta(self) -> dict[str, Any]:
        return {"inputs": {"headers": "abcabcabcabc", "compiler": "nvcc 13.0.88", "sources": "deadbeef0000"}}


class FakeBuilder:
    """``kernels`` None: builds whatever is asked; else only these are there and nothing can be compiled."""

    def __init__(self, kernels: Iterable[Tactic] | None = None) -> None:
        self.cutlass, self.compiler, self.jobs = CUTLASS, None, 4
        self.there = None if kernels is None else {tactic.compile_time() for tactic in kernels}
        self.missing = None if kernels is None else ToolchainError("no nvcc found: pip install it")
        self.batches: list[list[KernelSpec]] = []

    def lookup(self, spec: KernelSpec) -> Kernel | None:
        return Kernel(spec) if self.there is None or spec.tactic in self.there else None

    def build(self, specs: Sequence[KernelSpec], on_done: Callable[[Any], None] | None = None) -> list[Built]:
        self.batches.append(list(specs))
        if lacking := [spec for spec in specs if self.lookup(spec) is None]:
            raise BuildError(f"{len(lacking)} kernels are missing and nothing here can build them: {self.missing}")
        built = [Built(spec, Kernel(spec)) for spec in specs]
        for outcome in built:
            if on_done:
                on_done(outcome)
        return built


def measured(problems: Any, **options: Any) -> list[TuneResult]:
    options = {"bench": H200Bench(), "builder": FakeBuilder(), "budget": 16, **options}
    return tune(problems, **options)


def predicted(problems: Any, **options: Any) -> list[TuneResult]:
    options = {"timer": "predict", "cutlass": CUTLASS, "confirm": False, **options}
    return tune(problems, **options)
