"""A compiled kernel, loaded: the C interface of ``kernels/abi.h`` as a class. Needs no torch."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

from tileforge.errors import BuildError, DeviceError
from tileforge.formats import OUT_BITS

ABI_VERSION = 1
#: abi.h's numbers, in its order.
FORMATS = {"bf16": 1, "fp8": 2, "nvfp4": 3, "mxfp4": 4, "mxfp8_mxfp4": 5}
OUTS = {name: number for number, name in enumerate(OUT_BITS, start=1)}
SCHEDULES = {"cooperative": 1, "pingpong": 2}
RASTERS = {"heuristic": 0, "m": 1, "n": 2}
# fmt: off
_INFO_FIELDS = (
    "abi_version", "sm", "format", "out", "tile_m", "tile_n", "tile_k", "cluster_m", "cluster_n", "schedule", "swap_ab",
    "epi_m", "epi_n", "stages", "threads", "smem_bytes", "mainloop_bytes", "epilogue_bytes", "cutlass_version",
    "k_multiple", "n_multiple",
)
# fmt: on


class Info(ctypes.Structure):
    """``tf_info``: what was compiled. Bytes, counts and elements; see abi.h."""

    _fields_ = [(name, ctypes.c_int32) for name in _INFO_FIELDS]


class Args(ctypes.Structure):
    """``tf_args``: one call. Pointers are device addresses as integers; ``stream`` is a cudaStream_t."""

    _fields_ = [
        ("abi_version", ctypes.c_int32),
        ("device", ctypes.c_int32),
        ("a", ctypes.c_void_p),
        ("b", ctypes.c_void_p),
        ("sfa", ctypes.c_void_p),
        ("sfb", ctypes.c_void_p),
        ("alpha", ctypes.c_void_p),
        ("d", ctypes.c_void_p),
        ("offsets", ctypes.c_void_p),
        ("groups", ctypes.c_int32),
        ("n", ctypes.c_int32),
        ("k", ctypes.c_int32),
        ("m", ctypes.c_int32),
        ("raster", ctypes.c_int32),
        ("max_swizzle", ctypes.c_int32),
        ("sm_count", ctypes.c_int32),
        ("reserved", ctypes.c_int32),
        ("workspace", ctypes.c_void_p),
        ("workspace_bytes", ctypes.c_uint64),
        ("stream", ctypes.c_void_p),
    ]


def arguments(**fields: Any) -> Args:
    """An :class:`Args` with ``abi_version`` set and the rest 0 or null unless given."""
    return Args(abi_version=ABI_VERSION, **fields)


class Library:
    """One kernel's shared object. Loading it makes no CUDA call; :meth:`load`, :meth:`prepare`, :meth:`run` do.

    Raises BuildError when the file is not a kernel of this ABI. Methods that fail raise DeviceError with the
    kernel's own line. Names stay local to each object, so that many can be loaded into one process.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        try:
            self._library = ctypes.CDLL(str(self.path), mode=ctypes.RTLD_LOCAL)
            pointer = ctypes.POINTER(Args)
            for name, result, parameters in (
                ("tf_query", ctypes.c_int, [ctypes.POINTER(Info)]),
                ("tf_workspace_size", ctypes.c_uint64, [pointer]),
                ("tf_load", ctypes.c_int, [ctypes.c_int32]),
                ("tf_prepare", ctypes.c_int, [pointer]),
                ("tf_run", ctypes.c_int, [pointer]),
                ("tf_last_error", ctypes.c_char_p, []),
            ):
                function = getattr(self._library, name)
                function.restype, function.argtypes = result, parameters
        except (OSError, AttributeError) as error:
            raise BuildError(f"{self.path} is not a kernel: {error}") from None
        self._prepare, self._run = self._library.tf_prepare, self._library.tf_run

    def query(self) -> dict[str, int]:
        """The fields of ``tf_info``. Raises BuildError when the kernel speaks another ABI."""
        # More room than Info takes: a kernel of another interface version writes a structure of its own size.
        buffer = ctypes.create_string_buffer(4096)
        info = Info.from_buffer(buffer)
        self._check(self._library.tf_query(ctypes.byref(info)))
        answer = {name: int(getattr(info, name)) for name in _INFO_FIELDS}
        if answer["abi_version"] != ABI_VERSION:
            raise BuildError(
                f"{self.path} speaks version {answer['abi_version']} of the kernel interface, this tileforge "
                f"{ABI_VERSION}: build it again"
            )
        return answer

    def workspace_size(self, args: Args) -> int:
        """Bytes of device memory, 256-byte aligned, for ``args.groups`` groups; no CUDA call."""
        return int(self._library.tf_workspace_size(ctypes.byref(args)))

    def load(self, device: int = 0) -> None:
        """Loads the module on ``device`` and checks that it can launch there. Not inside a graph capture."""
        self._check(self._library.tf_load(device))

    def prepare(self, args: Args) -> None:
        """Enqueues the derivation of per-group sizes, pointers and layouts into the workspace."""
        self._check(self._prepare(args))

    def run(self, args: Args) -> None:
        """Enqueues the GEMM on what :meth:`prepare` left in the workspace."""
        self._check(self._run(args))

    def _check(self, code: int) -> None:
        if code:
            line = (self._library.tf_last_error() or b"").decode("utf-8", "replace")
            raise DeviceError(line or f"the kernel answered code {code} and no message ({self.path.name})")
