"""What the GPU is and how it was doing: read, never set. Every figure that cannot be had is None or left out.

NVML (``nvidia-ml-py``) when it is installed, else ``nvidia-smi``, which takes too long to be asked while a kernel
runs and so tells of the moment after. Clocks, power limits and modes are left as they are found.
"""

from __future__ import annotations

import contextlib
import importlib
import subprocess
from typing import Any

#: Bits of NVML's clocks-event reasons (nvml.h, nvmlClocksEventReason*), those that slow a kernel down or hint at it.
REASONS = {
    0x2: "applications_clocks",
    0x4: "power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal",
    0x40: "hw_thermal",
    0x80: "power_brake",
}
#: Reasons under which a time is not what the GPU can do.
THROTTLED = ("power_cap", "hw_slowdown", "sw_thermal", "hw_thermal", "power_brake")

_SMI_FIELDS = {
    "clocks.sm": "sm_mhz",
    "clocks.mem": "memory_mhz",
    "power.draw": "power_w",
    "temperature.gpu": "temperature_c",
}


def reasons(mask: int) -> list[str]:
    """Names of the bits in a clocks-event mask."""
    return [name for bit, name in REASONS.items() if mask & bit]


class Conditions:
    """Reads one GPU's clocks, power and temperature. ``uuid`` as torch or NVML write it; ``index`` if that fails."""

    def __init__(self, uuid: str = "", index: int = 0) -> None:
        self._nvml: Any = None
        self._handle: Any = None
        self._smi = uuid or str(index)
        try:
            nvml = importlib.import_module("pynvml")
            nvml.nvmlInit()
            self._handle = _handle(nvml, uuid, index)
            self._nvml = nvml
        except Exception:  # no package, no driver library, a device that NVML does not know
            self._nvml = None

    @property
    def source(self) -> str:
        return "nvml" if self._nvml is not None else "nvidia-smi"

    @property
    def quick(self) -> bool:
        """Whether reading takes well under a millisecond or two, so that it can be done while a kernel runs."""
        return self._nvml is not None

    def read(self) -> dict[str, Any]:
        """``sm_mhz``, ``memory_mhz``, ``power_w``, ``temperature_c``, ``reasons`` (of lowered clocks), as known."""
        return self._read_nvml() if self._nvml is not None else self._read_smi()

    def static(self) -> dict[str, Any]:
        """``driver``, ``power_limit_w``, ``max_sm_mhz``, ``max_memory_mhz``; None where unknown."""
        nvml = self._nvml
        if nvml is None:
            values = self._query_smi(
                {"driver_version": "driver", "power.limit": "power_limit_w", "clocks.max.sm": "max_sm_mhz",
                 "clocks.max.mem": "max_memory_mhz"}
            )  # fmt: skip
            return {key: values.get(key) for key in ("driver", "power_limit_w", "max_sm_mhz", "max_memory_mhz")}
        return {
            "driver": self._ask(lambda: _text(nvml.nvmlSystemGetDriverVersion())),
            "power_limit_w": self._ask(lambda: nvml.nvmlDeviceGetEnforcedPowerLimit(self._handle) / 1000),
            "max_sm_mhz": self._ask(lambda: nvml.nvmlDeviceGetMaxClockInfo(self._handle, nvml.NVML_CLOCK_SM)),
            "max_memory_mhz": self._ask(lambda: nvml.nvmlDeviceGetMaxClockInfo(self._handle, nvml.NVML_CLOCK_MEM)),
        }

    def _read_nvml(self) -> dict[str, Any]:
        nvml, handle = self._nvml, self._handle
        mask = self._ask(lambda: nvml.nvmlDeviceGetCurrentClocksEventReasons(handle))
        if mask is None:  # the name before NVML 12.2
            mask = self._ask(lambda: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle))
        values = {
            "sm_mhz": self._ask(lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)),
            "memory_mhz": self._ask(lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM)),
            "power_w": self._ask(lambda: round(nvml.nvmlDeviceGetPowerUsage(handle) / 1000, 1)),
            "temperature_c": self._ask(lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)),
            "reasons": None if mask is None else reasons(int(mask)),
        }
        return {key: value for key, value in values.items() if value is not None}

    def _read_smi(self) -> dict[str, Any]:
        return self._query_smi(_SMI_FIELDS)

    def _query_smi(self, fields: dict[str, str]) -> dict[str, Any]:
        query = f"--query-gpu={','.join(fields)}"
        command = ["nvidia-smi", f"--id={self._smi}", query, "--format=csv,noheader,nounits"]
        try:
            answer = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout
        except (OSError, subprocess.SubprocessError):
            return {}
        values: dict[str, Any] = {}
        for name, text in zip(fields.values(), answer.strip().split("\n")[0].split(","), strict=False):
            text = text.strip()
            if name == "driver":
                values[name] = text
                continue
            with contextlib.suppress(ValueError):
                number = float(text)
                values[name] = int(number) if number.is_integer() else number
        return values

    @staticmethod
    def _ask(question: Any) -> Any:
        """One NVML call; None when this GPU, driver or package does not answer it."""
        try:
            return question()
        except Exception:
            return None


def _handle(nvml: Any, uuid: str, index: int) -> Any:
    """By UUID: NVML counts all GPUs of the machine, CUDA only those it was shown."""
    if uuid:
        name = uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}"
        for form in (name, name.encode()):
            with contextlib.suppress(Exception):
                return nvml.nvmlDeviceGetHandleByUUID(form)
    return nvml.nvmlDeviceGetHandleByIndex(index)


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def device_facts(device: int, conditions: Conditions) -> dict[str, Any]:
    """What a CUDA device is, for :meth:`Bench.facts`. Imports torch."""
    import torch

    properties = torch.cuda.get_device_properties(device)
    return {
        "name": properties.name,
        "sm": f"sm{properties.major}{properties.minor}",
        "sms": properties.multi_processor_count,
        "smem_per_block": getattr(properties, "shared_memory_per_block_optin", None),
        "smem_per_sm": getattr(properties, "shared_memory_per_multiprocessor", None),
        "l2_bytes": getattr(properties, "L2_cache_size", None),
        "memory_bytes": properties.total_memory,
        "cuda": torch.version.cuda,
        "torch": torch.__version__,
        "conditions_source": conditions.source,
        "fake": False,
        **conditions.static(),
    }
