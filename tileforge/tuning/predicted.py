"""The answer without a GPU: the best predicted tactic that the compiler does not object to. Never a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from tileforge import smem
from tileforge.db import Record
from tileforge.db.lookup import command_for
from tileforge.predict import leaders
from tileforge.tactic import Tactic
from tileforge.toolchain.spec import KernelSpec
from tileforge.tuning.result import PREDICTED, Confirmed, TuneResult

if TYPE_CHECKING:
    from tileforge.toolchain.oracle import OracleAnswer
    from tileforge.tuning.job import Plan
    from tileforge.tuning.tools import Tools

#: Leaders that the compiler is asked about at once.
ASKED = 4
#: A predicted gain over the default below this is no reason to leave it.
MARGIN = 0.01


def _spec(plan: Plan, tactic: Tactic) -> KernelSpec:
    return KernelSpec(plan.target.gpu.arch, plan.problem.format, plan.problem.out, tactic)


def _order(plan: Plan) -> list[Tactic]:
    """Who is asked in which order: the default first where nothing is predicted to beat it."""
    order = leaders(plan.ranking, len(plan.ranking))
    us = {tactic: prediction.us for tactic, prediction in plan.ranking}
    if plan.default is not None and us[order[0]] > us[plan.default] * (1 - MARGIN):
        order = [plan.default, *(tactic for tactic in order if tactic != plan.default)]
    return order


def first_asked(plan: Plan) -> Iterator[KernelSpec]:
    """What :func:`predicted` asks about first, so that it can be asked for many problems at once."""
    for tactic in dict.fromkeys([*_order(plan)[:ASKED], *([plan.default] if plan.default else [])]):
        yield _spec(plan, tactic)


def predicted(plan: Plan, tools: Tools, confirm: bool) -> TuneResult:
    """The best predicted tactic; those that the compiler refuses are passed over, and said."""
    problem, gpu = plan.problem, plan.target.gpu
    us = {tactic: prediction.us for tactic, prediction in plan.ranking}
    order, default = _order(plan), plan.default
    said: dict[Tactic, Confirmed] = {}
    notes = [plan.target.note] if plan.target.note else []
    chosen: Tactic | None = None
    while chosen is None and len(said) < len(order):
        batch = [tactic for tactic in order if tactic not in said][:ASKED]
        answers = tools.oracle([_spec(plan, tactic) for tactic in batch]) if confirm else None
        if answers is None:
            chosen = batch[0]
            break
        for tactic in batch:
            said[tactic] = _judged(plan, tools, tactic, answers[_spec(plan, tactic)], notes)
        chosen = next((tactic for tactic in batch if not said[tactic].error), None)
    refused = [each for each in said.values() if each.error]
    notes += [f"the compiler refuses {each.tactic.id}: {each.error}" for each in refused]
    if default is not None and said and default not in said and (answers := tools.oracle([_spec(plan, default)])):
        said[default] = _judged(plan, tools, default, answers[_spec(plan, default)], notes)
    result = TuneResult(
        problem,
        PREDICTED,
        gpu=gpu,
        tactic=chosen,
        default=default,
        default_predicted_us=us[default] if default else None,
        pruning=plan.pruned.summary(),
        leaders=tuple((tactic, next(p for t, p in plan.ranking if t == tactic)) for tactic in order[:5]),
        confirmed=tuple(said.values()),
        command=f"{command_for(problem, gpu.sku)} --timer gpu",
        notes=(*notes, *tools.notes),
    )
    if chosen is None:
        return replace(result, reason="the compiler refuses every candidate")
    kept = "predicted; nothing is predicted to beat the default by more than 1 %" if chosen == default else "predicted"
    default_us = us[default] if default else None
    record = Record.from_prediction(
        problem, gpu, chosen, us[chosen], default, default_us, environment=tools.environment(gpu.arch)
    )
    return replace(result, reason=kept, predicted_us=us[chosen], record=record)


def _judged(plan: Plan, tools: Tools, tactic: Tactic, answer: OracleAnswer, notes: list[str]) -> Confirmed:
    gpu, problem = plan.target.gpu, plan.problem
    if answer.error:
        return Confirmed(tactic, error=answer.error)
    if answer.stages < 2 or answer.smem_bytes > gpu.smem_per_block:
        what = f"{answer.stages} stages in {answer.smem_bytes:,} B of {gpu.smem_per_block:,} B"
        return Confirmed(tactic, answer.stages, answer.smem_bytes, f"it comes out at {what}")
    ours = smem.breakdown(tactic, arch=gpu.arch, format=problem.format, out=problem.out, cutlass=tools.version)
    if (ours.stages, ours.total) != (answer.stages, answer.smem_bytes):
        notes.append(
            f"{tactic.id}: the compiler says {answer.stages} stages and {answer.smem_bytes:,} B, the rules "
            f"{ours.stages} and {ours.total:,} B: please report"
        )
    return Confirmed(tactic, answer.stages, answer.smem_bytes)
