"""``tileforge explain``: where the shared memory of a tactic goes, why it may or may not run, and what fits instead."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import click

from tileforge import legality, smem
from tileforge.cli import bar, explain_batch
from tileforge.cli.context import USUAL, Target, oracle_command, print_json, target
from tileforge.cli.options import arch_options, json_option, tactic_options
from tileforge.errors import InputError
from tileforge.smem import Breakdown
from tileforge.space import Near, nearest
from tileforge.tactic import Tactic
from tileforge.verdict import FITS, OVER, UNKNOWN, Verdict

#: Of an id in the list of tactics that fit: most are shorter, so that columns line up from call to call.
_ID_WIDTH = 29
_COLOUR = {"fits": "green", "over": "red", "illegal": "red", "unknown": "yellow"}


@click.command("explain")
@click.argument("tactic", required=False)
@tactic_options
@click.option("--batch", metavar="FILE|-", help="Answer JSON lines of a file or of standard input instead of TACTIC.")
@arch_options
@json_option
def command(
    tactic: str | None, format_: str, out: str, epilogue: str, c: str | None, batch: str | None, gpu: str | None,
    arch: str | None, cutlass: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Say whether TACTIC (such as 128x64x256_c1x1_coop_s3_swap) fits, and where its shared memory goes.

    Needs no GPU and no compiler. Exit code 0 when it fits, 1 when it does not, 2 for bad input.

    \b
    --batch answers each line {"tile": [128, 64, 256], "schedule": "cooperative", ...}
    with one JSON line, in order and as they come, with or without --json. Keys that a
    line leaves out take the value of the option of that name. A line that cannot be
    read is answered "invalid", and the exit code is then 2; refusals are no error.
    """
    if (tactic is None) == (batch is None):
        raise InputError("give one TACTIC, or --batch FILE with JSON lines")
    if batch is not None:
        named = target(gpu, arch, cutlass or smem.CUTLASS, format_).arch.name if gpu or arch else None
        if wrong := explain_batch.run(batch, explain_batch.Batch(named, format_, out, epilogue, c, cutlass)):
            raise InputError(wrong)
        return
    found = explained(Tactic.parse(tactic or ""), target(gpu, arch, cutlass, format_), format_, out, epilogue, c)
    if as_json:
        print_json(found.as_dict())
    else:
        for line in found.lines(shutil.get_terminal_size((100, 25)).columns):
            click.echo(line)
    if not found.verdict:
        click.get_current_context().exit(1)


