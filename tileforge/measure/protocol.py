"""The two seams of measuring: what a search talks to, and what runs inside the worker process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from tileforge.measure.result import Measurement
from tileforge.problem import GroupedGemm
from tileforge.tactic import Tactic

if TYPE_CHECKING:
    from tileforge.toolchain import Kernel


@runtime_checkable
class Bench(Protocol):
    """Times tactics on one device.

    Contract. ``measure`` always answers with a Measurement: whatever a tactic does (dies, hangs, writes rubbish)
    becomes a status, and the next call finds a working device. It raises DeviceError only when there is no
    device to go on with. Every call returns *new* samples; asking for the same tactic again is how a caller gets
    more of them (:meth:`Measurement.merged`), and is cheap while the problem stays the same.
    """

    def facts(self) -> dict[str, Any]:
        """The device: ``name``, ``sm`` ("sm90"), ``sms``, ``smem_per_block``, ``l2_bytes``, ``memory_bytes``,
        ``driver``, ``cuda``, ``torch``, ``fake`` (True: times are made up). Unknown figures are None."""

    def measure(
        self, problem: GroupedGemm, tactic: Tactic, kernel: Kernel | None = None, samples: int = 7
    ) -> Measurement:
        """``samples`` new times of ``tactic`` (run with ``kernel``, its compiled form) on ``problem``."""

    def renew(self) -> None:
        """Makes the next measurement the first one of a fresh process."""

    def close(self) -> None:
        """Lets the device go. Calling it twice is fine."""


#: Called by a backend as it goes from ``"inputs"`` to ``"check"`` to ``"time"``: what a death is blamed on.
Phase = Callable[[str], None]


class Owner(Protocol):
    """What the worker process runs: it owns the device and may die with it.

    ``dead`` True after a call means that the device's context is lost: the worker hands the result in and is
    replaced. Methods of its own are called by name (:meth:`WorkerBench.call`): they take keyword arguments, among
    them ``phase``, and answer with plain values.
    """

    dead: bool

    def facts(self) -> dict[str, Any]: ...

    def close(self) -> None: ...


class Backend(Owner, Protocol):
    """An owner that times. An exception that leaves ``measure`` is its own bug, not a property of the tactic."""

    def measure(
        self, problem: GroupedGemm, tactic: Tactic, kernel: Path | None, samples: int, phase: Phase
    ) -> Measurement: ...

    def baseline(self, name: str, problem: GroupedGemm | None, samples: int) -> dict[str, Any]:
        """Times something that is not a tactic (:mod:`tileforge.measure.baselines`); plain values."""
