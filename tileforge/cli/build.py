"""``tileforge build``: compile kernels without a GPU, and carry them to machines without a compiler."""

from __future__ import annotations

from pathlib import Path

import click

from tileforge.cli.context import builder as builder_of
from tileforge.cli.context import cutlass_in_use, print_json, target
from tileforge.cli.options import arch_options, json_option, problem_options, problems_from
from tileforge.errors import BuildError, InputError
from tileforge.tactic import Tactic


@click.command("build")
@problem_options
@arch_options
@click.option("--tactic", "tactics", multiple=True, metavar="ID", help="Only these tactics (may be repeated).")
@click.option("--jobs", type=int, help="Compiles at once. Default: by cores and memory.")
@click.option("--retry-failed", is_flag=True, help="Compile again what is known to fail.")
@click.option("--pack", "pack_file", type=click.Path(path_type=Path), help="Then write the kernels into this file.")
@click.option("--unpack", "unpack_file", type=click.Path(path_type=Path), help="Take kernels out of a packed file.")
@json_option
def command(
    m: int | None, n: int | None, k: int | None, groups: int | None, model: str | None, ep: int, tp: int,
    rows: str | None, format_: str | None, out: str, routing: str, seed: int, gpu: str | None, arch: str | None,
    cutlass: str | None, tactics: tuple[str, ...], jobs: int | None, retry_failed: bool, pack_file: Path | None,
    unpack_file: Path | None, as_json: bool,
) -> None:  # fmt: skip
    """Compile the menu of a problem or model (or single tactics) into the kernel cache. Needs no GPU."""
    from tileforge.toolchain import KernelCache, KernelSpec, pack, unpack

    if unpack_file is not None:
        kernels = unpack(unpack_file, KernelCache())
        if as_json:
            print_json([kernel.spec.id for kernel in kernels])
        else:
            click.echo(f"{len(kernels)} kernels from {unpack_file}")
        return
    form = format_ or "nvfp4"
    where = target(gpu, arch, cutlass, form)
    if tactics:
        chosen = [Tactic.parse(text) for text in tactics]
        specs = [KernelSpec(where.arch.name, form, out, tactic) for tactic in chosen]
        _refuse_illegal(chosen, where.arch.name, form, out, cutlass_in_use(cutlass))
    else:
        from tileforge import space

        problems, _ = problems_from(
            m=m, n=n, k=k, groups=groups, model=model, ep=ep, tp=tp, rows=rows, format_=form, out=out,
            routing=routing, seed=seed,
        )  # fmt: skip
        specs = [
            KernelSpec(where.arch.name, form, out, tactic)
            for problem in problems
            for tactic in space.menu(problem, where.arch, where.cutlass)
        ]
    specs = list(dict.fromkeys(specs))
    builder = builder_of(cutlass, jobs)
    done = 0

    def on_done(outcome: object) -> None:
        nonlocal done
        done += 1
        if not as_json:
            click.echo(f"[{done}/{len(specs)}] {_line(outcome)}")

    outcomes = builder.build(specs, on_done, retry_failed=retry_failed)
    built = [outcome.kernel for outcome in outcomes if outcome.kernel is not None]
    if as_json:
        print_json(
            [
                {
                    "kernel": outcome.spec.id, "ok": outcome.ok, "failure": outcome.failure,
                    "message": outcome.message, "seconds": round(outcome.seconds, 1), "cached": outcome.cached,
                    "info": dict(outcome.kernel.info) if outcome.kernel else None,
                }
                for outcome in outcomes
            ]
        )  # fmt: skip
    else:
        click.echo(f"{len(built)} of {len(specs)} kernels in {builder.cache.root}")
    if pack_file is not None:
        count = pack(built, pack_file)
        if not as_json:
            click.echo(f"{count} kernels packed into {pack_file}")
    if len(built) < len(specs):
        failed = next(outcome for outcome in outcomes if not outcome.ok)
        raise BuildError(f"{len(specs) - len(built)} of {len(specs)} kernels failed; the first: {failed.message}")


def _refuse_illegal(tactics: list[Tactic], arch: str, form: str, out: str, cutlass: str) -> None:
    from tileforge import legality
    from tileforge.arch import get_arch
    from tileforge.verdict import UNKNOWN

    for tactic in tactics:
        verdict = legality.check(tactic, arch=get_arch(arch), format=form, out=out, cutlass=cutlass)
        if not verdict and verdict.kind != UNKNOWN:
            raise InputError(f"{tactic.id} is {verdict.kind} on {arch}: {verdict.message}")


def _line(outcome: object) -> str:
    from tileforge.toolchain import BuildOutcome

    assert isinstance(outcome, BuildOutcome)
    if outcome.ok:
        return f"{outcome.spec.id}: {'cached' if outcome.cached else f'{outcome.seconds:.0f} s'}"
    return f"{outcome.spec.id}: {outcome.failure}: {outcome.message}"
