"""The GPU bench: a worker process that owns one GPU. Importing this needs no torch; making a bench does."""

from __future__ import annotations

from typing import Any

from tileforge.errors import DeviceError
from tileforge.measure.protocol import Backend
from tileforge.measure.worker import Timeouts, WorkerBench


def cuda_backend(**options: Any) -> Backend:
    """Makes the CUDA backend, in the worker process. Raises DeviceError without torch or a GPU."""
    try:
        from tileforge.measure.cuda import CudaBackend
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise DeviceError("measuring on a GPU needs torch: pip install 'tileforge[gpu]'") from None
    return CudaBackend(**options)


class GpuBench(WorkerBench):
    """Measures on CUDA device ``device``.

    The worker starts at once, so that a machine without a GPU is known before anything is built: raises
    DeviceError, one line. Also has :meth:`baseline` for the copy bandwidth and ``torch._grouped_mm``.
    """

    def __init__(self, device: int = 0, *, memory_fraction: float = 0.9, timeouts: Timeouts | None = None) -> None:
        options = {"device": device, "memory_fraction": memory_fraction}
        super().__init__("tileforge.measure.gpu:cuda_backend", options, timeouts=timeouts)
        self.start()
