"""Operands of a problem on a device: seeded, quantised for real, several sets so that the weights stay cold.

Imports torch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tileforge.formats import OUT_BITS, SCALE_ROWS, round_up
from tileforge.measure.quantize import KINDS, Quantized, quantize, swizzle_groups, swizzle_rows
from tileforge.problem import GroupedGemm

#: Rows before and after the output that nobody may write: the tallest tile's worth.
GUARD_ROWS = 256
OUT_TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
_BITS_TYPES = {16: torch.int16, 32: torch.int32}
#: NaNs that no arithmetic produces: an output element that still has this pattern was not written.
POISON = {"bf16": 0x7FD5, "fp16": 0x7F55, "fp32": 0x7FD55555}
_MAX_SETS = 256
#: Sets at least, memory permitting, although one may be cold: where the weights lie decides up to 3 % of a tactic's
#: time (H200, 2026-11-30, bf16, one row a group, 128x32x128 pingpong swap: 370 and 373 us in two tuning runs, 380 and
#: 381 us in the two sweeps before them, each over one set), so a time is the mean over several places.
PLACES = 4


@dataclass(frozen=True)
class Output:
    """``buffer`` [guard + M + guard, N] of the output type; ``rows`` is its middle, what a kernel may write."""

    buffer: Tensor
    m: int
    out: str

    @classmethod
    def empty(cls, m: int, n: int, out: str, device: torch.device) -> Output:
        output = cls(torch.empty(m + 2 * GUARD_ROWS, n, dtype=OUT_TYPES[out], device=device), m, out)
        output.poison()
        return output

    @property
    def rows(self) -> Tensor:
        return self.buffer[GUARD_ROWS : GUARD_ROWS + self.m]

    @property
    def bits(self) -> Tensor:
        """The buffer as integers, so that NaNs can be told apart."""
        return self.buffer.view(_BITS_TYPES[OUT_BITS[self.out]])

    def poison(self) -> None:
        self.bits.fill_(POISON[self.out])


@dataclass(frozen=True)
class OperandSet:
    """What one call reads and writes: tensors whose addresses a kernel is given."""

    a: Tensor
    b: Tensor
    sfa: Tensor | None
    sfb: Tensor | None
    output: Output


@dataclass(frozen=True)
class Inputs:
    """``a``: [M, K], ``b``: [G * N, K], quantised; ``alpha`` [G] float32; ``offsets`` [G + 1] int32.

    Alpha holds the tensors' scales times a factor of its own for each group, 0.5 to 2 in shuffled order, so that
    a kernel that takes its neighbour's alpha is wrong by tens of percent.
    """

    problem: GroupedGemm
    sizes: tuple[int, ...]
    a: Quantized
    b: Quantized
    alpha: Tensor
    offsets: Tensor
    sets: tuple[OperandSet, ...]
    cold: float  # bytes of all sets that calls read or write, over the L2's size


def operand_bytes(problem: GroupedGemm) -> int:
    """Device memory of one operand set: A, B of all groups, scale factors as stored, D with its guards."""
    form = problem.form
    a, b = problem.m * problem.k * form.a_bits // 8, problem.groups * problem.n * problem.k * form.b_bits // 8
    scale_rows = problem.m + SCALE_ROWS * problem.groups + problem.groups * round_up(problem.n, SCALE_ROWS)
    d = (problem.m + 2 * GUARD_ROWS) * problem.n * OUT_BITS[problem.out] // 8
    return a + b + scale_rows * form.scale_columns(problem.k) + d


def working_bytes(problem: GroupedGemm) -> int:
    """What making and checking takes beside the sets, at its peak: the reference, one float32 copy of A or of a
    group of B with what quantising it needs (about five more), plain scales."""
    largest = max(problem.m, problem.n) * problem.k * 4
    scales = (problem.m + problem.groups * problem.n) * problem.form.scale_columns(problem.k)
    return problem.m * problem.n * 4 + 6 * largest + 2 * scales + 2**30


def set_count(problem: GroupedGemm, l2_bytes: int, memory: int) -> int:
    """Operand sets to rotate: as many as make what calls touch exceed twice the L2, 0 when not even one fits.

    A single call often moves that much: a GLM-5 layer's weights are hundreds of MB. Then it is ``PLACES``.
    """
    room = memory - working_bytes(problem)
    if room < operand_bytes(problem):
        return 0
    wanted = max(PLACES, math.ceil(2 * l2_bytes / max(1, problem.bytes()))) if problem.m else 1
    return max(1, min(wanted, room // operand_bytes(problem), _MAX_SETS))


def activations(m: int, k: int, generator: torch.Generator) -> Tensor:
    """Normal, with channels of unequal size and one in a hundred ten times larger, as hidden states have them."""
    device = generator.device
    channels = torch.exp(0.4 * torch.randn(k, generator=generator, device=device))
    channels *= 1 + 9 * (torch.rand(k, generator=generator, device=device) < 0.01)
    x = torch.randn(m, k, generator=generator, device=device) * channels
    return x / channels.square().mean().sqrt()


def weights(n: int, k: int, generator: torch.Generator) -> Tensor:
    """Normal with rows of unequal size, scaled so that products with the activations are of order 1."""
    device = generator.device
    rows = torch.exp(0.3 * torch.randn(n, 1, generator=generator, device=device))
    return torch.randn(n, k, generator=generator, device=device) * rows / math.sqrt(k)


def _alpha(groups: int, generator: torch.Generator) -> Tensor:
    steps = (torch.arange(groups, device=generator.device) + 0.5) / groups
    order = torch.randperm(groups, generator=generator, device=generator.device)
    return torch.exp2(2 * steps[order] - 1)


def _stacked_weights(problem: GroupedGemm, kind: str, generator: torch.Generator) -> tuple[Quantized, Tensor]:
    """B [G * N, K], quantised group by group to bound memory, and the scale of each group [G]."""
    device, n, k = generator.device, problem.n, problem.k
    values: Tensor | None = None
    scales: Tensor | None = None
    group_scales = torch.empty(problem.groups, device=device)
    for group in range(problem.groups):
        q = quantize(weights(n, k, generator), kind)
        if values is None:
            values = q.values.new_empty(problem.groups * n, q.values.shape[1])
            scales = None if q.scales is None else q.scales.new_empty(problem.groups * n, q.scales.shape[1])
        values[group * n : (group + 1) * n] = q.values
        if scales is not None and q.scales is not None:
            scales[group * n : (group + 1) * n] = q.scales
        group_scales[group] = q.scale
    assert values is not None
    return Quantized(kind, values, scales, torch.ones((), device=device)), group_scales


def make_inputs(problem: GroupedGemm, device: torch.device, *, sets: int = 1, l2_bytes: int = 0) -> Inputs:
    """Operands of ``problem``, the same for the same problem, seed and kind of device.

    The sets hold equal values at different addresses, so one reference serves all of them. Raises
    torch.OutOfMemoryError when they do not fit; ask :func:`set_count` first.
    """
    generator = torch.Generator(device).manual_seed(problem.seed)
    kind_a, kind_b = KINDS[problem.format]
    sizes = problem.sizes
    alpha = _alpha(problem.groups, generator)
    b, group_scales = _stacked_weights(problem, kind_b, generator)
    a = quantize(activations(problem.m, problem.k, generator), kind_a)
    sfa = swizzle_rows(a.scales, sizes) if a.scales is not None else None
    sfb = swizzle_groups(b.scales, problem.groups) if b.scales is not None else None

    def output() -> Output:
        return Output.empty(problem.m, problem.n, problem.out, device)

    operands = [OperandSet(a.values, b.values, sfa, sfb, output())]
    for _ in range(sets - 1):
        scales = (None if sfa is None else sfa.clone(), None if sfb is None else sfb.clone())
        operands.append(OperandSet(a.values.clone(), b.values.clone(), scales[0], scales[1], output()))
    return Inputs(
        problem,
        tuple(sizes),
        a,
        b,
        (alpha * a.scale * group_scales).float().contiguous(),
        offsets_of(sizes, device),
        tuple(operands),
        sets * problem.bytes() / l2_bytes if l2_bytes else math.inf,
    )


def offsets_of(sizes: Sequence[int], device: torch.device) -> Tensor:
    """int32 [G + 1] on the device: where each group's rows start, and M."""
    return torch.tensor([0, *sizes], dtype=torch.int64).cumsum(0).to(torch.int32).to(device)
