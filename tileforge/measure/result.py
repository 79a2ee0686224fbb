"""What measuring one tactic on one problem gives: a time with its spread, or a failure with its class."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tileforge.errors import InputError
from tileforge.tactic import Tactic

OK = "ok"
ILLEGAL = "illegal"  # a rule says that it cannot run
OVER = "over"  # needs more shared memory than a block may have
COMPILE_FAILED = "compile_failed"
LAUNCH_FAILED = "launch_failed"  # the launch, or the kernel while it ran, returned a CUDA error
WRONG_RESULT = "wrong_result"
TIMEOUT = "timeout"
CRASHED = "crashed"  # the process that ran it died
OUT_OF_MEMORY = "out_of_memory"  # of the device: not measured, which is not the same as slow
NOT_MEASURED = "not_measured"  # nobody tried, or what was read cannot be a time

#: Every class a failure can have. A failure never becomes a time (an ``inf`` ranks, a class does not).
FAILURES = (
    ILLEGAL, OVER, COMPILE_FAILED, LAUNCH_FAILED, WRONG_RESULT, TIMEOUT, CRASHED, OUT_OF_MEMORY, NOT_MEASURED,
)  # fmt: skip

#: Of these, what only running it shows, and what is then the tactic's own doing.
OWN = (CRASHED, LAUNCH_FAILED, TIMEOUT, WRONG_RESULT)


@dataclass(frozen=True)
class Stats:
    """Median and spread of times, in microseconds.

    ``low`` and ``high`` are the 25th and 75th percentile (linear interpolation) from four samples on, the least
    and the largest below that.
    """

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, samples_us: Iterable[float]) -> Stats | None:
        """None when there are no samples."""
        samples = sorted(samples_us)
        if not samples:
            return None
        if len(samples) < 4:
            return cls(statistics.median(samples), samples[0], samples[-1])
        low, _, high = statistics.quantiles(samples, n=4, method="inclusive")
        return cls(statistics.median(samples), low, high)


def plausible(samples_us: Iterable[float], floor_us: float = 0.0) -> tuple[tuple[float, ...], int]:
    """Splits what a clock said into times that can be and the number of those that cannot.

    Discarded: zero, negative, NaN, infinite, and anything under ``floor_us``, the time below which the problem's
    bytes and flops cannot be (:func:`floor_us`).
    """
    kept, discarded = [], 0
    for sample in samples_us:
        if isinstance(sample, (int, float)) and math.isfinite(sample) and sample > 0 and sample >= floor_us:
            kept.append(float(sample))
        else:
            discarded += 1
    return tuple(kept), discarded


#: A time this far under the datasheet's roofline is an error of the clock, not a fast kernel: 0.8 leaves room for
#: boost clocks above the datasheet's and for peaks that were measured rather than specified.
ROOFLINE_SLACK = 0.8


def floor_us(bytes_moved: int, flops: int, bandwidth: float | None, peak: float | None, l2_bytes: int = 0) -> float:
    """No honest time is below this, in us. ``bandwidth`` in bytes/s, ``peak`` in flop/s; None: unknown, no floor.

    Up to ``l2_bytes`` of the operands may still lie in the cache from the call before, so they are not counted.
    """
    memory = max(0, bytes_moved - l2_bytes) / bandwidth if bandwidth else 0.0
    arithmetic = flops / peak if peak else 0.0
    return ROOFLINE_SLACK * 1e6 * max(memory, arithmetic)


@dataclass(frozen=True)
class Measurement:
    """One tactic on one problem.

    ``status`` is ``"ok"`` or one of ``FAILURES``; ``message`` is one line about a failure. ``samples_us`` are
    microseconds per call, each the mean over one uninterrupted run of calls, and a call is what serving pays:
    the prepare kernel and the GEMM kernel. ``median_us``, ``low_us``, ``high_us`` follow from them (see
    :class:`Stats`) and are None without samples. ``error`` is the worst relative error (2-norm) of a group,
    None when it was not checked or is not a number. ``discarded`` counts implausible samples. ``conditions``
    holds plain values: how it was timed and the device's clocks, power and temperature meanwhile.
    """

    tactic: Tactic
    status: str = OK
    message: str = ""
    samples_us: tuple[float, ...] = ()
    error: float | None = None
    discarded: int = 0
    conditions: Mapping[str, Any] = field(default_factory=dict)
    median_us: float | None = field(init=False)
    low_us: float | None = field(init=False)
    high_us: float | None = field(init=False)

    def __post_init__(self) -> None:
        if self.status != OK and self.status not in FAILURES:
            raise InputError(f"unknown status {self.status!r}: use ok or one of {', '.join(FAILURES)}")
        object.__setattr__(self, "samples_us", tuple(self.samples_us))
        object.__setattr__(self, "message", " ".join(self.message.split()))
        if self.status == OK and not self.samples_us:
            raise InputError(f"{self.tactic}: a measurement without samples cannot be ok")
        if self.error is not None and not math.isfinite(self.error):
            object.__setattr__(self, "error", None)
        stats = Stats.of(self.samples_us)
        for name in ("median", "low", "high"):
            object.__setattr__(self, f"{name}_us", getattr(stats, name, None))

    @classmethod
    def of(
        cls,
        tactic: Tactic,
        raw_us: Iterable[float],
        *,
        floor_us: float = 0.0,
        error: float | None = None,
        conditions: Mapping[str, Any] | None = None,
    ) -> Measurement:
        """From what a clock said: implausible samples are dropped and counted; none left is ``not_measured``."""
        kept, discarded = plausible(raw_us, floor_us)
        status, message = OK, ""
        if not kept:
            status = NOT_MEASURED
            message = f"none of {discarded} samples can be a time (the roofline allows no less than {floor_us:.3g} us)"
        return cls(tactic, status, message, kept, error, discarded, dict(conditions or {}))

    @classmethod
    def failed(cls, tactic: Tactic, status: str, message: str, **more: Any) -> Measurement:
        return cls(tactic, status, message, **more)

    @property
    def ok(self) -> bool:
        return self.status == OK

    def merged(self, other: Measurement) -> Measurement:
        """This and a later measurement of the same tactic and problem: samples add up, a failure wins.

        The later one's conditions stand; its error too, unless it was not checked again.
        """
        if other.tactic != self.tactic:
            raise InputError(f"cannot merge samples of {other.tactic} into those of {self.tactic}")
        worst = self if not self.ok else other
        errors = [error for error in (self.error, other.error) if error is not None]
        return Measurement(
            self.tactic,
            worst.status,
            worst.message,
            self.samples_us + other.samples_us,
            max(errors, default=None),
            self.discarded + other.discarded,
            {**self.conditions, **other.conditions},
        )

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON; what is empty is left out. :meth:`from_dict` gives back an equal Measurement."""
        values: dict[str, Any] = {"tactic": self.tactic.id, "status": self.status}
        if self.message:
            values["message"] = self.message
        if self.samples_us:
            values |= {"median_us": self.median_us, "low_us": self.low_us, "high_us": self.high_us}
            values["samples_us"] = list(self.samples_us)
        if self.error is not None:
            values["error"] = self.error
        if self.discarded:
            values["discarded"] = self.discarded
        if self.conditions:
            values["conditions"] = dict(self.conditions)
        return values

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Measurement:
        """The reverse of :meth:`as_dict`. Statistics are computed again from the samples."""
        try:
            return cls(
                Tactic.parse(values["tactic"]),
                values["status"],
                values.get("message", ""),
                tuple(float(sample) for sample in values.get("samples_us", ())),
                values.get("error"),
                int(values.get("discarded", 0)),
                dict(values.get("conditions", {})),
            )
        except (KeyError, TypeError, ValueError) as error:
            if isinstance(error, InputError):
                raise
            raise InputError(f"not a measurement: {error!r}") from None
