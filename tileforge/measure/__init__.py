"""Measuring kernels: one interface (:class:`Bench`) in front of a killable GPU worker and of a fake device.

:mod:`~tileforge.measure.result`      failure classes, :class:`Measurement`, its statistics
:mod:`~tileforge.measure.protocol`    :class:`Bench` (what a search talks to), :class:`Backend` (what a worker runs)
:mod:`~tileforge.measure.fake`        a device made of arithmetic, or of a recorded sweep: needs no GPU
:mod:`~tileforge.measure.sweep`       the recorded sweep's file format
:mod:`~tileforge.measure.worker`      the process that owns the GPU and can be killed
:mod:`~tileforge.measure.gpu`         what runs in it: inputs, reference, check, time

Nothing here imports torch before a GPU is asked for.
"""

from tileforge.measure.fake import FakeBench
from tileforge.measure.protocol import Bench
from tileforge.measure.result import FAILURES, OK, Measurement

__all__ = ["FAILURES", "OK", "Bench", "FakeBench", "Measurement"]