@dataclass(frozen=True)
class Explained:
    """Everything that is known of one tactic; text and JSON are two ways to write it down.

    ``shown`` is the kernel whose terms are shown: the tactic's own, and of one with fewer than two stages that with
    two; None when it breaks a rule, since the arithmetic assumes that the rules hold. ``automatic`` is the kernel
    with the stages that CUTLASS would take, None when it would take none.
    """

    tactic: Tactic
    where: Target
    asked: dict[str, Any]
    verdict: Verdict
    shown: Breakdown | None
    automatic: Breakdown | None
    near: list[Near]

    @property
    def own(self) -> Breakdown | None:
        """``shown`` when that is the tactic itself."""
        return None if self.verdict.reason == "stages" else self.shown

    @property
    def blocks_per_sm(self) -> int:
        """Blocks that shared memory lets reside on one SM at once: 0 for one that does not launch at all."""
        if self.own is None or self.own.excess:
            return 0
        return self.where.arch.smem_per_sm // (self.own.total + self.where.arch.smem_reserved)

    @property
    def oracle(self) -> str:
        """The command that asks the compiler, where the rules do not know."""
        if self.verdict.kind != UNKNOWN:
            return ""
        return oracle_command([self.tactic.compile_time().id], self.where.arch, self.asked)

    def as_dict(self) -> dict[str, Any]:
        """Sizes in bytes. Without a tactic's own kernel there are no ``smem_bytes``, ``terms`` and so on."""
        answer: dict[str, Any] = {"tactic": self.tactic.id, "arch": self.where.arch.name, **self.asked}
        answer |= {"limit_bytes": self.where.arch.smem_per_block, **self.verdict.as_dict()}
        if self.own is not None:
            answer |= {
                "stages": self.own.stages,
                "smem_bytes": self.own.total,
                "excess_bytes": self.own.excess,
                "terms": dict(self.own.terms),
                "blocks_per_sm": self.blocks_per_sm,
            }
        if self.shown is not None:
            automatic = self.automatic
            answer |= {
                "automatic_stages": self.shown.auto_stages,
                "smem_bytes_of_automatic_stages": automatic.total if automatic else None,
                "most_stages_that_fit": self.shown.fit_stages,
                "smem_bytes_of_most_stages": self.shown.fit_total if self.shown.fit_stages else None,
            }
            if self.own is None:
                answer["smem_bytes_of_two_stages"] = self.shown.total
        if self.oracle:
            answer["oracle"] = self.oracle
        return answer | {"nearest": [each.as_dict() for each in self.near]}

    def lines(self, columns: int) -> Iterator[str]:
        asked = self.asked
        more = [f"{name} {asked[name]}" for name, usual in USUAL.items() if asked[name] not in (None, usual)]
        where = [asked["format"], self.where.arch.name, f"CUTLASS {asked['cutlass']}", *more]
        yield "  ".join([self.tactic.id, *where])
        verdict = self.verdict
        yield click.style(verdict.kind, fg=_COLOUR[verdict.kind], bold=True) + f": {verdict.message}"
        if verdict.source:
            yield f"  rule {verdict.reason}, read in {verdict.source}"
        if self.oracle:
            yield f"  {self.oracle}"
            if verdict.reason == "cutlass_version":
                headers = f"TILEFORGE_CUTLASS=<the include directory of CUTLASS {self.where.cutlass}>"
                yield f"  (where its headers are not found: {headers})"
        if self.shown is not None:
            yield from self._memory(self.shown, columns)
        if self.near:
            yield "\nnearest tactics that fit:"
        width = max((_ID_WIDTH, *(len(each.tactic.id) for each in self.near)))
        for each in self.near:
            figures = each.verdict.figures
            room = f"{figures['stages']} stages, {figures['smem_bytes']:>7,} B"
            changed = ", ".join(each.changes)
            if each.difference is not None:
                changed += f": {abs(each.difference):,} B {'less' if each.difference < 0 else 'more'}"
            yield f"  {each.tactic.id:<{width}}  {room}  ({changed})"

    def _memory(self, shown: Breakdown, columns: int) -> Iterator[str]:
        at_least = "at least " if self.own is None else ""
        yield f"\nshared memory of one block, {at_least}{shown.stages} stages, | is the limit of {shown.limit:,} B:"
        yield from bar.lines(shown.terms, shown.limit, columns)
        yield "\nstages"
        yield _count(
            "CUTLASS's automatic count", shown.auto_stages, self.automatic.total if self.automatic else 0, shown
        )
        yield _count("the most that fit", shown.fit_stages, shown.fit_total, shown)
        arch = self.where.arch
        if self.blocks_per_sm:
            more = self.blocks_per_sm + 1
            each = arch.smem_per_sm // more - arch.smem_reserved
            blocks = f"{self.blocks_per_sm} ({more} would need {each:,} B or less a block)"
            yield f"blocks per SM that shared memory allows: {blocks}"


def _count(name: str, stages: int, total: int, shown: Breakdown) -> str:
    if not stages:
        return f"  {name:<26} {stages:>3}  not even one fits"
    room = f"{total - shown.limit:,} B over" if total > shown.limit else f"{shown.limit - total:,} B free"
    few = f", and at least {legality.LEAST_STAGES} are needed" if stages < legality.LEAST_STAGES else ""
    return f"  {name:<26} {stages:>3}  {total:>9,} B: {room}{few}"


def explained(tactic: Tactic, where: Target, format: str, out: str, epilogue: str, c: str | None) -> Explained:
    """Raises InputError on names that nobody knows."""
    asked: dict[str, Any] = {"format": format, "out": out, "cutlass": where.cutlass, "epilogue": epilogue, "c": c}
    verdict = legality.check(tactic, arch=where.arch, **asked)
    shown = automatic = None
    if verdict.kind in (FITS, OVER) or verdict.reason in ("stages", "unconfirmed"):
        least = replace(tactic, stages=legality.LEAST_STAGES)
        shown = smem.breakdown(least if verdict.reason == "stages" else tactic, arch=where.arch, **asked)
        if shown.auto_stages:
            automatic = smem.breakdown(replace(tactic, stages=None), arch=where.arch, **asked)
    return Explained(tactic, where, asked, verdict, shown, automatic, nearest(tactic, arch=where.arch, **asked))
