"""The record: one answer of the database, with everything it stands on.

Provenance, strongest first: ``measured`` (timed on that GPU), ``transferred`` (taken from elsewhere: another GPU,
another size, or a person's hand), ``predicted`` (a model said so). Only a measured record has a ``time_us``; a
prediction lives in ``predicted_us``, here and in the file.
"""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from tileforge.db.environment import INFORMATIVE
from tileforge.db.key import GpuFacts, Key
from tileforge.errors import InputError
from tileforge.problem import GroupedGemm
from tileforge.routing import Routing
from tileforge.tactic import Tactic

if TYPE_CHECKING:
    from tileforge.arch.gpus import Gpu

PROVENANCES = ("measured", "transferred", "predicted")

Scalar = str | int | float | bool | None
_FIELD = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}")


class Measured(Protocol):
    """What a record takes from a measurement (:mod:`tileforge.measure`)."""

    @property
    def tactic(self) -> Tactic: ...
    @property
    def median_us(self) -> float | None: ...
    @property
    def low_us(self) -> float | None: ...
    @property
    def high_us(self) -> float | None: ...
    @property
    def samples_us(self) -> tuple[float, ...]: ...
    @property
    def error(self) -> float | None: ...
    @property
    def conditions(self) -> Mapping[str, Any]: ...


def rounded(value: float | None, digits: int) -> float | None:
    """``value`` to ``digits`` significant digits: five for times (noise is never below 1e-4), three for errors."""
    return None if value is None else float(f"{float(value):.{digits}g}")


def _check_times(what: str, **times: float | None) -> None:
    for name, value in times.items():
        if value is not None and not (math.isfinite(value) and 0 < value < 1e12):
            raise InputError(f"{what}{name} = {value!r} is not a time in microseconds")


def flat(conditions: Mapping[str, Any], prefix: str = "") -> dict[str, Scalar]:
    """Conditions as one level of plain values: nested names joined by dots, lists by commas, floats rounded."""
    plain: dict[str, Scalar] = {}
    for name, value in conditions.items():
        full = f"{prefix}{name}"
        if isinstance(value, Mapping):
            plain |= flat(value, f"{full}.")
        elif isinstance(value, bool | int | str) or value is None:
            plain[full] = value
        elif isinstance(value, Iterable):
            plain[full] = ",".join(map(str, value))
        else:
            plain[full] = rounded(float(value), 4)
    return plain


@dataclass(frozen=True)
class Evidence:
    """A result for the same key that is not the answer: a worse one, or one that the answer replaced."""

    tactic: Tactic
    provenance: str = "measured"
    time_us: float | None = None
    low_us: float | None = None
    high_us: float | None = None
    samples: int | None = None
    error: float | None = None
    date: str = ""
    environment: Mapping[str, str] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        _check_evidence(self)

    @classmethod
    def of(cls, record: Record) -> Evidence:
        return cls(**{name: getattr(record, name) for name in cls.__dataclass_fields__})

    def as_dict(self) -> dict[str, Any]:
        values = {name: getattr(self, name) for name in self.__dataclass_fields__}
        values = {name: value for name, value in values.items() if value not in (None, "", {})}
        return values | {"tactic": self.tactic.id}


