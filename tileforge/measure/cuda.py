"""The backend that owns a GPU: compiled kernels, CUDA graphs, NVML. Runs inside the worker; imports torch."""

from __future__ import annotations

import contextlib
import gc
from pathlib import Path
from typing import Any

import torch

from tileforge.arch.gpus import match_gpu
from tileforge.errors import BuildError, DeviceError, InputError
from tileforge.measure import baselines
from tileforge.measure.backend import KernelFailure, Launch, TorchBackend
from tileforge.measure.conditions import Conditions, device_facts
from tileforge.measure.inputs import Inputs
from tileforge.measure.result import LAUNCH_FAILED, NOT_MEASURED, OVER, floor_us
from tileforge.measure.timing import SETTLE_US, WARM_US, GraphClock, Timed
from tileforge.problem import GroupedGemm
from tileforge.tactic import Tactic
from tileforge.toolchain.library import FORMATS, OUTS, RASTERS, SCHEDULES, Args, Library, arguments

#: No SM before it has instructions for block-scaled operands.
_FIRST_BLOCK_SCALED_SM = 100


class CudaBackend(TorchBackend):
    """Measures on CUDA device ``device``, using at most ``memory_fraction`` of the memory that is free.

    Raises DeviceError, one line, when there is no such device.
    """

    def __init__(self, device: int = 0, memory_fraction: float = 0.9) -> None:
        if not torch.cuda.is_available():
            why = "is built without CUDA" if torch.version.cuda is None else "sees no CUDA device"
            raise DeviceError(
                f"no GPU to measure on: torch {torch.__version__} {why}; use a machine with one, or the timer predict"
            )
        if device >= torch.cuda.device_count():
            raise DeviceError(f"no GPU {device}: there are {torch.cuda.device_count()}, counted from 0")
        torch.cuda.set_device(device)
        super().__init__(torch.device("cuda", device))
        self._memory_fraction = memory_fraction
        properties = torch.cuda.get_device_properties(device)
        self._conditions = Conditions(str(getattr(properties, "uuid", "") or ""), device)
        self._facts = device_facts(device, self._conditions)
        self._clock = GraphClock(self.device)
        self._libraries: dict[Path, Library] = {}
        gpu = match_gpu(properties.name, properties.multi_processor_count)
        self._bandwidth = gpu.bandwidth if gpu else None
        self._peak = dict(gpu.peak) if gpu else {}

    def facts(self) -> dict[str, Any]:
        return dict(self._facts)

    def free_memory(self) -> int:
        return int(torch.cuda.mem_get_info(self.device)[0] * self._memory_fraction)

    def synchronize(self) -> None:
        torch.cuda.synchronize(self.device)

    def scope(self) -> contextlib.AbstractContextManager[Any]:
        """One stream for operands, launches, comparisons and graphs, so that order is by construction."""
        scope: contextlib.AbstractContextManager[Any] = torch.cuda.stream(self._clock.stream)
        return scope

    def release(self) -> None:
        gc.collect()
        torch.cuda.empty_cache()

    def floor_us(self, problem: GroupedGemm) -> float:
        l2_bytes = int(self._facts["l2_bytes"] or 0)
        return floor_us(problem.bytes(), problem.flops, self._bandwidth, self._peak.get(problem.format), l2_bytes)

    def launcher(self, inputs: Inputs, tactic: Tactic, kernel: Path | None) -> Launch:
        if kernel is None:
            raise KernelFailure(NOT_MEASURED, "no kernel: tileforge build makes it")
        try:
            library = self._libraries.get(kernel)
            if library is None:
                library = self._libraries[kernel] = Library(kernel)
            info = library.query()
        except BuildError as error:
            raise KernelFailure(NOT_MEASURED, str(error)) from None
        _fit(info, inputs.problem, tactic, kernel)
        needed, limit = info["smem_bytes"], self._facts["smem_per_block"]
        if limit is not None and needed > limit:
            raise KernelFailure(
                OVER, f"needs {needed:,} B of {limit:,} B shared memory per block: {needed - limit:,} B over"
            )
        try:
            library.load(self.device.index)
        except DeviceError as error:
            raise KernelFailure(LAUNCH_FAILED, str(error)) from None
        return _Launcher(library, inputs, tactic, self.device, self._clock.stream)

    def capture(self, launch: Launch, sets: int) -> Timed:
        assert self._held is not None
        return self._clock.capture(launch, sets, self._warm_us(self._held.inputs.problem))

    def _warm_us(self, problem: GroupedGemm) -> float:
        return SETTLE_US if self._arithmetic_bound(problem) else WARM_US

    def _arithmetic_bound(self, problem: GroupedGemm) -> bool:
        """Near enough to the tensor cores' rate for the power cap to decide the clock; False when nothing is known."""
        peak = self._peak.get(problem.format)
        if not peak or not self._bandwidth:
            return False
        return problem.flops / peak > 0.5 * problem.bytes() / self._bandwidth

    def samples(self, clock: Any, count: int) -> tuple[list[float], dict[str, Any]]:
        seen: dict[str, Any] = {}

        def read() -> None:
            seen.update(self._conditions.read())

        raw = self._clock.samples(clock, count, read if self._conditions.quick else lambda: None)
        if not self._conditions.quick:
            read()
        return raw, {**seen, "calls": clock.calls, "graph": True}

    def baseline(self, name: str, problem: GroupedGemm | None, samples: int) -> dict[str, Any]:
        with self.scope():
            if name == "copy":
                self._forget()  # the copy takes 2 GiB
                return baselines.copy_bandwidth(self._clock, self.device, samples)
            if name == "grouped_mm" and problem is not None:
                try:
                    held = self.hold(problem)
                except KernelFailure as failure:
                    raise InputError(str(failure)) from None
                return baselines.grouped_mm(self._clock, held.inputs, held.reference, samples, self._warm_us(problem))
        raise InputError(f"unknown baseline {name!r}: use copy, or grouped_mm with a problem")

    def _forget(self) -> None:
        self._prepared.clear()
        self._held = None
        self.release()


