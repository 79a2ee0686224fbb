"""The verdict: whether a tactic may run, and exactly why not. Truthy only when it fits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

FITS, OVER, ILLEGAL, UNKNOWN = "fits", "over", "illegal", "unknown"


@dataclass(frozen=True)
class Verdict:
    """The answer of the legality function.

    ``kind``: ``fits``; ``over`` (would need more shared memory than a block may have); ``illegal`` (a rule of the
    hardware or of this CUTLASS says no); ``unknown`` (nothing is known about it here: ask the compiler).
    ``reason``: a stable code (``smem``, ``scale_block``, ``cluster`` ...), ``""`` when it fits.
    ``message``: one sentence for people. ``source``: file and version that the rule was read in.
    ``figures``: what the sentence stands on, in bytes and counts: ``stages``, ``smem_bytes``, ``limit_bytes``,
    ``excess_bytes``, ``stages_that_fit``, ``smem_bytes_that_fit``, as far as they apply.
    """

    kind: str
    reason: str = ""
    message: str = ""
    source: str = ""
    figures: Mapping[str, Any] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return self.kind == FITS

    def as_dict(self) -> dict[str, Any]:
        return {
            "verdict": self.kind,
            "reason": self.reason,
            "message": self.message,
            "source": self.source,
            **self.figures,
        }
