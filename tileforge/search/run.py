"""The search: default first, then the predicted leaders, then the sampler and the model in turns; then finals."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from tileforge.measure.protocol import Bench
from tileforge.measure.result import Measurement
from tileforge.measure.sweep import problem_text
from tileforge.predict import Prediction, leaders
from tileforge.problem import GroupedGemm
from tileforge.search import finals as finals_
from tileforge.search.budget import Budget
from tileforge.search.choose import SmemOf, choose, decide, no_smem, nothing_matters, right
from tileforge.search.confirm import confirm as confirm_
from tileforge.search.drift import Timeline
from tileforge.search.events import Event, OnEvent, silent
from tileforge.search.kernels import Builder, KernelSource
from tileforge.search.result import Choice, Finals, SearchResult
from tileforge.search.scratch import Scratch
from tileforge.search.study import TacticStudy
from tileforge.tactic import Tactic

#: Predicted leaders that are tried before the sampler is asked.
LEADERS = 8
#: Tactics that race the default in the finals, and how far behind the fastest one may be to get there.
CONTENDERS, CONTENDER_MARGIN = 6, 0.10
#: The clock is followed by measuring the anchor again after this many tactics, with this many samples.
ANCHOR_EVERY, ANCHOR_SAMPLES = 8, 3
#: A tactic that the sampler wishes for again gets more samples, up to this many times the first number.
MOST_SAMPLES = 3


def run(
    problem: GroupedGemm,
    tactics: Sequence[Tactic],
    default: Tactic | None,
    *,
    bench: Bench,
    builder: Builder | None = None,
    arch: str = "",
    budget: Budget | str | int | None = None,
    journal: Path | None = None,
    predictions: Sequence[tuple[Tactic, Prediction]] | None = None,
    first: Iterable[Tactic] = (),
    kernels: KernelSource | None = None,
    smem: SmemOf = no_smem,
    samples: int = 7,
    pairs: int = finals_.PAIRS,
    confirm: bool = False,
    seed: int = 0,
    context: str = "",
    on_event: OnEvent | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> SearchResult:
    """Searches the legal ``tactics`` (run-time fields included) of ``problem`` and chooses one.

    default: measured first and raced in the finals; must be among ``tactics`` (else it does not take part).
    builder, arch: compile what is measured (or ``kernels``, shared by several problems); None for a fake bench.
    budget: see :class:`Budget`; at least the number of survivors means exhaustive, without a sampler.
    journal: the study's file; measurements go to the same name with ``.samples.jsonl``. The same call with the
    same file goes on where a killed one stopped. ``context`` (CUTLASS version ...) keeps studies apart.
    predictions: the ranking of ``tactics``; without it their order stands. ``first``: tried before the leaders.
    smem: bytes of shared memory of a tactic, for ties.
    confirm: repeat the finals in a fresh process (:mod:`tileforge.search.confirm`).

    Ctrl-C ends the search early and chooses among what was measured (``interrupted``). Raises DeviceError when
    the bench has no device left.
    """
    budget = Budget.parse(budget)
    order = [tactic for tactic, _ in predictions] if predictions else list(tactics)
    survivors = set(tactics)
    order = list(dict.fromkeys(tactic for tactic in [*order, *tactics] if tactic in survivors))
    lead = leaders(predictions, LEADERS) if predictions else []
    queue = [*([default] if default else []), *first, *lead]
    queue = list(dict.fromkeys(tactic for tactic in queue if tactic in survivors))
    source = kernels or KernelSource(builder, arch)
    search = _Search(problem, order, default if default in survivors else None, bench, source, budget, clock)
    search.listen, search.samples, search.smem, search.pairs = on_event or silent, samples, smem, pairs
    search.guided, search.confirm = predictions is not None, confirm
    return search.run(queue, journal, _study_name(problem, order, bench, context), seed)


def _study_name(problem: GroupedGemm, tactics: Iterable[Tactic], bench: Bench, context: str) -> str:
    """Names everything that must be the same for a measurement to be usable again."""
    facts = bench.facts()
    parts = [problem_text(problem), str(facts.get("name")), str(facts.get("driver")), context]
    parts += sorted(tactic.id for tactic in tactics)
    return f"{problem.key}_m{problem.m}_{hashlib.sha256(chr(10).join(parts).encode()).hexdigest()[:12]}"


class _Search:
    """One run: what was measured so far, and the steps that add to it."""

    def __init__(
        self,
        problem: GroupedGemm,
        order: list[Tactic],
        default: Tactic | None,
        bench: Bench,
        kernels: KernelSource,
        budget: Budget,
        clock: Callable[[], float],
    ) -> None:
        self.problem, self.order, self.default = problem, order, default
        self.bench, self.kernels, self.budget, self.clock = bench, kernels, budget, clock
        self.listen: OnEvent = silent
        self.smem: SmemOf = no_smem
        self.samples, self.pairs = 7, finals_.PAIRS
        self.measured: dict[str, Measurement] = {}
        self.timeline = Timeline()
        self.anchor: Tactic | None = None
        self.resumed = 0
        self.since_anchor = 0
        self.turn, self.guided, self.confirm = 0, False, False
        self.began = clock()

    # -- the whole ------------------------------------------------------------------------------------------

    def run(self, queue: list[Tactic], journal: Path | None, name: str, seed: int) -> SearchResult:
        budget, total = self.budget, len(self.order)
        exhaustive = budget.minutes is None and (budget.trials is None or budget.trials >= total)
        self.total = total if budget.trials is None else min(total, budget.trials)
        self.scratch = Scratch(journal and journal.with_suffix(".samples.jsonl"), name)
        held: Finals | None = None
        interrupted, confirmed = False, None
        choice: Choice | None = None
        try:
            self.reload()
            self.listen(Event("start", self.problem, len(self.measured), self.total))
            if exhaustive:
                self.work_off(list(dict.fromkeys([*queue, *self.order])), None)
            else:
                study = TacticStudy(self.order, name=name, journal=journal, seed=seed)
                queue = list(dict.fromkeys([*study.recover(self.measured), *queue]))
                if self.default in queue:
                    queue.remove(self.default)
                    queue.insert(0, self.default)
                self.work_off(queue, study)
                self.sample(study)
            choice = nothing_matters(self.measured.values(), self.default)
            if choice is None:
                held = self.finals()
            if held is not None and held.measurements and self.confirm:
                held, confirmed = confirm_(held, self.race_afresh, self.decide)
        except KeyboardInterrupt:
            interrupted = True
        if held is not None:
            for failure in held.failures.values():  # right before, wrong or dead now: never the winner
                self.keep("more", failure)
        if held is not None and held.measurements:
            choice = self.decide(held)
        elif choice is None:
            choice = choose(self.measured.values(), self.default, self.smem)
        times = held.measurements if choice.final and held is not None else self.measured
        result = SearchResult(
            problem=self.problem,
            measurements=dict(self.measured),
            choice=choice,
            best=times.get(choice.tactic.id) if choice.tactic else None,
            default=times.get(self.default.id, self.measured.get(self.default.id)) if self.default else None,
            survivors=total,
            finals=held,
            exhaustive=exhaustive,
            interrupted=interrupted,
            confirmed=confirmed,
            resumed=self.resumed,
            seconds=self.clock() - self.began,
        )
        self.listen(
            Event("done", self.problem, len(self.measured), self.total, best=result.best, message=choice.reason)
        )
        return result

    def reload(self) -> None:
        for kind, measurement in self.scratch.read():
            self.note(kind, measurement)
        self.resumed = self.since_anchor = len(self.measured)  # the clock of a resumed run is another one

    def spent(self) -> bool:
        return self.budget.spent(len(self.measured), self.clock() - self.began)

    # -- what is measured -----------------------------------------------------------------------------------

    def work_off(self, queue: list[Tactic], study: TacticStudy | None) -> None:
        """Measures ``queue`` in order, compiling a batch of kernels at a time."""
        queue = [tactic for tactic in queue if tactic.id not in self.measured]
        if self.budget.trials is not None:
            queue = queue[: max(0, self.budget.trials - len(self.measured))]
        # The default and the leaders in one batch; of an exhaustive queue as much as the compilers work on at once.
        step = max(self.kernels.batch, LEADERS + 1)
        ahead = 0
        for position, tactic in enumerate(queue):
            if self.spent():
                return
            if position >= ahead:
                ahead = position + step if study is None else len(queue)
                self.build(queue[position:ahead])
            self.trial(tactic, study)

    def sample(self, study: TacticStudy) -> None:
        """Asks the sampler until the budget is spent, nothing is left, or it only repeats itself."""
        while not self.spent():
            wishes = self.wishes(study)
            if not wishes:
                return
            self.build(wishes)
            for tactic in wishes:
                if self.spent():
                    return
                if tactic.id in self.measured:
                    self.more(tactic)
                else:
                    self.trial(tactic, study)

    def wishes(self, study: TacticStudy) -> list[Tactic]:
        """The next tactic; where it needs a kernel, a few more, so that the compilers run side by side."""
        found: list[Tactic] = []
        taken: set[str] = set()
        room = self.kernels.batch if self.kernels.builder is not None else 1
        if self.budget.trials is not None:
            room = min(room, self.budget.trials - len(self.measured))
        while len(found) < room:
            # The latency model and the sampler take turns: where one is wrong, the other half goes on.
            self.turn += 1
            tactic = None
            if self.guided and self.turn % 2:
                new = (each for each in self.order if each.id not in self.measured and each.id not in taken)
                tactic = next(new, None)
            if tactic is None:
                tactic = study.propose(
                    lambda each: each.id in self.measured or each.id in taken,
                    lambda each: each.id not in taken and self.repeatable(each),
                    lambda each: 0.5 if self.kernels.missing(self.problem, [each]) else 0.0,
                )
            if tactic is None:
                break
            found.append(tactic)
            taken.add(tactic.id)
            if not self.kernels.missing(self.problem, found):
                break
        return found

    def repeatable(self, tactic: Tactic) -> bool:
        before = self.measured[tactic.id]
        return before.ok and len(before.samples_us) < MOST_SAMPLES * self.samples

    def build(self, tactics: Iterable[Tactic]) -> None:
        specs = self.kernels.missing(self.problem, tactics)
        if not specs:
            return
        done = 0

        def on_done(outcome: Any) -> None:
            nonlocal done
            done += 1
            self.listen(Event("built", self.problem, done, len(specs), message=getattr(outcome, "message", "")))

        self.listen(Event("build", self.problem, 0, len(specs), message=f"compiling {len(specs)} kernels"))
        self.kernels.build(specs, on_done)

    def trial(self, tactic: Tactic, study: TacticStudy | None) -> None:
        number = study.start(tactic) if study is not None else None
        measurement = self.measure(tactic, self.samples)
        self.keep("trial", measurement)
        if study is not None and number is not None:
            study.tell(number, measurement)
        elapsed, fresh = self.clock() - self.began, len(self.measured) - self.resumed
        eta = self.budget.eta_s(len(self.measured), fresh, elapsed, len(self.order))
        self.listen(
            Event("trial", self.problem, len(self.measured), self.total, eta, tactic, measurement, self.fastest())
        )
        self.since_anchor += 1
        if self.since_anchor >= ANCHOR_EVERY:
            self.follow_clock()

    def follow_clock(self) -> None:
        if self.anchor is not None and self.since_anchor:
            self.since_anchor = 0
            self.build([self.anchor])
            self.keep("anchor", self.measure(self.anchor, ANCHOR_SAMPLES))

    def more(self, tactic: Tactic) -> None:
        self.keep("more", self.measure(tactic, self.samples))
        merged = self.measured[tactic.id]
        self.listen(Event("more", self.problem, len(self.measured), self.total, None, tactic, merged, self.fastest()))

    def measure(self, tactic: Tactic, samples: int) -> Measurement:
        failed = self.kernels.failure(self.problem, tactic)
        return failed or self.bench.measure(self.problem, tactic, self.kernels.kernel(self.problem, tactic), samples)

    def keep(self, kind: str, measurement: Measurement) -> None:
        self.scratch.write(kind, measurement)
        self.note(kind, measurement)

    def note(self, kind: str, measurement: Measurement) -> None:
        """``anchor`` samples only follow the clock; the others are the tactic's."""
        self.timeline.add(measurement, anchor=kind == "anchor")
        if kind == "anchor":
            return
        before = self.measured.get(measurement.tactic.id)
        self.measured[measurement.tactic.id] = before.merged(measurement) if before else measurement
        if self.anchor is None and measurement.ok:
            self.anchor = measurement.tactic
            self.timeline.start_anchor(measurement)

    # -- what comes out -------------------------------------------------------------------------------------

    def fastest(self) -> Measurement | None:
        return min(right(self.measured.values()), key=lambda each: each.median_us or 0.0, default=None)

    def finals(self) -> Finals | None:
        """The default and the fastest few, drift taken out; None when there is nothing to race."""
        self.follow_clock()
        fair = {each.tactic: self.timeline.fair_us(each.tactic.id) for each in right(self.measured.values())}
        if not fair:
            return None
        limit = min(fair.values()) * (1 + CONTENDER_MARGIN)
        ranked = sorted((time, tactic.id, tactic) for tactic, time in fair.items() if time <= limit)
        contenders = [tactic for _, _, tactic in ranked if tactic != self.default][:CONTENDERS]
        entrants = [*([self.default] if self.default in fair and self.default else []), *contenders]
        if len(entrants) < 2:
            return None
        self.build(entrants)
        return self.race(entrants)

    def race(self, entrants: Sequence[Tactic]) -> Finals:
        def on_round(done: int, total: int) -> None:
            self.listen(Event("finals", self.problem, done, total, best=self.fastest()))

        return finals_.hold(entrants, self.measure, pairs=self.pairs, on_round=on_round)

    def race_afresh(self, entrants: Sequence[Tactic]) -> Finals:
        self.bench.renew()
        return self.race(entrants)

    def decide(self, held: Finals) -> Choice:
        return decide(held, self.default, self.smem)
