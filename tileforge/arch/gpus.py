"""The GPUs that tileforge knows by name: distinct SKUs, with what a prediction needs before anything is measured.

Figures are the vendor's datasheet ones unless ``source`` says otherwise; what was measured is in ``measured`` and
never mixed with them. Dense peaks throughout: datasheets print twice that, for structured sparsity. A GPU is matched
by the name that its driver reports and by its number of SMs, so that a laptop part, a cut-down variant or a MIG slice
of the same name is not taken for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tileforge.arch import get_arch
from tileforge.errors import InputError

_MIB = 1 << 20


@dataclass(frozen=True, eq=False)
class Gpu:
    """One SKU. ``bandwidth`` in bytes/s, ``peak`` in flop/s per operand format (dense), sizes in bytes.

    ``aliases``: names that drivers and people give it, lower case, without a leading "nvidia". ``measured``: figures
    seen on one such device, by the same units: ``bandwidth`` (device-memory copy) or a format's achieved flop/s.
    """

    sku: str
    name: str
    arch: str
    sms: int
    l2_bytes: int
    bandwidth: float
    peak: Mapping[str, float]
    source: str
    aliases: tuple[str, ...] = ()
    measured: Mapping[str, float] = field(default_factory=dict)

    @property
    def smem_per_block(self) -> int:
        return get_arch(self.arch).smem_per_block


def _fp4(tflops: float) -> dict[str, float]:
    """mxfp8_mxfp4 runs at the FP8 rate, half of FP4's (RTX Blackwell architecture whitepaper, V1.1)."""
    return {"nvfp4": tflops * 1e12, "mxfp4": tflops * 1e12, "mxfp8_mxfp4": tflops / 2 * 1e12}


def _hopper(bf16: float) -> dict[str, float]:
    return {"bf16": bf16 * 1e12, "fp8": 2 * bf16 * 1e12}


GPUS: dict[str, Gpu] = {
    gpu.sku: gpu
    for gpu in (
        Gpu(
            sku="rtx_pro_6000",
            name="NVIDIA RTX PRO 6000 Blackwell Workstation Edition",
            arch="sm120",
            sms=188,
            l2_bytes=128 * _MIB,
            bandwidth=1792e9,
            peak=_fp4(2000),
            source="datasheet: 1,792 GB/s, 4,000 AI TOPS of sparse FP4; L2 of RTX Blackwell PRO whitepaper",
            aliases=("rtx pro 6000 blackwell workstation edition", "rtx pro 6000", "rtx pro 6000 blackwell"),
        ),
        Gpu(
            sku="rtx_pro_6000_max_q",
            name="NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition",
            arch="sm120",
            sms=188,
            l2_bytes=128 * _MIB,
            bandwidth=1792e9,
            peak=_fp4(1755),
            source="datasheet: 1,792 GB/s, 3,511 AI TOPS of sparse FP4; L2 of RTX Blackwell PRO whitepaper",
            aliases=("rtx pro 6000 blackwell max-q workstation edition", "rtx pro 6000 max-q"),
        ),
        Gpu(
            sku="rtx_pro_6000_server",
            name="NVIDIA RTX PRO 6000 Blackwell Server Edition",
            arch="sm120",
            sms=188,
            l2_bytes=128 * _MIB,
            bandwidth=1597e9,
            peak=_fp4(1850),
            source="public field notes of servers: 1,597 GB/s, 3.7 PFLOPS of sparse FP4; L2 of the PRO whitepaper",
            aliases=("rtx pro 6000 blackwell server edition", "rtx pro 6000 server"),
            measured={"nvfp4": 1227e12},  # dense GEMM 4096x6144x6144, public field notes, hot, 50 iterations
        ),
        Gpu(
            sku="rtx_5090",
            name="NVIDIA GeForce RTX 5090",
            arch="sm120",
            sms=170,
            l2_bytes=96 * _MIB,
            bandwidth=1792e9,
            peak=_fp4(1676),
            source="RTX Blackwell architecture whitepaper: 1,792 GB/s, 1,676 TFLOPS of dense FP4, 98,304 KB L2",
            aliases=("geforce rtx 5090", "rtx 5090"),
        ),
        Gpu(
            sku="gb10",
            name="NVIDIA GB10",
            arch="sm121",
            sms=48,
            l2_bytes=24 * _MIB,
            bandwidth=273e9,
            peak=_fp4(500),
            source="DGX Spark datasheet: 273 GB/s, 1 PFLOP of sparse FP4; L2 of 24 MB after Hot Chips 2025",
            aliases=("gb10", "dgx spark"),
        ),
        Gpu(
            sku="h200",
            name="NVIDIA H200",
            arch="sm90",
            sms=132,
            l2_bytes=50 * _MIB,
            bandwidth=4800e9,
            peak=_hopper(989),
            source="datasheet (SXM): 4.8 TB/s, 1,979 TFLOPS of sparse BF16; L2 of H100 architecture whitepaper",
            aliases=("h200", "h200 sxm"),
            measured={"bandwidth": 4.3e12, "bf16": 790e12, "fp8": 1225e12},  # 2026-11-30: copy; best GEMMs seen
        ),
        Gpu(
            sku="h100",
            name="NVIDIA H100 80GB HBM3",
            arch="sm90",
            sms=132,
            l2_bytes=50 * _MIB,
            bandwidth=3350e9,
            peak=_hopper(989),
            source="datasheet (SXM): 3.35 TB/s, 1,979 TFLOPS of sparse BF16; L2 of H100 architecture whitepaper",
            aliases=("h100 80gb hbm3", "h100", "h100 sxm"),
        ),
    )
}


def get_gpu(name: str) -> Gpu:
    """The GPU of that SKU or marketing name. Raises InputError that lists the known ones."""
    found = (GPUS.get(name) or match_gpu(name)) if isinstance(name, str) else None
    if found is None:
        raise InputError(f"unknown GPU {name!r}: use one of {', '.join(GPUS)}")
    return found


def match_gpu(name: str, sms: int | None = None) -> Gpu | None:
    """The SKU of a device that calls itself ``name`` and has ``sms`` SMs; None when it is none that we know.

    Case, a leading "NVIDIA" and repeated spaces do not matter. Names must be equal otherwise: "GeForce RTX 5090
    Laptop GPU" and "H200 MIG 1g.18gb" are other devices. A number of SMs that differs is another device too.
    """
    words = name.lower().replace("(tm)", "").split()
    plain = " ".join(words[1:] if words[:1] == ["nvidia"] else words)
    for gpu in GPUS.values():
        if (plain in gpu.aliases or plain == gpu.sku) and sms in (None, gpu.sms):
            return gpu
    return None
