"""Which GPU a problem is tuned for, and whether it is measured: the GPU here, a fake one, or a prediction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tileforge.arch import get_arch
from tileforge.arch.gpus import GPUS, Gpu, get_gpu, match_gpu
from tileforge.errors import DeviceError, InputError
from tileforge.measure import FakeBench
from tileforge.problem import GroupedGemm

if TYPE_CHECKING:
    from tileforge.measure.protocol import Bench

#: The GPU that a format is predicted for when none is named and none is here.
USUAL = {"bf16": "h200", "fp8": "h200"}
USUAL_BLOCK_SCALED = "rtx_pro_6000"


@dataclass(frozen=True)
class Target:
    """``bench`` None: predict. ``note``: why not measured, where somebody might have expected it."""

    gpu: Gpu
    bench: Bench | None = None
    note: str = ""


def usual_gpu(format: str) -> Gpu:
    return GPUS[USUAL.get(format, USUAL_BLOCK_SCALED)]


def runs(gpu: Gpu, format: str) -> bool:
    return format in get_arch(gpu.arch).formats


class Devices:
    """Finds the bench once, then answers for each problem.

    ``gpu``, ``timer``, ``bench`` as :func:`tileforge.tune` takes them. Raises DeviceError when a GPU is asked for
    and there is none, InputError when the one here is another than the one named.
    """

    def __init__(self, gpu: str | Gpu | None, timer: str, bench: Bench | None) -> None:
        self.named = gpu if gpu is None or isinstance(gpu, Gpu) else get_gpu(gpu)
        self.strict = timer == "gpu" or gpu is not None
        self.fake = False
        self.note = ""
        self.here: Gpu | None = None
        self._own: Bench | None = None
        self.bench: Bench | None = None if timer == "predict" else bench
        if self.bench is None and timer == "fake":
            self.bench = FakeBench(facts=_facts_of(self.named) if self.named else None)
        elif self.bench is None and timer == "gpu":
            self.bench = self._own = _gpu_bench()
        elif self.bench is None and timer == "auto":
            self.bench = self._own = self._find()
        if self.bench is not None:
            self._identify(self.bench.facts())

    def _find(self) -> Bench | None:
        """The GPU here, if it is the one that is wanted and can be measured on."""
        from tileforge.picking import detect_gpu

        try:
            here, _ = detect_gpu()
        except DeviceError as error:
            self.note = f"predicted, not measured: {error}" if "no GPU found" not in str(error) else ""
            return None
        if self.named is not None and here.sku != self.named.sku:
            self.note = f"predicted, not measured: the GPU here is a {here.name}"
            return None
        try:
            return _gpu_bench()
        except DeviceError as error:
            self.note = f"predicted, not measured: {error}"
            return None

    def _identify(self, facts: dict[str, Any]) -> None:
        self.fake = bool(facts.get("fake"))
        found = match_gpu(str(facts.get("name")), facts.get("sms"))
        if self.fake:
            self.here = self.named or found
            return
        if found is None:
            raise DeviceError(f"the GPU here, {facts.get('name')!r}, is none that tileforge knows: use --timer predict")
        if self.named is not None and found.sku != self.named.sku:
            raise InputError(
                f"asked was for {self.named.sku}, but the GPU here is a {found.name}: leave the GPU out, or predict"
            )
        self.here = found

    def target(self, problem: GroupedGemm) -> Target:
        """Raises InputError when the GPU that was asked for has no kernels for the problem's format."""
        if self.bench is None:
            gpu = self.named or usual_gpu(problem.format)
            note = self.note
        elif self.here is None or runs(self.here, problem.format):
            return Target(self.here or usual_gpu(problem.format), self.bench)
        else:
            gpu = self.here if self.strict else usual_gpu(problem.format)
            note = f"predicted, not measured: the GPU here, {self.here.name}, has no {problem.format} kernels"
        if not runs(gpu, problem.format):
            formats = ", ".join(get_arch(gpu.arch).formats)
            raise InputError(
                f"{gpu.name} ({gpu.arch}) has no {problem.format} kernels, only {formats}: choose one of these or "
                f"another GPU, for example {usual_gpu(problem.format).sku} with --timer predict"
            )
        return Target(gpu, None, note)

    def close(self) -> None:
        """Lets go of a bench that was made here; one that was given stays open."""
        if self._own is not None:
            self._own.close()


def _gpu_bench() -> Bench:
    from tileforge.measure.gpu import GpuBench

    return GpuBench()


def _facts_of(gpu: Gpu) -> dict[str, Any]:
    return {"sm": gpu.arch, "sms": gpu.sms, "smem_per_block": gpu.smem_per_block, "l2_bytes": gpu.l2_bytes}
