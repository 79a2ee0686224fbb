"""The clock: CUDA graphs of many calls, events around each replay, everything queued before it is waited for.

One **call** is what serving pays: the prepare kernel (sizes and pointers from the device's offsets) and the GEMM.
One **sample** is the time of one graph replay over its number of calls. The graph holds nothing but those
kernels, runs through the operand sets in turn so that weights come from memory rather than from the L2, and is
long enough (2 ms) for the events' resolution and the gap between replays (1 to 2 us) to be under 0.1 %. All
replays of a measurement are queued behind a warm one, so the GPU never waits for the host, which matters for
kernels of a few microseconds.

Imports torch.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

#: A sample is at least this long, and what warms the clocks up before the first one.
SAMPLE_US = 2_000.0
WARM_US = 10_000.0
#: The same for a problem bound by arithmetic. It meets the power cap, and the clock then falls for about a tenth of a
#: second: short bursts of one tactic read 600 to 690 us within one sweep (H200, 2026-11-30, bf16, 256 rows per group),
#: while serving a prefill runs at the settled clock.
SETTLE_US = 120_000.0
#: Calls in one graph at most: about 1 KB of driver memory for each kernel, and a launch cost on the host.
MAX_CALLS = 1024
_FIRST_CALLS = 4
#: torch.cuda, whose streams and events are not typed.
_cuda: Any = torch.cuda
_WARM_REPLAYS = 256

#: ``launch(set)`` enqueues one call on operand set ``set`` on the clock's stream.
Launch = Callable[[int], None]


def calls_for(call_us: float, sets: int) -> int:
    """Calls in a sample: enough for ``SAMPLE_US``, and a multiple of ``sets`` so that every replay meets them all."""
    wanted = min(MAX_CALLS, math.ceil(SAMPLE_US / call_us)) if call_us > 0 else MAX_CALLS
    return max(1, math.ceil(wanted / sets)) * sets


@dataclass(frozen=True)
class Timed:
    """A graph that is ready to be replayed; ``call_us`` is a first estimate, ``warm_us`` what is run before samples."""

    graph: Any
    calls: int
    call_us: float
    warm_us: float = WARM_US


class GraphClock:
    """Times launches on a stream of its own, on which they must be enqueued."""

    def __init__(self, device: torch.device) -> None:
        self.stream = _cuda.Stream(device)

    def capture(self, launch: Launch, sets: int, warm_us: float = WARM_US) -> Timed:
        """Warms up, estimates the time of a call and captures a graph of the right length."""
        with torch.cuda.stream(self.stream):
            for index in range(min(sets, _FIRST_CALLS) + 1):
                launch(index % sets)
            self.stream.synchronize()
            calls = max(1, math.ceil(_FIRST_CALLS / sets)) * sets
            graph = self._graph(launch, sets, calls)
            call_us = self._replay(graph, 1, 1)[0] / calls
            wanted = calls_for(call_us, sets)
            if wanted > calls:
                graph, calls = self._graph(launch, sets, wanted), wanted
        return Timed(graph, calls, call_us, warm_us)

    def samples(self, timed: Timed, count: int, meanwhile: Callable[[], None] = lambda: None) -> list[float]:
        """``count`` times in us per call. ``meanwhile`` runs on the host after all is queued and before waiting."""
        replay_us = max(1.0, timed.call_us * timed.calls)
        warm = max(1, min(_WARM_REPLAYS, math.ceil(timed.warm_us / replay_us)))
        with torch.cuda.stream(self.stream):
            return [us / timed.calls for us in self._replay(timed.graph, warm, count, meanwhile)]

    def _graph(self, launch: Launch, sets: int, calls: int) -> Any:
        # capture_begin/end rather than torch.cuda.graph: that one collects garbage and empties the allocator's
        # cache each time, which costs more than the measurement.
        graph = torch.cuda.CUDAGraph()
        graph.capture_begin(capture_error_mode="thread_local")
        try:
            for index in range(calls):
                launch(index % sets)
        finally:
            graph.capture_end()
        return graph

    def _replay(self, graph: Any, warm: int, count: int, meanwhile: Callable[[], None] = lambda: None) -> list[float]:
        events = [_cuda.Event(enable_timing=True) for _ in range(count + 1)]
        for _ in range(warm):
            graph.replay()
        events[0].record(self.stream)
        for event in events[1:]:
            graph.replay()
            event.record(self.stream)
        meanwhile()
        self.stream.synchronize()
        return [before.elapsed_time(after) * 1e3 for before, after in zip(events, events[1:], strict=False)]
