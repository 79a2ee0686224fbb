"""Number formats of the operands, and what each asks of N and K.

Sources: NVIDIA/cutlass 4.5.0 ``include/cutlass/detail/blockscaled_layout.hpp`` (128x4 scale atoms) and
``include/cutlass/gemm/collective/builders/sm120_blockscaled_mma_builder.inl`` (operand alignments);
FlashInfer 0.7.4 ``csrc/group_gemm_{nvfp4,mxfp4}_groupwise_sm120.cu`` (K a multiple of 128, N of 8).
"""

from __future__ import annotations

from dataclasses import dataclass

from tileforge.errors import InputError

#: Output types and their size in bits.
OUT_BITS = {"bf16": 16, "fp16": 16, "fp32": 32}

#: Rows of one scale-factor atom: B's scale factors are stored for a multiple of this many rows.
SCALE_ROWS = 128


@dataclass(frozen=True)
class Format:
    """One operand format of a grouped GEMM ``D[g] = alpha[g] * A[g] @ B[g].T``.

    ``a_bits``/``b_bits`` are bits per element in global memory, ``smem_a_bits``/``smem_b_bits`` in shared
    memory (mxfp8_mxfp4's FP4 operand is unpacked to bytes by TMA). ``scale_vector`` is the number of elements
    along K that share a scale factor (None: no scale factors); it is a property of the format and is never
    inferred from a count of scale columns. How far a right result may be from an fp32 product of the same quantised
    values is :mod:`tileforge.measure.check`'s.
    """

    name: str
    a_bits: int
    b_bits: int
    smem_a_bits: int
    smem_b_bits: int
    scale_vector: int | None
    scale_type: str | None
    k_multiple: int
    n_multiple: int = 8

    @property
    def block_scaled(self) -> bool:
        return self.scale_vector is not None

    def scale_columns(self, k: int) -> int:
        """Scale factors along K as stored: a multiple of 4 (K 2880 at vector 32: 90, stored as 92)."""
        if self.scale_vector is None:
            return 0
        return -(-k // (4 * self.scale_vector)) * 4


FORMATS: dict[str, Format] = {
    f.name: f
    for f in (
        Format("bf16", 16, 16, 16, 16, None, None, k_multiple=8),
        Format("fp8", 8, 8, 8, 8, None, None, k_multiple=16),
        Format("nvfp4", 4, 4, 4, 4, 16, "ue4m3", k_multiple=128),
        Format("mxfp4", 4, 4, 4, 4, 32, "ue8m0", k_multiple=128),
        Format("mxfp8_mxfp4", 8, 4, 8, 8, 32, "ue8m0", k_multiple=128),
    )
}


def get_format(name: str) -> Format:
    """The format called ``name``. Raises InputError that lists the known ones."""
    try:
        return FORMATS[name]
    except (KeyError, TypeError):
        raise InputError(f"unknown format {name!r}: use one of {', '.join(FORMATS)}") from None


def round_up(value: int, multiple: int) -> int:
    """The smallest multiple of ``multiple`` that is not below ``value``."""
    return -(-value // multiple) * multiple
