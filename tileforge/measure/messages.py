"""What goes through the pipe between the bench and its worker process, as pickled dataclasses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tileforge.measure.result import Measurement
from tileforge.problem import GroupedGemm
from tileforge.tactic import Tactic


@dataclass(frozen=True)
class Start:
    """To the worker, once: which backend to make (``"package.module:Class"``), with which keyword arguments."""

    backend: str
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Ready:
    """From the worker: the backend owns its device."""

    facts: dict[str, Any]


@dataclass(frozen=True)
class Refused:
    """From the worker, before it ends: there is no device to work with."""

    message: str


@dataclass(frozen=True)
class Measure:
    """To the worker. ``sequence`` comes back in everything said about it; ``kernel`` is the shared object."""

    sequence: int
    problem: GroupedGemm
    tactic: Tactic
    kernel: Path | None
    samples: int


@dataclass(frozen=True)
class Baseline:
    """To the worker: time something that is not a tactic."""

    sequence: int
    name: str
    problem: GroupedGemm | None
    samples: int


@dataclass(frozen=True)
class Call:
    """To the worker: call a method of the backend's own, which answers with plain values."""

    sequence: int
    method: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True)
class InPhase:
    """From the worker: what it is about to do, so that a death or a hang is blamed on the right thing."""

    sequence: int
    phase: str


@dataclass(frozen=True)
class Reply:
    """From the worker. ``dead``: the device's context is lost, replace me. ``error``: one line, why
    there are no values."""

    sequence: int
    measurement: Measurement | None = None
    values: dict[str, Any] | None = None
    error: str = ""
    dead: bool = False