def _check_evidence(self: Evidence | Record) -> None:
    """What records and their evidence have in common: values rounded as they are written, then checked."""
    for name, digits in (("time_us", 5), ("low_us", 5), ("high_us", 5), ("error", 3)):
        object.__setattr__(self, name, rounded(getattr(self, name), digits))
    object.__setattr__(self, "environment", {k: str(v) for k, v in self.environment.items() if v is not None})
    if self.provenance not in PROVENANCES:
        raise InputError(f"unknown provenance {self.provenance!r}: use one of {', '.join(PROVENANCES)}")
    if (self.time_us is not None) != (self.provenance == "measured"):
        raise InputError(
            f"a {self.provenance} record {'needs' if self.time_us is None else 'must not have'} time_us: "
            "only what was measured has a time"
        )
    _check_times("", time_us=self.time_us, low_us=self.low_us, high_us=self.high_us)
    low, high = self.low_us or self.time_us or 0, self.high_us or self.time_us or math.inf
    if self.time_us is not None and not low <= self.time_us <= high:
        raise InputError(f"time_us {self.time_us:g} is not between low_us {low:g} and high_us {high:g}")
    if self.time_us is None and not (self.low_us is self.high_us is self.samples is self.error is None):
        raise InputError(f"a {self.provenance} record must not have low_us, high_us, samples or error")
    if self.samples is not None and not 1 <= self.samples < 2**31:
        raise InputError(f"samples = {self.samples!r} is not a number of samples")
    if self.error is not None and not (math.isfinite(self.error) and self.error >= 0):
        raise InputError(f"error = {self.error!r} is not a relative error")
    if self.date:
        try:
            datetime.date.fromisoformat(self.date)
        except ValueError:
            raise InputError(f"date {self.date!r} is not a date: write it as 2026-11-30") from None
    for name in self.environment:
        if not _FIELD.fullmatch(name):
            raise InputError(f"environment field {name!r} is not a name")


