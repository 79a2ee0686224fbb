"""What a build ends in: a compiled kernel, or a failure that is on record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tileforge.toolchain.spec import KernelSpec


@dataclass(frozen=True)
class Kernel:
    """One compiled tactic. ``info`` is what ``tf_query`` answered (stages, threads, smem_bytes, ...)."""

    spec: KernelSpec
    path: Path
    info: Mapping[str, int]
    key: str
    meta: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def cutlass(self) -> str:
        """Version of the CUTLASS headers that it was made of; "" when that is not recorded."""
        return str(self.meta.get("inputs", {}).get("cutlass_version", ""))


@dataclass(frozen=True)
class Failure:
    """A compile that is known to fail: its class, one line, and the time-out it had."""

    spec: KernelSpec
    failure: str
    message: str
    key: str
    timeout_s: float
    log: Path
