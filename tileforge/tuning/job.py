"""One tuning run over several problems: kernels are shared, every problem is saved when it ends."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tileforge import paths, smem, space
from tileforge.arch import get_arch
from tileforge.db import Key, Quarantine, Quarantined, Record, TuningDB
from tileforge.db.lookup import command_for
from tileforge.db.quarantine import CLASSES
from tileforge.measure.sweep import problem_text
from tileforge.predict import distinct, leaders, rank
from tileforge.problem import GroupedGemm
from tileforge.search import Budget, Event, KernelSource, OnEvent, SearchResult, run
from tileforge.search.events import silent
from tileforge.search.run import LEADERS
from tileforge.tactic import DEFAULT, Tactic
from tileforge.toolchain.spec import KernelSpec
from tileforge.tuning.device import Devices, Target
from tileforge.tuning.predicted import first_asked, predicted
from tileforge.tuning.result import FAKE, INTERRUPTED, MEASURED, NOTHING, TuneResult
from tileforge.tuning.tools import Tools

if TYPE_CHECKING:
    from tileforge.arch.gpus import Gpu
    from tileforge.measure.protocol import Bench
    from tileforge.predict import Prediction
    from tileforge.toolchain.compiler import Compiler
    from tileforge.toolchain.cutlass import Cutlass


@dataclass(frozen=True)
class Plan:
    """One problem with everything that is known about it before anything is measured.

    ``ranking``: candidates, best predicted first; run-time variants among them where the problem is measured.
    """

    problem: GroupedGemm
    target: Target
    pruned: space.Pruned
    ranking: list[tuple[Tactic, Prediction]]

    @property
    def default(self) -> Tactic | None:
        return DEFAULT if any(tactic == DEFAULT for tactic, _ in self.ranking) else None


class Job:
    """See :func:`tileforge.tune` for the parameters."""

    def __init__(
        self,
        *,
        gpu: str | Gpu | None,
        timer: str,
        budget: Budget | str | int | None,
        db: TuningDB | str | os.PathLike[str] | None,
        save: bool,
        cutlass: Cutlass | str | os.PathLike[str] | None,
        candidates: str,
        bench: Bench | None,
        builder: Any,
        compiler: Compiler | None,
        journals: Path | None,
        confirm: bool,
        samples: int,
        seed: int,
        on_event: OnEvent | None,
    ) -> None:
        self.budget = Budget.parse(budget)
        self.devices = Devices(gpu, timer, bench)
        self.candidates, self.confirm, self.samples, self.seed = candidates, confirm, samples, seed
        self.listen = on_event or silent
        self.journals = journals or paths.cache_dir() / "studies"
        self.notes: list[str] = []
        self.db: TuningDB | None = None
        try:
            if save and db is None and self.devices.fake:
                self.notes.append("times of a fake device: not recorded (name a database to record them)")
            elif save:
                self.db = db if isinstance(db, TuningDB) else TuningDB(db if db is not None else paths.database_dir())
            self.tools = Tools(cutlass, compiler, builder)
            if self.devices.bench is not None and not self.devices.fake:
                self.tools.make_builder()
        except BaseException:
            self.close()
            raise
        self.sources: dict[str, KernelSource] = {}
        self.quarantines: dict[str, Quarantine] = {}
        self.environments: dict[str, dict[str, str]] = {}
        #: Times of a fake device go into files of their own, which no look-up reads and nothing is merged with.
        self.family = {"family": "fake"} if self.devices.fake else {}

    def close(self) -> None:
        self.devices.close()

    # -- before anything is measured ------------------------------------------------------------------------

    def run(self, problems: Sequence[GroupedGemm]) -> list[TuneResult]:
        """Results in order; those that there are when Ctrl-C came."""
        targets = [None if not problem.m else self.devices.target(problem) for problem in problems]
        if self.db is not None:
            pairs = zip(problems, targets, strict=True)
            self.db.check(
                *dict.fromkeys(Key.of(problem, target.gpu.sku, **self.family) for problem, target in pairs if target)
            )
        plans = [
            None if target is None else self.plan(problem, target)
            for problem, target in zip(problems, targets, strict=True)
        ]
        results: list[TuneResult] = []
        answered: dict[GroupedGemm, TuneResult] = {}
        try:
            self.prepare([plan for plan in plans if plan is not None])
            for number, (problem, plan) in enumerate(zip(problems, plans, strict=True)):
                self.listen(Event("problem", problem, number, len(problems)))
                result = answered.get(problem)
                if result is None:
                    result = answered[problem] = self.answer(plan) if plan is not None else _nothing(problem)
                results.append(replace(result, notes=tuple(dict.fromkeys((*result.notes, *self.notes)))))
                if result.provenance == INTERRUPTED:
                    break
        except KeyboardInterrupt:
            self.listen(Event("note", problems[0], len(results), len(problems), message="interrupted"))
        return results

    def plan(self, problem: GroupedGemm, target: Target) -> Plan:
        """Enumerated, pruned and ranked. Raises NoLegalTacticError."""
        arch, version = get_arch(target.gpu.arch), self.tools.version
        pruned = space.prune(problem, arch, version)
        tactics = pruned.legal
        if target.bench is not None:
            if self.candidates == "menu":
                tactics = space.menu(problem, arch, version)
            tactics = self.available(problem, target, tactics)
            variants = (each for tactic in tactics for each in space.runtime_variants(tactic))
            tactics = self.unquarantined(problem, target, distinct(problem, variants, version))
        return Plan(problem, target, pruned, rank(problem, tactics, target.gpu, version))

    def source(self, target: Target) -> KernelSource:
        builder = self.tools.builder if target.bench is not None else None
        return self.sources.setdefault(target.gpu.arch, KernelSource(builder, target.gpu.arch))

    def available(self, problem: GroupedGemm, target: Target, tactics: list[Tactic]) -> list[Tactic]:
        """Where nothing can compile: the tactics whose kernels were brought here, if there are any."""
        builder, spec = self.tools.builder, self.source(target).spec
        if builder is None or getattr(builder, "missing", None) is None:
            return tactics
        there = [tactic for tactic in tactics if builder.lookup(spec(problem, tactic)) is not None]
        if there and len(there) < len(tactics):
            self.notes.append(f"no compiler here: {len(there)} of {len(tactics)} candidates have a kernel")
        return there or tactics

    def quarantine(self, target: Target) -> Quarantine | None:
        """The list of the GPU that is measured; a fake one has none."""
        if self.db is None or target.bench is None or self.devices.fake:
            return None
        sku = target.gpu.sku
        return self.quarantines.setdefault(sku, Quarantine(self.db.path, sku))

    def environment(self, target: Target, kernel: Any = None) -> dict[str, str]:
        """What an answer depends on; without the kernel that ran, what is known about here, asked once."""
        gpu, bench = target.gpu, target.bench
        assert bench is not None
        known = self.environments.get(gpu.sku) if kernel is None else None
        if known is None:
            driver = bench.facts().get("driver")
            known = self.tools.environment(gpu.arch, kernel=kernel, driver=driver, fake=self.devices.fake)
            if kernel is None:
                self.environments[gpu.sku] = known
        return known

    def unquarantined(self, problem: GroupedGemm, target: Target, tactics: list[Tactic]) -> list[Tactic]:
        """Without those that failed here before, of which a note tells. Raises DatabaseError for a broken list."""
        quarantine = self.quarantine(target)
        if quarantine is None:
            return tactics
        held = quarantine.holds(problem, self.environment(target))
        if left_out := [held[tactic].status for tactic in tactics if tactic in held]:
            counts = ", ".join(f"{left_out.count(status)} {status}" for status in CLASSES if status in left_out)
            self.notes.append(
                f"{problem.key}: {len(left_out)} tactics failed here before ({counts}) and are not tried: "
                f"take them out of {quarantine.path} to try them again"
            )
        return [tactic for tactic in tactics if tactic not in held]

    def prepare(self, plans: Sequence[Plan]) -> None:
        """Compiles what is surely needed, over all problems in one parallel batch; asks the oracle likewise."""
        for source in self.sources.values():
            specs: dict[KernelSpec, None] = {}
            measured = [plan for plan in plans if plan.target.bench is not None]
            for plan in measured:
                if plan.target.gpu.arch == source.arch:
                    specs |= dict.fromkeys(source.missing(plan.problem, self.first(plan)))
            if specs:
                self.build(source, list(specs), measured[0].problem)
        guesses = [plan for plan in plans if plan.target.bench is None]
        if guesses and self.confirm:
            self.listen(Event("note", guesses[0].problem, message="asking the compiler about the predicted leaders"))
            self.tools.oracle(dict.fromkeys(spec for plan in guesses for spec in first_asked(plan)))

    def first(self, plan: Plan) -> list[Tactic]:
        """The candidates whose measuring is certain: all within the budget, or the default and the leaders."""
        count = len(plan.ranking)
        if self.budget.minutes is None and (self.budget.trials or count) >= count:
            return [tactic for tactic, _ in plan.ranking]
        return [*([plan.default] if plan.default else []), *leaders(plan.ranking, LEADERS)]

    def build(self, source: KernelSource, specs: list[KernelSpec], problem: GroupedGemm) -> None:
        done = 0

        def on_done(outcome: Any) -> None:
            nonlocal done
            done += 1
            self.listen(Event("built", problem, done, len(specs), message=getattr(outcome, "message", "")))

        self.listen(Event("build", problem, 0, len(specs), message=f"compiling {len(specs)} kernels"))
        source.build(specs, on_done)

    # -- one problem ----------------------------------------------------------------------------------------

    def answer(self, plan: Plan) -> TuneResult:
        result = predicted(plan, self.tools, self.confirm) if plan.target.bench is None else self.measured(plan)
        if result.record is None or self.db is None:
            return result
        stored = self.db.put(result.record)
        self.db.save()
        return replace(result, stored=stored)

    def measured(self, plan: Plan) -> TuneResult:
        problem, target = plan.problem, plan.target
        gpu, bench = target.gpu, target.bench
        assert bench is not None
        source = self.source(target)
        environment = self.environment(target)
        journal = self.journal(problem, gpu, environment)

        def bytes_of(tactic: Tactic) -> int:
            return smem.breakdown(
                tactic, arch=gpu.arch, format=problem.format, out=problem.out, cutlass=self.tools.version
            ).total

        found = run(
            problem, [tactic for tactic, _ in plan.ranking], plan.default, bench=bench, kernels=source,
            budget=self.budget, journal=journal, predictions=plan.ranking, smem=bytes_of, samples=self.samples,
            confirm=self.confirm, seed=self.seed, context=" ".join(environment.values()), on_event=self.listen,
        )  # fmt: skip
        if not found.interrupted:
            for file in (journal, journal.with_suffix(".samples.jsonl")):
                with contextlib.suppress(OSError):
                    file.unlink()
        if quarantine := self.quarantine(target):
            quarantine.add(
                Quarantined.of(problem, each.tactic, each.status, each.message, environment)
                for each in found.measurements.values()
                if each.status in CLASSES
            )
        result = self._result(plan, found)
        if found.interrupted or found.best is None:
            return result
        if found.confirmed is False:
            note = "finals in fresh processes disagree, so nothing is recorded: tune again on a GPU without other work"
            return replace(result, notes=(*result.notes, note))
        kernel = source.kernel(problem, found.best.tactic)
        record = Record.from_measurement(
            problem, gpu, found.best, found.default, ties=map(Tactic.parse, found.choice.ties),
            environment=self.environment(target, kernel),
            note="times of a fake device" if self.devices.fake else "", **self.family,
        )  # fmt: skip
        return replace(result, record=record)

    def _result(self, plan: Plan, found: SearchResult) -> TuneResult:
        guessed = {tactic: prediction.us for tactic, prediction in plan.ranking}
        tactic, default = found.choice.tactic, plan.default
        notes = [plan.target.note] if plan.target.note else []
        if default is None:
            notes.append(f"the default {DEFAULT.id} is not legal or failed here, and did not race")
        return TuneResult(
            plan.problem,
            INTERRUPTED if found.interrupted else FAKE if self.devices.fake else MEASURED,
            gpu=plan.target.gpu,
            tactic=tactic,
            default=default,
            reason=found.choice.reason,
            time_us=found.best.median_us if found.best else None,
            default_us=found.default.median_us if found.default else None,
            predicted_us=guessed[tactic] if tactic else None,
            default_predicted_us=guessed[default] if default else None,
            fake=self.devices.fake,
            pruning=plan.pruned.summary(),
            leaders=tuple(plan.ranking[:5]),
            search=found,
            command=f"{command_for(plan.problem, plan.target.gpu.sku)} --timer gpu",
            notes=tuple(notes),
        )

    def journal(self, problem: GroupedGemm, gpu: Gpu, environment: dict[str, str]) -> Path:
        """One study's file; another environment or another routing is another study."""
        what = "\n".join([problem_text(problem), *sorted(environment.values())])
        digest = hashlib.sha256(what.encode()).hexdigest()[:10]
        return self.journals / gpu.sku / f"{problem.key}_m{problem.m}_{digest}.journal"


def _nothing(problem: GroupedGemm) -> TuneResult:
    return TuneResult(problem, NOTHING, reason="nothing to launch: M = 0")
