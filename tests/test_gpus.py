"""GPUs by name: distinct SKUs, matched by alias and number of SMs."""

from __future__ import annotations

import pytest

from tileforge.arch import get_arch
from tileforge.arch.gpus import GPUS, get_gpu, match_gpu
from tileforge.errors import InputError


@pytest.mark.parametrize(
    ("name", "sms", "sku"),
    [
        pytest.param("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", 188, "rtx_pro_6000_max_q", id="D9a"),
        pytest.param("NVIDIA RTX PRO 6000 Blackwell Server Edition", 188, "rtx_pro_6000_server", id="D9b"),
        pytest.param("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", 188, "rtx_pro_6000", id="D9c"),
        pytest.param("NVIDIA GeForce RTX 5090", 170, "rtx_5090", id="D9d"),
        ("GeForce RTX 5090", None, "rtx_5090"),
        ("nvidia  geforce rtx 5090", 170, "rtx_5090"),
        ("NVIDIA GB10", 48, "gb10"),
        ("DGX Spark", None, "gb10"),
        ("NVIDIA H200", 132, "h200"),
        ("h200", None, "h200"),
        ("NVIDIA H100 80GB HBM3", 132, "h100"),
        ("rtx_pro_6000", None, "rtx_pro_6000"),
    ],
)
def test_names(name: str, sms: int | None, sku: str) -> None:
    found = match_gpu(name, sms)
    assert found is not None and found.sku == sku


@pytest.mark.parametrize(
    ("name", "sms"),
    [
        ("NVIDIA GeForce RTX 5090", 168),
        ("NVIDIA GeForce RTX 5090 D", 170),
        ("NVIDIA GeForce RTX 5090 Laptop GPU", 82),
        ("NVIDIA H200 MIG 1g.18gb", 16),
        ("NVIDIA H100 PCIe", 114),
        ("NVIDIA A100-SXM4-80GB", 108),
        ("", None),
    ],
)
def test_other_devices_are_not_taken_for_them(name: str, sms: int | None) -> None:
    assert match_gpu(name, sms) is None


def test_an_alias_names_one_sku() -> None:
    aliases = [alias for gpu in GPUS.values() for alias in (*gpu.aliases, gpu.sku)]
    assert len(aliases) == len(set(aliases)) + sum(gpu.sku in gpu.aliases for gpu in GPUS.values())
    assert all(alias == alias.lower() for alias in aliases)


@pytest.mark.parametrize("sku", list(GPUS))
def test_figures(sku: str) -> None:
    gpu = get_gpu(sku)
    arch = get_arch(gpu.arch)
    assert gpu.sku == sku
    assert set(gpu.peak) == set(arch.formats), "a peak for every format that the SM has"
    assert gpu.smem_per_block == arch.smem_per_block
    assert match_gpu(gpu.name, gpu.sms) is gpu, "the name that the driver reports is an alias"
    assert gpu.source
    assert 1e11 < gpu.bandwidth < 1e13 and all(1e14 < peak < 1e16 for peak in gpu.peak.values())
    assert all(value <= (gpu.bandwidth if key == "bandwidth" else gpu.peak[key]) for key, value in gpu.measured.items())


def test_limits_of_the_sms() -> None:
    assert (get_arch("sm120").smem_per_block, get_arch("sm120").smem_per_sm) == (101_376, 102_400)
    assert (get_arch("sm90").smem_per_block, get_arch("sm90").smem_per_sm) == (232_448, 233_472)
    for name in ("sm90", "sm120", "sm121"):
        arch = get_arch(name)
        assert arch.smem_per_sm - arch.smem_reserved == arch.smem_per_block
        assert arch.nvcc_arch == f"sm_{arch.sm}a"


def test_unknown_sku() -> None:
    with pytest.raises(InputError, match="rtx_pro_6000, "):
        get_gpu("b200")
