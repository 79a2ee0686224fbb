"""``tileforge oracle``: what the compiler says of tactics, beside what the rules say."""

from __future__ import annotations

import click

from tileforge import legality
from tileforge.cli.context import print_json, target
from tileforge.cli.options import arch_options, json_option
from tileforge.tactic import Tactic
from tileforge.verdict import UNKNOWN, Verdict


@click.command("oracle")
@click.argument("tactics", nargs=-1, required=True, metavar="TACTIC...")
@click.option("--format", "format_", default="nvfp4", show_default=True, help="Operand format.")
@click.option("--out", default="bf16", show_default=True, help="Output type.")
@arch_options
@json_option
def command(
    tactics: tuple[str, ...], format_: str, out: str, gpu: str | None, arch: str | None, cutlass: str | None,
    as_json: bool,
) -> None:  # fmt: skip
    """Ask the compiler for stages and shared memory of each TACTIC; nothing is compiled in full, no GPU is needed.

    Exit code 1 when the compiler and the rules disagree on one of them.
    """
    from tileforge.toolchain import KernelSpec, cutlass_of, find_compiler
    from tileforge.toolchain.oracle import Found, ask

    where = target(gpu, arch, cutlass, format_)
    specs = [KernelSpec(where.arch.name, format_, out, Tactic.parse(text)) for text in tactics]
    answers = ask(specs, Found(cutlass_of(where.cutlass), find_compiler()))
    rows, disagree = [], False
    for spec in specs:
        said = answers[spec]
        verdict = legality.check(spec.tactic, arch=where.arch, format=format_, out=out, cutlass=where.cutlass)
        agree = _agree(verdict, said.stages, said.smem_bytes, said.ok)
        disagree |= agree is False
        rows.append(
            {
                "tactic": spec.tactic.id, "stages": said.stages, "smem_bytes": said.smem_bytes, "error": said.error,
                "verdict": verdict.kind, "message": verdict.message, "agree": agree,
            }
        )  # fmt: skip
    if as_json:
        print_json(rows)
    for row in [] if as_json else rows:
        answer = row["error"] or f"{row['stages']} stages, {row['smem_bytes']:,} B"
        word = {True: "agree", False: "DISAGREE", None: "the rules do not know"}[row["agree"]]  # type: ignore[index]
        click.echo(f"{row['tactic']}: the compiler: {answer}; the rules: {row['verdict']}: {row['message']}: {word}")
    if disagree:
        click.get_current_context().exit(1)


def _agree(verdict: Verdict, stages: int, smem_bytes: int, accepted: bool) -> bool | None:
    """Whether the verdict says what the compiler says; None when the rules give none.

    A tactic that instantiates may still be illegal: some rules are asserted in a kernel's body, or nowhere.
    """
    if verdict.kind == UNKNOWN:
        return None
    if not accepted:
        return verdict.kind == "illegal"
    if verdict.kind == "illegal":
        return verdict.reason != "stages"
    return (verdict.figures["stages"], verdict.figures["smem_bytes"]) == (stages, smem_bytes)
