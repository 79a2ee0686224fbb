"""The problem: one grouped GEMM, ``D[g] = alpha[g] * A[g] @ B[g].T`` for g in G groups (experts)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from tileforge.errors import InputError
from tileforge.formats import OUT_BITS, SCALE_ROWS, Format, get_format, round_up
from tileforge.routing import Routing

#: Far above any model's experts; sizes and pointers are kept per group on host and device.
MOST_GROUPS = 65_536


@dataclass(frozen=True)
class GroupedGemm:
    """A grouped GEMM as the host knows it.

    A is [M, K] with rows sorted by group, B is [G, N, K], D is [M, N]; accumulation is fp32.

    Parameters
    ----------
    m: total rows over all groups (tokens x top-k), 0 or more. 0 is a valid problem with nothing to launch.
    n, k: columns of the output and depth of the product, per group.
    groups: number of groups G (local experts).
    format: ``nvfp4``, ``mxfp4``, ``mxfp8_mxfp4`` (SM120), ``bf16``, ``fp8`` (SM90).
    out: ``bf16``, ``fp16`` or ``fp32``.
    routing: how the M rows fall on the groups; see :mod:`tileforge.routing`.
    seed: of the routing and of generated inputs.
    name: a label for tables, never part of a key.

    Raises InputError on sizes the format cannot take, with the multiple and the padded size.
    """

    m: int
    n: int
    k: int
    groups: int
    format: str = "nvfp4"
    out: str = "bf16"
    routing: str | Routing = "balanced"
    seed: int = 0
    name: str = ""

    def __post_init__(self) -> None:
        for field, value, least in (("M", self.m, 0), ("N", self.n, 1), ("K", self.k, 1), ("groups", self.groups, 1)):
            if not isinstance(value, int) or isinstance(value, bool) or not least <= value < 2**31:
                raise InputError(f"{field} = {value!r} is not a whole number from {least} to 2147483647")
        if self.groups > MOST_GROUPS:
            raise InputError(f"groups = {self.groups} is more than the {MOST_GROUPS:,} that a problem may have")
        if not isinstance(self.seed, int) or isinstance(self.seed, bool) or not 0 <= self.seed < 2**32:
            raise InputError(f"seed = {self.seed!r} is not a whole number from 0 to 4294967295")
        if not isinstance(self.name, str):
            raise InputError(f"name = {self.name!r} is not text")
        form = get_format(self.format)
        if not isinstance(self.out, str) or self.out not in OUT_BITS:
            raise InputError(f"unknown output type {self.out!r}: use one of {', '.join(OUT_BITS)}")
        for field, value, multiple in (("K", self.k, form.k_multiple), ("N", self.n, form.n_multiple)):
            if value % multiple:
                raise InputError(
                    f"{self.format} needs {field} % {multiple} == 0, but {field} = {value} leaves {value % multiple}: "
                    f"pad to {round_up(value, multiple)} and tune that size"
                )
        routing = Routing.parse(self.routing)
        object.__setattr__(self, "routing", routing)
        routing.check(self.m, self.groups)

    @property
    def form(self) -> Format:
        return get_format(self.format)

    @property
    def rows_per_group(self) -> float:
        """M / G: the figure people think in; printed beside M everywhere."""
        return self.m / self.groups

    @property
    def sizes(self) -> list[int]:
        """Rows of each group, from the routing and the seed."""
        return Routing.parse(self.routing).sizes(self.m, self.groups, self.seed)

    @property
    def flops(self) -> int:
        return 2 * self.m * self.n * self.k

    def bytes(self) -> int:
        """Fewest bytes through device memory: A once, each non-empty group's B once, D once, with their scales."""
        form, active = self.form, sum(1 for rows in self.sizes if rows)
        a, b = self.m * self.k * form.a_bits, active * self.n * self.k * form.b_bits
        scales = 0
        if form.scale_vector is not None:
            columns = form.scale_columns(self.k)
            scales = (self.m + active * round_up(self.n, SCALE_ROWS)) * columns
        return (a + b) // 8 + scales + self.m * self.n * OUT_BITS[self.out] // 8

    @property
    def key(self) -> str:
        """What the database files records under: format, output, N, K, G. M and routing are within the file."""
        return f"{self.format}_{self.out}_n{self.n}_k{self.k}_g{self.groups}"

    def with_m(self, m: int) -> GroupedGemm:
        return replace(self, m=m)

    def __str__(self) -> str:
        label = f"{self.name}: " if self.name else ""
        return (
            f"{label}M={self.m} ({self.rows_per_group:g} rows/group) N={self.n} K={self.k} G={self.groups} "
            f"{self.format}->{self.out} {self.routing}"
        )

    def as_dict(self) -> dict[str, Any]:
        """Plain values, in order; ``GroupedGemm(**problem.as_dict())`` gives it back."""
        fields = ("m", "n", "k", "groups", "format", "out", "routing", "seed", "name")
        return {field: str(v) if isinstance(v := getattr(self, field), Routing) else v for field in fields}
