"""What tactics are compared with, timed by the same clock: a copy's bandwidth and torch's own grouped GEMM.

Imports torch.
"""

from __future__ import annotations

from typing import Any

import torch

from tileforge.errors import InputError
from tileforge.measure.inputs import Inputs
from tileforge.measure.result import NOT_MEASURED, OK, Stats, plausible
from tileforge.measure.timing import WARM_US, GraphClock

#: Bytes of one buffer of the copy: far over any L2, and half a millisecond on an H200.
COPY_BYTES = 2**30


def _answer(name: str, raw: list[float], calls: int, **more: Any) -> dict[str, Any]:
    kept, discarded = plausible(raw)
    stats = Stats.of(kept)
    return {
        "name": name,
        "status": OK if stats else NOT_MEASURED,
        "samples_us": list(kept),
        "median_us": stats.median if stats else None,
        "low_us": stats.low if stats else None,
        "high_us": stats.high if stats else None,
        "discarded": discarded,
        "calls": calls,
        **more,
    }


def copy_bandwidth(clock: GraphClock, device: torch.device, samples: int = 7, size: int = COPY_BYTES) -> dict[str, Any]:
    """A device-to-device copy; ``bytes_per_s`` counts bytes read and bytes written, at the median time.

    Two ways, and the faster one is the answer (``way``): a kernel that reads and writes every word, and the driver's
    own copy. In a graph the driver may leave its copy to a copy engine, which is slower than the SMs (H200, driver
    580.159, 2026-11-30: 2.71 TB/s).
    """
    # Random, not zeros: memory and caches compress runs of equal values on some GPUs.
    source = torch.randint(-(2**62), 2**62, (size // 8,), dtype=torch.int64, device=device)
    target = torch.empty_like(source)
    clock.stream.wait_stream(torch.cuda.current_stream(device))

    def by_kernel(_: int) -> None:
        torch.bitwise_not(source, out=target)

    def by_driver(_: int) -> None:
        target.copy_(source, non_blocking=True)

    answers = []
    for way, call in (("kernel", by_kernel), ("driver", by_driver)):
        timed = clock.capture(call, 1)
        raw = clock.samples(timed, samples)
        answers.append(_answer("copy", raw, timed.calls, bytes=2 * source.numel() * 8, way=way))
    answer = min(answers, key=lambda each: each["median_us"] or float("inf"))
    answer["bytes_per_s"] = answer["bytes"] / (answer["median_us"] * 1e-6) if answer["median_us"] else None
    return answer


def grouped_mm(
    clock: GraphClock, inputs: Inputs, reference: torch.Tensor, samples: int = 7, warm_us: float = WARM_US
) -> dict[str, Any]:
    """``torch._grouped_mm`` on the same bf16 operands, sets and routing as the kernels are given.

    It takes no alpha, so ``error`` is that of its product times alpha. Raises InputError for other formats than
    bf16: tune that one to have it beside.
    """
    problem = inputs.problem
    if problem.format != "bf16" or problem.out != "bf16":
        raise InputError(f"torch._grouped_mm is a baseline of bf16 -> bf16, not of {problem.format} -> {problem.out}")
    if not problem.m:
        raise InputError("M = 0: nothing to launch")
    ends = inputs.offsets[1:].contiguous()
    operands = [
        (operands.a, operands.b.view(problem.groups, problem.n, problem.k).transpose(1, 2)) for operands in inputs.sets
    ]

    def product_of(index: int) -> torch.Tensor:
        a, b = operands[index]
        product: torch.Tensor = torch._grouped_mm(a, b, offs=ends, out_dtype=torch.bfloat16)
        return product

    def call(index: int) -> None:  # its output goes back to the graph's memory pool at once, for the next call
        product_of(index)

    clock.stream.wait_stream(torch.cuda.current_stream(inputs.alpha.device))
    with torch.cuda.stream(clock.stream):
        product = product_of(0).float()
        sizes = torch.tensor(inputs.sizes, device=product.device)
        product *= torch.repeat_interleave(inputs.alpha, sizes)[:, None]
        error = float((product - reference).norm() / reference.norm())
        del product
    timed = clock.capture(call, len(inputs.sets), warm_us)
    return _answer("grouped_mm", clock.samples(timed, samples), timed.calls, error=error, sets=len(inputs.sets))
