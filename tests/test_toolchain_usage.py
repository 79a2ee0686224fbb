"""Registers, spills and stack of the GEMM kernel, read from what ptxas said."""

from __future__ import annotations

import pytest

from tileforge.toolchain.usage import gemm_usage

#: nvcc 13.0.88, CUTLASS 4.5.0, sm120_nvfp4_bf16_128x128x128_c1x1_coop, without its warnings.
DERIVE = """\
ptxas info    : Compiling entry function '_ZN2tf13derive_groupsINS_6TacticEEEvNS_11GroupArraysIT_EENS_14ProblemTensorsE' for 'sm_120a'
ptxas info    : Function properties for _ZN2tf13derive_groupsINS_6TacticEEEvNS_11GroupArraysIT_EENS_14ProblemTensorsE
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 40 registers, used 0 barriers
ptxas info    : Compile time = 14.619 ms
"""  # noqa: E501
GEMM = """\
ptxas info    : Compiling entry function '_ZN7cutlass13device_kernelIN2tf4GemmINS1_6TacticEEEEEvNT_6ParamsE' for 'sm_120a'
ptxas info    : Function properties for _ZN7cutlass13device_kernelIN2tf4GemmINS1_6TacticEEEEEvNT_6ParamsE
    24 bytes stack frame, 72 bytes spill stores, 52 bytes spill loads
ptxas info    : Used 168 registers, used 8 barriers, 24 bytes cumulative stack size
ptxas info    : Compile time = 576.521 ms
"""  # noqa: E501
WANTED = {"registers": 168, "spill_bytes": {"stores": 72, "loads": 52}, "stack_bytes": 24}


@pytest.mark.parametrize("kernels", [DERIVE + GEMM, GEMM + DERIVE])
def test_reads_the_gemm_and_not_the_kernel_beside_it(kernels: str) -> None:
    log = "k.cuh(53): warning #20012-D: ignored\n    __inline__\n\nptxas info    : 11 bytes gmem\n" + kernels
    assert gemm_usage(log) == WANTED


def test_a_function_that_is_called_is_not_the_kernel() -> None:
    called = (
        "ptxas info    : Function properties for _Z6calledv\n"
        "    8 bytes stack frame, 4 bytes spill stores, 4 bytes spill loads\n"
    )
    at = GEMM.index("ptxas info    : Used")
    assert gemm_usage(DERIVE + GEMM[:at] + called + GEMM[at:]) == WANTED


@pytest.mark.parametrize("log", ["", DERIVE, GEMM.splitlines()[0], "\n".join(GEMM.splitlines()[:3])])
def test_nothing_or_half_of_it_is_nothing(log: str) -> None:
    assert gemm_usage(log) == {}
