"""``tileforge verify``: what kernels compute, bit by bit, on the device that is here."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from tileforge.cli.context import builder as builder_of
from tileforge.cli.context import cutlass_in_use, print_json
from tileforge.cli.options import json_option
from tileforge.errors import BuildError, InputError
from tileforge.tactic import Tactic

if TYPE_CHECKING:
    from tileforge.arch import ArchSpec
    from tileforge.toolchain import Builder, KernelSpec
    from tileforge.verify import Row

#: A problem whose menu is the whole default one: larger than every tile in every direction.
_M, _N, _K, _GROUPS = 512, 4096, 6144, 32


@click.command("verify")
@click.option("--arch", default="sm120", show_default=True, help="Whose kernels: sm120, sm121, sm90.")
@click.option("--format", "formats", multiple=True, help="Operand format (may be repeated). Default: all of the SM.")
@click.option("--out", "outs", multiple=True, default=["bf16"], help="Output type (may be repeated). Default: bf16.")
@click.option("--tactic", "tactics", multiple=True, metavar="ID", help="Only these tactics. Default: the menu.")
@click.option("--cutlass", metavar="VERSION", help="CUTLASS version to build with. Default: the one in use.")
@click.option("--limit", type=click.IntRange(1), help="Only so many kernels, the formats in turn.")
@click.option("--case", "only", metavar="TEXT", help="Only cases whose name has TEXT in it.")
@click.option("--force", is_flag=True, help="Also tactics that the rules refuse.")
@click.option("--table", type=click.Path(path_type=Path), help="Table (JSON) to add to; what it has is not run again.")
@click.option("--again", is_flag=True, help="With --table: run what it has as well.")
@click.option("--build-only", is_flag=True, help="Only compile what SM90 runs, for a machine with one: needs no GPU.")
@click.option("--pack", "pack_file", type=click.Path(path_type=Path), help="With --build-only: the kernels' file.")
@click.option("--jobs", type=int, help="Compiles at once. Default: by cores and memory.")
@click.option("--device", type=int, default=0, show_default=True, help="CUDA device.")
@json_option
def command(
    arch: str, formats: tuple[str, ...], outs: tuple[str, ...], tactics: tuple[str, ...], cutlass: str | None,
    limit: int | None, only: str | None, force: bool, table: Path | None, again: bool, build_only: bool,
    pack_file: Path | None, jobs: int | None, device: int, as_json: bool,
) -> None:  # fmt: skip
    """Run kernels through fixed cases and compare every output element with a float64 product.

    Kernels run natively where their SM is at hand; those of SM120 and SM121 run emulated on SM90 otherwise (see
    docs/emulation.md for what that proves). Exit code 1 when a kernel is wrong, or cannot be shown to be right.
    """
    from tileforge.arch import get_arch
    from tileforge.toolchain.spec import EMULATED_ON
    from tileforge.verify import Table, Verifier, how_to_run

    if pack_file and not build_only:
        raise InputError("--pack goes with --build-only")
    if only and table:
        raise InputError("--case runs a part of the cases, which is no row of a table: leave out --table")
    where, builder = get_arch(arch), builder_of(cutlass, jobs)
    version = cutlass_in_use(cutlass)
    if build_only:
        emulated = where.kernels == "sm120"
        _build(builder, _specs(where, formats, outs, tactics, version, emulated, force, limit), pack_file)
        return
    specs = _specs(where, formats, outs, tactics, version, False, force, limit)
    known = Table.read(table)
    with Verifier.bench_on(device) as bench:
        how = how_to_run(arch, str(bench.facts()["sm"]))
        if how == "emulated":
            specs = _specs(where, formats, outs, tactics, version, True, force, limit)
            if not as_json:
                click.echo(f"{arch} kernels, emulated on {EMULATED_ON}: what they compute, nothing about their speed")
        verifier = Verifier(builder, bench, known, again=again, only=lambda case: (only or "") in case.id)
        done = 0

        def on_row(row: Row) -> None:
            nonlocal done
            done += 1
            if not as_json:
                click.echo(f"[{done}/{len(specs)}] {row.line()}")

        rows = verifier.run(specs, on_row)
    if as_json:
        print_json([vars(row) for row in rows])
    else:
        counts = {status: sum(row.status == status for row in rows) for status in {row.status: None for row in rows}}
        click.echo(f"{len(rows)} kernels: {', '.join(f'{count} {status}' for status, count in counts.items())}")
    if any(not row.ok for row in rows):
        click.get_current_context().exit(1)


def _specs(
    arch: ArchSpec, formats: tuple[str, ...], outs: tuple[str, ...], tactics: tuple[str, ...], cutlass: str,
    emulated: bool, force: bool, limit: int | None,
) -> list[KernelSpec]:  # fmt: skip
    """The formats in turn, so that a run that is stopped has some of each."""
    import itertools

    from tileforge import legality, space
    from tileforge.problem import GroupedGemm
    from tileforge.toolchain import KernelSpec
    from tileforge.verdict import UNKNOWN

    lists: list[list[KernelSpec]] = []
    for form in formats or arch.formats:
        for out in outs:
            if tactics:
                chosen = [Tactic.parse(text) for text in tactics]
            else:
                problem = GroupedGemm(_M, _N, _K, _GROUPS, format=form, out=out)
                chosen = list(space.menu(problem, arch, cutlass))
            for tactic in chosen:
                verdict = legality.check(tactic, arch=arch, format=form, out=out, cutlass=cutlass)
                if not verdict and verdict.kind != UNKNOWN and not force:
                    raise InputError(
                        f"{tactic.id} is {verdict.kind} for {form} on {arch.name}: {verdict.message}; "
                        "--force runs it all the same"
                    )
            lists.append([KernelSpec(arch.name, form, out, tactic, emulated) for tactic in chosen])
    mixed = [spec for row in itertools.zip_longest(*lists) for spec in row if spec is not None]
    return list(dict.fromkeys(mixed))[:limit]


def _build(builder: Builder, specs: list[KernelSpec], pack_file: Path | None) -> None:
    from tileforge.toolchain import BuildOutcome, pack

    done = 0

    def on_done(outcome: BuildOutcome) -> None:
        nonlocal done
        done += 1
        said = outcome.failure or ("cached" if outcome.cached else f"{outcome.seconds:.0f} s")
        click.echo(f"[{done}/{len(specs)}] {outcome.spec.id}: {said}{': ' if outcome.message else ''}{outcome.message}")

    built = [outcome.kernel for outcome in builder.build(specs, on_done) if outcome.kernel is not None]
    click.echo(f"{len(built)} of {len(specs)} kernels in {builder.cache.root}")
    if pack_file is not None:
        click.echo(f"{pack(built, pack_file)} kernels packed into {pack_file}")
    if len(built) < len(specs):
        raise BuildError(f"{len(specs) - len(built)} of {len(specs)} kernels failed: see above")
