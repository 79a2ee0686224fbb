"""The key of a database file: what must be equal before a record may answer, and the file it is kept in."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from tileforge.errors import InputError
from tileforge.formats import get_format
from tileforge.problem import GroupedGemm

if TYPE_CHECKING:
    from tileforge.arch.gpus import Gpu

#: How scale factors lie in memory. ``128x4`` is the swizzled atom of tensor-core block scaling.
SCALE_LAYOUTS = ("none", "128x4", "8x4", "linear")
EXECUTIONS = ("graph", "eager")
FAMILY = "tileforge"

_NAME = re.compile(r"[a-z0-9][a-z0-9_]{0,63}")
_STEM = re.compile(
    r"(?P<format>[a-z0-9_]+)_(?P<out>[a-z0-9]+)_n(?P<n>\d{1,10})_k(?P<k>\d{1,10})_g(?P<groups>\d{1,10})"
    r"(?P<rest>(__[a-z0-9]+(_[a-z0-9]+)*)*)"
)


def default_scale_layout(format: str) -> str:
    return "128x4" if get_format(format).block_scaled else "none"


@dataclass(frozen=True)
class Key:
    """One file of the database: a GPU, a format with its scale layout and output type, (N, K, G), who runs it.

    ``scale_layout`` empty means the format's own (``128x4`` for block-scaled formats, else ``none``).
    ``family`` is whose kernels the tactics speak of, ``execution`` whether times were taken inside a CUDA graph.
    M and the routing are within the file. Raises InputError on values that cannot be a key.
    """

    gpu: str
    format: str
    out: str
    n: int
    k: int
    groups: int
    scale_layout: str = ""
    family: str = FAMILY
    execution: str = "graph"

    def __post_init__(self) -> None:
        own = default_scale_layout(self.format)
        if not self.scale_layout:
            object.__setattr__(self, "scale_layout", own)
        GroupedGemm(0, self.n, self.k, self.groups, self.format, self.out)  # its checks are ours
        for field, value, known in (
            ("scale layout", self.scale_layout, SCALE_LAYOUTS),
            ("execution mode", self.execution, EXECUTIONS),
        ):
            if value not in known:
                raise InputError(f"unknown {field} {value!r}: use one of {', '.join(known)}")
        if (self.scale_layout == "none") != (own == "none"):
            raise InputError(f"scale layout {self.scale_layout!r} does not go with format {self.format}: use {own}")
        for field, value in (("GPU name", self.gpu), ("kernel family", self.family)):
            if not _NAME.fullmatch(value):
                raise InputError(
                    f"{field} {value!r} must be lower-case letters, digits and underscores, as in rtx_5090"
                )
        if self.family in (*SCALE_LAYOUTS, *EXECUTIONS):
            raise InputError(f"kernel family {self.family!r} is the name of a scale layout or execution mode")

    @classmethod
    def of(cls, problem: GroupedGemm, gpu: str, **others: str) -> Key:
        """The key under which ``problem`` is recorded for the GPU with SKU ``gpu``."""
        return cls(gpu, problem.format, problem.out, problem.n, problem.k, problem.groups, **others)

    @property
    def path(self) -> str:
        """Where the file is, relative to the database: ``h200/bf16_bf16_n4096_k6144_g32.yaml``."""
        stem = f"{self.format}_{self.out}_n{self.n}_k{self.k}_g{self.groups}"
        if self.scale_layout != default_scale_layout(self.format):
            stem += f"__{self.scale_layout}"
        if self.family != FAMILY:
            stem += f"__{self.family}"
        if self.execution != "graph":
            stem += f"__{self.execution}"
        return f"{self.gpu}/{stem}.yaml"

    @classmethod
    def from_path(cls, gpu: str, file_name: str) -> Key:
        """The reverse of :attr:`path`. Raises InputError when no key is kept in a file of that name."""
        found = _STEM.fullmatch(file_name.removesuffix(".yaml"))
        if found is None or not file_name.endswith(".yaml"):
            raise InputError(f"{file_name!r} is not named as <format>_<out>_n<N>_k<K>_g<G>.yaml")
        values: dict[str, Any] = {name: found[name] for name in ("format", "out")}
        values |= {name: int(found[name]) for name in ("n", "k", "groups")}
        for part in found["rest"].split("__")[1:]:
            name = "scale_layout" if part in SCALE_LAYOUTS else "execution" if part in EXECUTIONS else "family"
            values[name] = part
        key = cls(gpu, **values)
        if key.path != f"{gpu}/{file_name}":
            raise InputError(f"{file_name!r} holds the key that belongs in {key.path.partition('/')[2]!r}")
        return key

    @property
    def sizes(self) -> tuple[str, str, int, int, int]:
        return self.format, self.out, self.n, self.k, self.groups

    def as_dict(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}


@dataclass(frozen=True)
class GpuFacts:
    """The hard facts of the GPU that a file speaks of; None is unknown (hand-written files)."""

    name: str | None = None
    sm: int | None = None
    sms: int | None = None
    smem_per_block: int | None = None

    @classmethod
    def of(cls, gpu: Gpu) -> GpuFacts:
        return cls(gpu.name, int(gpu.arch.removeprefix("sm")), gpu.sms, gpu.smem_per_block)

    def differences(self, other: GpuFacts) -> list[str]:
        """Facts that both know and that differ, the name apart: one SKU goes by several."""
        return [
            f"{field} {ours} and {theirs}"
            for field in ("sm", "sms", "smem_per_block")
            if None not in (ours := getattr(self, field), theirs := getattr(other, field)) and ours != theirs
        ]

    def healed(self, other: GpuFacts) -> GpuFacts:
        """These facts, the unknown ones taken from ``other``."""
        pairs = ((getattr(self, field.name), getattr(other, field.name)) for field in fields(self))
        return GpuFacts(*(theirs if ours is None else ours for ours, theirs in pairs))
