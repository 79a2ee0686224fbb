"""Numbers as the kernels read them: real quantisation of real values, packing, and the layout of scale factors.

Kinds: ``bf16``; ``e4m3`` (one scale per tensor); ``nvfp4`` (e2m1, ue4m3 scale per 16 along K, one scale per
tensor); ``mxfp4`` (e2m1, ue8m0 scale per 32) and ``mxfp8`` (e4m3, ue8m0 scale per 32) after the OCP
Microscaling Formats specification 1.0. Scales come from the largest magnitude of what they cover, so they are
distributed as a real model's are; a kernel that reads the wrong scale cannot pass.

Works on any torch device. This module imports torch: import it where a device is in use, not at start-up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tileforge.errors import InputError
from tileforge.formats import SCALE_ROWS, round_up

#: Kinds of the operands A and B of each format.
KINDS = {
    "bf16": ("bf16", "bf16"),
    "fp8": ("e4m3", "e4m3"),
    "nvfp4": ("nvfp4", "nvfp4"),
    "mxfp4": ("mxfp4", "mxfp4"),
    "mxfp8_mxfp4": ("mxfp8", "mxfp4"),
}
VECTORS = {"nvfp4": 16, "mxfp4": 32, "mxfp8": 32}

E2M1_MAX, E4M3_MAX = 6.0, 448.0
#: Exponent of the largest power of two of an element type: what an MX scale is set by.
_EMAX = {"mxfp4": 2, "mxfp8": 8}
#: e2m1 by code 0..7; code + 8 is the negative.
E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


@dataclass(frozen=True)
class Quantized:
    """A matrix [rows, K] of one kind.

    ``values``: bf16 or float8_e4m3fn [rows, K], or uint8 [rows, K / 2] with the even element in the low nibble.
    ``scales``: uint8 [rows, K / vector], the bytes of ue4m3 or ue8m0 in plain row-major order; None: no scales.
    ``scale``: float32 scalar on the device; a true value is ``element * its scale factor * scale``.
    """

    kind: str
    values: Tensor
    scales: Tensor | None
    scale: Tensor


def encode_e2m1(x: Tensor) -> Tensor:
    """float32 to e2m1 codes 0..15 (uint8): nearest, ties to the even code, beyond 6 to 6."""
    a = x.abs()
    code = (a > 0.25).to(torch.uint8)
    for reached in (a >= 0.75, a > 1.25, a >= 1.75, a > 2.5, a >= 3.5, a > 5.0):
        code += reached
    return code | (torch.signbit(x).to(torch.uint8) << 3)


def decode_e2m1(codes: Tensor) -> Tensor:
    """e2m1 codes 0..15 to float32."""
    table = torch.tensor(E2M1 + tuple(-value for value in E2M1), device=codes.device)
    return table[codes.long()]


def pack_nibbles(codes: Tensor) -> Tensor:
    """[rows, K] codes to [rows, K / 2] bytes, the even element in the low nibble."""
    return codes[:, 0::2] | (codes[:, 1::2] << 4)


def unpack_nibbles(packed: Tensor) -> Tensor:
    return torch.stack((packed & 0xF, packed >> 4), dim=-1).flatten(1)


def decode_scales(kind: str, scales: Tensor) -> Tensor:
    """Scale bytes to float32: ue4m3 for nvfp4, 2^(byte - 127) for the MX kinds."""
    if kind == "nvfp4":
        return scales.view(torch.float8_e4m3fn).float()
    exponent = scales.int()  # of an fp32 number with an empty mantissa; 2^-127 is the subnormal below its range
    return torch.where(exponent == 0, 0x400000, exponent << 23).view(torch.float32)


def _to_e4m3(x: Tensor) -> Tensor:
    return x.clamp(-E4M3_MAX, E4M3_MAX).to(torch.float8_e4m3fn)


def quantize(x: Tensor, kind: str) -> Quantized:
    """float32 [rows, K] to one kind. K must be a multiple of the kind's vector."""
    one = torch.ones((), device=x.device)
    if kind == "bf16":
        return Quantized(kind, x.bfloat16(), None, one)
    top = x.abs().amax().clamp(min=1e-30) if x.numel() else one
    if kind == "e4m3":
        scale = top / E4M3_MAX
        return Quantized(kind, _to_e4m3(x / scale), None, scale)
    if kind not in VECTORS:
        raise InputError(f"unknown kind {kind!r}: use bf16, e4m3, {', '.join(VECTORS)}")
    rows, k = x.shape
    vector = VECTORS[kind]
    if k % vector:
        raise InputError(f"{kind} needs K % {vector} == 0, got K = {k}")
    blocks = x.view(rows, k // vector, vector)
    block_top = blocks.abs().amax(dim=-1)
    if kind == "nvfp4":
        scale = top / (E2M1_MAX * E4M3_MAX)
        scales = _to_e4m3(block_top / (E2M1_MAX * scale)).view(torch.uint8)
    else:
        scale = one
        exponent = torch.frexp(block_top).exponent - 1 - _EMAX[kind]  # floor(log2(top)) - emax
        scales = (exponent.clamp(-127, 127) + 127).masked_fill(block_top == 0, 0).to(torch.uint8)
    divisor = decode_scales(kind, scales) * scale
    elements = torch.where(divisor[..., None] > 0, blocks / divisor[..., None], torch.zeros((), device=x.device))
    elements = elements.view(rows, k)
    values = _to_e4m3(elements) if kind == "mxfp8" else pack_nibbles(encode_e2m1(elements))
    return Quantized(kind, values, scales, scale)


def dequantize(q: Quantized, rows: slice = slice(None), *, scaled: bool = False) -> Tensor:
    """float32 values of some rows as a kernel sees them; ``scaled`` multiplies by the tensor's scale as well.

    A kernel applies ``scale`` through alpha, so a reference of its product leaves it out here.
    """
    values = q.values[rows]
    elements = decode_e2m1(unpack_nibbles(values)) if values.dtype == torch.uint8 else values.float()
    if q.scales is not None:
        elements *= decode_scales(q.kind, q.scales[rows]).repeat_interleave(VECTORS[q.kind], dim=1)
    return elements * q.scale if scaled else elements


def swizzle(scales: Tensor) -> Tensor:
    """[rows, columns] scale bytes to the 128x4 layout: flat, rows padded to 128 and columns to 4 with zeros.

    Atoms of 128 x 4 (512 bytes) lie along the columns, then along the rows; inside one, row r and column c are
    at ``(r % 32) * 16 + (r // 32) * 4 + c``. Source: NVIDIA/cutlass 4.5.0
    include/cutlass/detail/sm100_blockscaled_layout.hpp (Sm1xxBlockScaledConfig).
    """
    rows, columns = scales.shape
    padded = scales.new_zeros(round_up(rows, SCALE_ROWS), round_up(columns, 4))
    padded[:rows, :columns] = scales
    atoms = padded.view(-1, 4, 32, padded.shape[1] // 4, 4)  # row atom, r // 32, r % 32, column atom, c
    return atoms.permute(0, 3, 2, 1, 4).reshape(-1)


def scale_starts(sizes: Sequence[int]) -> list[int]:
    """First scale row of each group, and the number of scale rows: G + 1 values.

    ``floor((offset + 127 * group) / 128) * 128``, as FlashInfer 0.7.4 lays them out
    (csrc/group_gemm_nvfp4_groupwise_sm120.cu): a device can compute it from the offset alone, and every group
    has room for its own padding to 128 rows.
    """
    starts, offset = [], 0
    for group in range(len(sizes) + 1):
        starts.append((offset + (SCALE_ROWS - 1) * group) // SCALE_ROWS * SCALE_ROWS)
        offset += sizes[group] if group < len(sizes) else 0
    return starts


def swizzle_rows(scales: Tensor, sizes: Sequence[int]) -> Tensor:
    """A's scales [M, columns], rows sorted by group, to the 128x4 layout with the groups at ``scale_starts``."""
    starts = scale_starts(sizes)
    spread = scales.new_zeros(starts[-1], scales.shape[1])
    if scales.shape[0]:
        counts = torch.tensor(sizes)
        shift = torch.tensor(starts[:-1]) - (torch.cumsum(counts, 0) - counts)
        rows = torch.arange(scales.shape[0]) + torch.repeat_interleave(shift, counts)
        spread[rows.to(scales.device)] = scales
    return swizzle(spread)


def swizzle_groups(scales: Tensor, groups: int) -> Tensor:
    """B's scales [G * N, columns] to the 128x4 layout, each group padded to 128 rows of its own."""
    rows, columns = scales.shape
    n = rows // groups
    padded = scales.new_zeros(groups, round_up(n, SCALE_ROWS), columns)
    padded[:, :n] = scales.view(groups, n, columns)
    return swizzle(padded.view(-1, columns))
