"""``tileforge measure``: check and time single tactics on a GPU, outside of any search."""

from __future__ import annotations

import click

from tileforge.cli.context import builder as builder_of
from tileforge.cli.context import print_json, target
from tileforge.cli.options import json_option, problem_options, take_problems
from tileforge.errors import InputError
from tileforge.problem import GroupedGemm
from tileforge.tactic import DEFAULT, Tactic


@click.command("measure")
@problem_options
@click.option("--tactic", "tactics", multiple=True, metavar="ID", help="Tactic to measure (may be repeated).")
@click.option("--samples", type=int, default=7, show_default=True, help="Samples of each tactic.")
@click.option("--timer", default="gpu", show_default=True, help="gpu, or fake: a made-up device.")
@click.option("--cutlass", metavar="VERSION", help="CUTLASS version that the rules are for.")
@json_option
@take_problems
def command(
    problems: list[GroupedGemm], notes: list[str], tactics: tuple[str, ...], samples: int, timer: str,
    cutlass: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Check and time tactics (default: CUTLASS's 128x128x128). Exit code 1 when one of them failed."""
    from tileforge import legality
    from tileforge.measure import FakeBench, Measurement
    from tileforge.measure.gpu import GpuBench
    from tileforge.toolchain import KernelSpec

    if timer not in ("gpu", "fake"):
        raise InputError(f"unknown timer {timer!r}: use gpu or fake")
    if samples < 1:
        raise InputError(f"--samples {samples}: give 1 or more")
    chosen = [Tactic.parse(text) for text in tactics] or [DEFAULT]
    answers: list[tuple[GroupedGemm, Measurement]] = []
    bench = FakeBench() if timer == "fake" else GpuBench()
    try:
        builder = None if timer == "fake" else builder_of(cutlass)
        here = None if timer == "fake" else str(bench.facts().get("sm"))
        for problem in problems:
            where = target(None, here, cutlass, problem.format)
            for tactic in chosen:
                if not problem.m:
                    answers.append((problem, Measurement.failed(tactic, "not_measured", "nothing to launch: M = 0")))
                    continue
                verdict = legality.check(
                    tactic, arch=where.arch, format=problem.format, out=problem.out, cutlass=where.cutlass,
                    problem=problem,
                )  # fmt: skip
                if not verdict and verdict.kind != "unknown":
                    answers.append((problem, Measurement.failed(tactic, verdict.kind, verdict.message)))
                    continue
                kernel = None
                if builder is not None:
                    outcome = builder.build([KernelSpec(where.arch.name, problem.format, problem.out, tactic)])[0]
                    if outcome.kernel is None:
                        answers.append((problem, Measurement.failed(tactic, outcome.failure, outcome.message)))
                        continue
                    kernel = outcome.kernel
                answers.append((problem, bench.measure(problem, tactic, kernel, samples)))
    finally:
        bench.close()
    if as_json:
        print_json([{"problem": problem.as_dict(), **found.as_dict()} for problem, found in answers])
    else:
        for note in notes:
            click.echo(f"note: {note}")
        for problem, found in answers:
            what = f"{found.median_us:.1f} us ({found.low_us:.1f}-{found.high_us:.1f})" if found.ok else ""
            fake = "  FAKE DEVICE" if timer == "fake" else ""
            error = f"  error {found.error:.2g}" if found.error is not None else ""
            click.echo(f"{problem}  {found.tactic.id}  {what or f'{found.status}: {found.message}'}{error}{fake}")
    if any(not found.ok for problem, found in answers if problem.m):
        click.get_current_context().exit(1)
