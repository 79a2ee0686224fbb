"""What the latency model knows about a GPU, each figure with its device, date and method.

The model only ranks. A constant that nobody measured says ``assumed``; it moves predicted times, and orders
tactics only where the term it belongs to dominates.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tileforge.arch.gpus import Gpu


@dataclass(frozen=True)
class Constants:
    """Rates and latencies of one GPU.

    bandwidth: device memory, bytes/s, as a kernel sees it. l2_bandwidth: L2 to shared memory, all SMs, bytes/s.
    rate: tensor cores with full tiles, flop/s by format. latency_s: of a load from device memory under load.
    clock_hz: of the SMs under load. smem_bytes_per_clock: shared-memory reads of one SM.
    iteration_s: one turn of the pipeline (two barriers) where nothing else hides it.
    tile_s: scheduling and tensor-map work for one tile. epilogue_bytes_per_s: of one SM, through shared memory.
    launch_s: a launch from a CUDA graph, first loads included. sources: where each figure comes from.
    """

    bandwidth: float
    l2_bandwidth: float
    rate: dict[str, float]
    latency_s: float
    clock_hz: float
    smem_bytes_per_clock: float = 128.0
    iteration_s: float = 30e-9
    tile_s: float = 0.3e-6
    epilogue_bytes_per_s: float = 110e9
    launch_s: float = 3e-6
    sources: dict[str, str] = field(default_factory=dict)


_H200 = "H200, 2026-11-30, CUTLASS 4.2.0, CUDA graph of 10 calls, median of 7, G 32 N 4096 K 6144"
_PRO_6000 = "RTX PRO 6000 field notes (GLM-5-NVFP4, FlashInfer 0.6.3): dense FP4 GEMM, 50 iterations, 3 warm-ups, hot"

MEASURED: dict[str, Constants] = {
    "h200": Constants(
        bandwidth=4.42e12,
        l2_bandwidth=7.5e12,
        rate={"bf16": 664e12, "fp8": 1263e12},
        latency_s=0.8e-6,
        clock_hz=1.7e9,
        sources={
            "bandwidth": f"{_H200}: 4.36 TB/s read by the best kernel at one row a group, launch taken off",
            "rate": f"{_H200}, 1024 rows a group: 644 (bf16) and 1,225 (fp8) TFLOP/s over 31.03 waves of 32",
            "l2_bandwidth": f"{_H200}: 128x128 tiles 1.5 times slower than 128x256 in clusters of 2 at prefill",
            "latency_s": "assumed",
            "clock_hz": "assumed: boost under load",
        },
    ),
    "rtx_pro_6000_server": Constants(
        bandwidth=1.597e12,
        l2_bandwidth=8.0e12,
        rate={"nvfp4": 1500e12, "mxfp4": 1500e12, "mxfp8_mxfp4": 750e12},
        latency_s=0.9e-6,
        clock_hz=2.4e9,
        sources={
            "bandwidth": "RTX PRO 6000 field notes: 1,597 GB/s reported (datasheet 1,792)",
            "rate": f"{_PRO_6000}: fitted so that the model gives 840 to 1,227 TFLOP/s at the six large sizes within "
            "5 %; mxfp8_mxfp4 assumed half",
            "l2_bandwidth": "assumed (fitted with the rate)",
            "latency_s": "assumed",
            "clock_hz": "RTX PRO 6000 field notes: about 2,400 MHz at 235 W",
        },
    ),
}

# The field notes do not say which edition of the RTX PRO 6000 they are about: both read the same.
MEASURED["rtx_pro_6000"] = MEASURED["rtx_pro_6000_server"]

#: How much of a datasheet's peak and bandwidth kernels reach where somebody measured: bf16 on the H200 0.67, FP4 on
#: the RTX PRO 6000 0.75 of 2,000 TFLOP/s and 0.89 of 1,792 GB/s. Used for GPUs that nobody measured.
_RATE_SHARE, _BANDWIDTH_SHARE = {"sm90": 0.67}, 0.89


def constants_for(gpu: Gpu) -> Constants:
    """Measured constants of this GPU, or ones scaled from its datasheet and those of its nearest relative."""
    if gpu.sku in MEASURED:
        return MEASURED[gpu.sku]
    base, base_sms = (MEASURED["h200"], 132) if gpu.arch == "sm90" else (MEASURED["rtx_pro_6000"], 188)
    share = gpu.sms / base_sms
    return Constants(
        bandwidth=gpu.bandwidth * _BANDWIDTH_SHARE,
        l2_bandwidth=base.l2_bandwidth * share,
        rate={name: peak * _RATE_SHARE.get(gpu.arch, 0.75) for name, peak in gpu.peak.items()}
        or {name: rate * share for name, rate in base.rate.items()},
        latency_s=base.latency_s,
        clock_hz=base.clock_hz,
        sources={"all": f"assumed: scaled from {gpu.name}'s datasheet"},
    )