@dataclass(frozen=True)
class Record:
    """What to run for M up to ``m`` rows (the bucket) of the problems of ``key``.

    Parameters
    ----------
    key, gpu: whose answer this is, and the hard facts of that GPU.
    m, routing, seed: the problem that was timed; look-ups round M up to ``m``.
    tactic, provenance: the answer, and what it stands on.
    time_us, low_us, high_us, samples, error: median, spread (both in microseconds), count, worst per-group
        relative error. Measured records only.
    predicted_us: the model's time, for predicted and transferred records.
    default, default_us: what would have run without tuning, timed (or predicted) in the same run.
    ties: tactics that could not be told from this one; they read as equal in a re-tune.
    origin: where a transferred tactic came from. note: free text.
    environment: see :mod:`tileforge.db.environment`. conditions: clocks, power, temperature of the run; told,
        never compared.
    evidence: other results for the same key.

    Raises InputError when the fields contradict each other.
    """

    key: Key
    m: int
    tactic: Tactic
    routing: Routing = Routing("balanced")
    provenance: str = "measured"
    time_us: float | None = None
    low_us: float | None = None
    high_us: float | None = None
    samples: int | None = None
    error: float | None = None
    predicted_us: float | None = None
    default: Tactic | None = None
    default_us: float | None = None
    ties: tuple[Tactic, ...] = ()
    date: str = ""
    seed: int = 0
    origin: str = ""
    note: str = ""
    environment: Mapping[str, str] = field(default_factory=dict, hash=False)
    conditions: Mapping[str, Scalar] = field(default_factory=dict, hash=False)
    evidence: tuple[Evidence, ...] = ()
    gpu: GpuFacts = GpuFacts()

    def __post_init__(self) -> None:
        object.__setattr__(self, "routing", Routing.parse(self.routing))
        for name in ("predicted_us", "default_us"):
            object.__setattr__(self, name, rounded(getattr(self, name), 5))
        object.__setattr__(self, "conditions", flat(self.conditions))
        _check_evidence(self)
        if isinstance(self.m, bool) or not isinstance(self.m, int) or not 1 <= self.m < 2**31:
            raise InputError(f"m = {self.m!r} is not a bucket: the largest M a record answers for, 1 or more")
        if self.routing.kind == "rows":
            self.routing.sizes(self.m, self.key.groups)
        _check_times("", predicted_us=self.predicted_us, default_us=self.default_us)
        if self.provenance == "measured" and self.predicted_us is not None:
            raise InputError("a measured record must not have predicted_us")
        if self.provenance == "predicted" and self.predicted_us is None:
            raise InputError("a predicted record needs predicted_us")
        if self.default is None and self.default_us is not None:
            raise InputError("the default's time needs the default's tactic")
        for name in self.conditions:
            if not _FIELD.fullmatch(name):
                raise InputError(f"condition {name!r} is not a name")

    @property
    def slot(self) -> tuple[int, str]:
        """What is unique within a file: bucket and routing."""
        return self.m, str(self.routing)

    @property
    def rows_per_group(self) -> float:
        return self.m / self.key.groups

    @property
    def speedup(self) -> float | None:
        """Default's time over this one's, both measured or both predicted."""
        ours = self.time_us if self.provenance == "measured" else self.predicted_us
        return None if ours is None or self.default_us is None else self.default_us / ours

    @property
    def problem(self) -> GroupedGemm:
        """The problem that the record was made for."""
        key = self.key
        return GroupedGemm(self.m, key.n, key.k, key.groups, key.format, key.out, self.routing, self.seed)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, as ``--json`` prints them; empty fields are left out."""
        values: dict[str, Any] = {"key": self.key.as_dict(), "m": self.m, "rows_per_group": self.rows_per_group}
        for name in self.__dataclass_fields__:
            if name not in ("key", "m", "gpu") and (value := getattr(self, name)) not in (None, "", (), {}):
                values[name] = value
        values |= {"routing": str(self.routing), "tactic": self.tactic.as_dict(), "tactic_id": self.tactic.id}
        for name in ("ties", "evidence"):
            if name in values:
                values[name] = [item.id if isinstance(item, Tactic) else item.as_dict() for item in values[name]]
        if self.default is not None:
            values["default"] = self.default.id
        return values

    @classmethod
    def from_measurement(
        cls,
        problem: GroupedGemm,
        gpu: Gpu,
        best: Measured,
        default: Measured | None = None,
        *,
        ties: Iterable[Tactic | str] = (),
        environment: Mapping[str, str],
        date: str | None = None,
        **others: Any,
    ) -> Record:
        """A measured record of ``best`` for ``problem`` on ``gpu``; ``others`` are fields of the record or key.

        ``ties`` are tactics or their ids. ``date`` None is today. A default that failed keeps its tactic and has no
        time.
        """
        tied = {Tactic.parse(tie) if isinstance(tie, str) else tie for tie in ties}
        own = {name: others.pop(name) for name in ("scale_layout", "family", "execution") if name in others}
        return cls(
            key=Key.of(problem, gpu.sku, **own),
            gpu=GpuFacts.of(gpu),
            m=problem.m,
            routing=Routing.parse(problem.routing),
            seed=problem.seed,
            tactic=best.tactic,
            provenance="measured",
            time_us=best.median_us,
            low_us=best.low_us,
            high_us=best.high_us,
            samples=len(best.samples_us) or None,
            error=best.error,
            conditions=best.conditions,
            default=None if default is None else default.tactic,
            default_us=None if default is None else default.median_us or None,
            ties=tuple(sorted(tied - {best.tactic}, key=lambda tactic: tactic.id)),
            date=datetime.date.today().isoformat() if date is None else date,
            environment=environment,
            **others,
        )

    @classmethod
    def from_prediction(
        cls,
        problem: GroupedGemm,
        gpu: Gpu,
        tactic: Tactic,
        predicted_us: float,
        default: Tactic | None = None,
        default_us: float | None = None,
        *,
        environment: Mapping[str, str],
        **others: Any,
    ) -> Record:
        """A predicted record: no date, no time; the same prediction is the same record, byte for byte."""
        own = {name: others.pop(name) for name in ("scale_layout", "family", "execution") if name in others}
        return cls(
            key=Key.of(problem, gpu.sku, **own),
            gpu=GpuFacts.of(gpu),
            m=problem.m,
            routing=Routing.parse(problem.routing),
            seed=problem.seed,
            tactic=tactic,
            provenance="predicted",
            predicted_us=predicted_us,
            default=default,
            default_us=default_us,
            environment={name: value for name, value in environment.items() if name not in INFORMATIVE},
            **others,
        )