class _Launcher:
    """One call of a kernel: prepare and run, with the arguments of each operand set made beforehand."""

    def __init__(
        self, library: Library, inputs: Inputs, tactic: Tactic, device: torch.device, stream: torch.cuda.Stream
    ) -> None:
        problem = inputs.problem
        self._library = library
        self._inputs = inputs  # keeps the tensors alive whose addresses are below
        fields: dict[str, Any] = {
            "device": device.index,
            "alpha": inputs.alpha.data_ptr(),
            "offsets": inputs.offsets.data_ptr(),
            "groups": problem.groups,
            "n": problem.n,
            "k": problem.k,
            "m": problem.m,
            "raster": RASTERS[tactic.raster],
            "max_swizzle": tactic.swizzle,
            "stream": stream.cuda_stream,
        }
        size = library.workspace_size(arguments(**fields))
        self._workspace = torch.empty(max(size, 256), dtype=torch.uint8, device=device)
        assert self._workspace.data_ptr() % 256 == 0  # torch's allocator gives 512
        fields |= {"workspace": self._workspace.data_ptr(), "workspace_bytes": self._workspace.numel()}
        self._args: list[Args] = [
            arguments(
                **fields,
                a=operands.a.data_ptr(),
                b=operands.b.data_ptr(),
                sfa=operands.sfa.data_ptr() if operands.sfa is not None else None,
                sfb=operands.sfb.data_ptr() if operands.sfb is not None else None,
                d=operands.output.rows.data_ptr(),
            )
            for operands in inputs.sets
        ]

    def __call__(self, index: int) -> None:
        args = self._args[index]
        try:
            self._library.prepare(args)
            self._library.run(args)
        except DeviceError as error:
            raise KernelFailure(LAUNCH_FAILED, str(error)) from None


def _fit(info: dict[str, int], problem: GroupedGemm, tactic: Tactic, kernel: Path) -> None:
    """A kernel of another format would read outside the operands and cost the context: refused before it runs.

    So is an emulated one: it runs here, and its time says nothing about the SM that it stands for.
    """
    if problem.form.block_scaled and info["sm"] < _FIRST_BLOCK_SCALED_SM:
        raise KernelFailure(
            NOT_MEASURED,
            f"{kernel.name} is a {problem.format} kernel emulated on sm{info['sm']}: `tileforge verify` runs those, "
            "their times say nothing",
        )
    expected: dict[str, int] = {
        "format": FORMATS[problem.format],
        "out": OUTS[problem.out],
        "tile_m": tactic.tile[0],
        "tile_n": tactic.tile[1],
        "tile_k": tactic.tile[2],
        "cluster_m": tactic.cluster[0],
        "cluster_n": tactic.cluster[1],
        "schedule": SCHEDULES[tactic.schedule],
        "swap_ab": int(tactic.swap_ab),
    }
    if tactic.stages is not None:
        expected["stages"] = tactic.stages
    if tactic.epilogue_tile is not None:
        expected |= {"epi_m": tactic.epilogue_tile[0], "epi_n": tactic.epilogue_tile[1]}
    for name, value in expected.items():
        if info[name] != value:
            raise KernelFailure(
                NOT_MEASURED,
                f"{kernel.name} was compiled with {name} = {info[name]}, this tactic and problem need {value}",
            )
