"""Complete sweeps: every tactic on every problem, written as it is measured, to be replayed without a GPU."""

from __future__ import annotations

import math
import os
import random
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from tileforge.errors import InputError, TileforgeError
from tileforge.measure.protocol import Bench
from tileforge.measure.sweep import Sweep, header_of, line_of
from tileforge.problem import GroupedGemm
from tileforge.search.events import Event, OnEvent, silent
from tileforge.search.kernels import KernelSource
from tileforge.search.scratch import drop_torn_line
from tileforge.tactic import Tactic

#: Facts of the device that must be the same for a sweep to be continued.
_SAME = ("name", "sms", "driver")


def sweep(
    problems: Sequence[GroupedGemm],
    tactics: Callable[[GroupedGemm], Iterable[Tactic]] | Iterable[Tactic],
    path: Path,
    *,
    bench: Bench,
    kernels: KernelSource | None = None,
    samples: int = 7,
    passes: int = 1,
    seed: int = 0,
    note: str = "",
    on_event: OnEvent | None = None,
) -> Sweep:
    """Measures ``tactics`` (or those of a function of the problem) on each of ``problems`` into ``path``.

    Kernels are compiled first, in one parallel batch. Tactics are measured in a seeded shuffled order, so that a
    drift of the clock is not taken for a property of their neighbours, ``passes`` times in different orders (a line
    each, whose samples add up), after one measurement that is thrown away; every line is on disk before the next
    tactic starts. Failures are lines too. Called again with the same path it goes on with what is missing (Ctrl-C is
    therefore harmless). The format is :mod:`tileforge.measure.sweep`'s.

    Raises InputError when ``path`` holds a sweep of another device, TileforgeError when it cannot be written.
    """
    listen, source = on_event or silent, kernels or KernelSource(None, "")
    given = tactics if callable(tactics) else list(tactics)
    wanted = {problem: list(given(problem) if callable(given) else given) for problem in problems}
    known = _opened(path, bench, note)
    todo: list[tuple[GroupedGemm, list[Tactic]]] = []
    for number, (problem, candidates) in enumerate(wanted.items()):
        there = {name: len(found.samples_us) if found.ok else math.inf for name, found in known.of(problem).items()}
        todo.append((problem, []))
        for turn in range(passes):
            left = [each for each in dict.fromkeys(candidates) if there.get(each.id, 0) <= turn * samples]
            random.Random(f"{seed} {number} {turn}").shuffle(left)
            todo[-1][1].extend(left)
    specs = list(dict.fromkeys(spec for problem, left in todo for spec in source.missing(problem, left)))
    if specs:
        listen(Event("build", problems[0], 0, len(specs), message=f"compiling {len(specs)} kernels"))
        source.build(specs)
    done, total = 0, sum(len(left) for _, left in todo)
    with path.open("a", encoding="utf-8") as file:
        for problem, left in todo:
            listen(Event("start", problem, done, total))
            if left and source.failure(problem, left[0]) is None:
                bench.measure(problem, left[0], source.kernel(problem, left[0]), samples)
            for tactic in left:
                done += 1
                before = known.of(problem).get(tactic.id)
                if before is not None and not before.ok:
                    continue  # a failure is not tried again in the next pass
                measurement = source.failure(problem, tactic) or bench.measure(
                    problem, tactic, source.kernel(problem, tactic), samples
                )
                file.write(line_of(problem, measurement) + "\n")
                file.flush()
                os.fsync(file.fileno())
                known.add(problem, measurement)
                listen(Event("trial", problem, done, total, None, tactic, measurement))
    return known


def _opened(path: Path, bench: Bench, note: str) -> Sweep:
    """The sweep that is there already, or a new one with its header written."""
    facts = bench.facts()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        drop_torn_line(path)
        if path.is_file() and path.stat().st_size:
            known = Sweep.load(path)
            for fact in _SAME:
                if known.facts.get(fact) != facts.get(fact):
                    raise InputError(
                        f"{path} was taken on a device with {fact} {known.facts.get(fact)}, here it is "
                        f"{facts.get(fact)}: give another file"
                    )
            return known
        path.write_text(header_of(facts, note) + "\n", encoding="utf-8")
    except OSError as error:
        raise TileforgeError(
            f"cannot write the sweep {path}: {error.strerror}: give a path that can be written"
        ) from None
    return Sweep(dict(facts), note)
