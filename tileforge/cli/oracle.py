"""``tileforge oracle``: what the compiler says of tactics, beside what the rules say."""

from __future__ import annotations

import random
from typing import Any

import click

from tileforge import legality, space
from tileforge.cli.context import print_json, target
from tileforge.cli.options import arch_options, json_option
from tileforge.errors import InputError
from tileforge.tactic import Tactic
from tileforge.verdict import UNKNOWN, Verdict


@click.command("oracle")
@click.argument("tactics", nargs=-1, metavar="[TACTIC...]")
@click.option("--sample", type=click.IntRange(1, 4096), help="Without TACTIC: so many of the space, drawn by --seed.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of --sample.")
@click.option("--format", "format_", default="nvfp4", show_default=True, help="Operand format.")
@click.option("--out", default="bf16", show_default=True, help="Output type.")
@click.option("--epilogue", default="plain", show_default=True, help="plain, finalize (FlashInfer's fused MoE).")
@click.option("--c", metavar="TYPE", help="Type of a C operand: bf16, fp16, fp32. Default: none.")
@arch_options
@json_option
def command(
    tactics: tuple[str, ...], sample: int | None, seed: int, format_: str, out: str, epilogue: str, c: str | None,
    gpu: str | None, arch: str | None, cutlass: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Ask the compiler for stages and shared memory of tactics; nothing is compiled in full, no GPU is needed.

    Exit code 1 when the compiler and the rules disagree on one of them.
    """
    from tileforge.toolchain import KernelSpec, cutlass_of, find_compiler
    from tileforge.toolchain.oracle import Found, Question, ask_all

    if bool(tactics) == (sample is not None):
        raise InputError("name tactics, or take --sample N of the space")
    where = target(gpu, arch, cutlass, format_)
    asked: dict[str, Any] = {"format": format_, "out": out, "cutlass": where.cutlass, "epilogue": epilogue, "c": c}
    if tactics:
        chosen = [Tactic.parse(text) for text in tactics]
    else:
        whole = list(space.enumerate_tactics(where.arch, **asked))
        chosen = random.Random(seed).sample(whole, min(sample or 0, len(whole)))
    verdicts = {tactic.compile_time(): legality.check(tactic, arch=where.arch, **asked) for tactic in chosen}
    questions = [Question(KernelSpec(where.arch.name, format_, out, tactic), c, epilogue) for tactic in verdicts]
    answers = ask_all(questions, Found(cutlass_of(where.cutlass), find_compiler()))
    rows = []
    for question, said in answers.items():
        verdict = verdicts[question.spec.tactic]
        rows.append(
            {
                "tactic": question.spec.tactic.id, "stages": said.stages, "smem_bytes": said.smem_bytes,
                "error": said.error, "verdict": verdict.kind, "message": verdict.message,
                "agree": _agree(verdict, said.stages, said.smem_bytes, said.ok),
            }
        )  # fmt: skip
    if as_json:
        print_json(rows)
    for row in [] if as_json else rows:
        answer = row["error"] or f"{row['stages']} stages, {row['smem_bytes']:,} B"
        word = {True: "agree", False: "DISAGREE", None: "the rules do not know"}[row["agree"]]  # type: ignore[index]
        click.echo(f"{row['tactic']}: the compiler: {answer}; the rules: {row['verdict']}: {row['message']}: {word}")
    disagree = sum(row["agree"] is False for row in rows)
    if not as_json:
        agree = sum(row["agree"] is True for row in rows)
        click.echo(f"CUTLASS {where.cutlass}: {agree} of {len(rows)} agree, {disagree} disagree")
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
