"""The confusion table: what the compiler says of every recorded tactic, beside what the rules and the estimator say.

    python tests/confusion.py [--fresh 24] [--seed N]

Prints one row for each CUTLASS version, SM and format, with false keeps (we say it fits, the compiler refuses it or it
asks for more than a block may have) and false prunes (the reverse). ``--fresh``: also asks the compiler now about so
many tactics, drawn from a seed that is printed. Exit code 1 when anything disagrees. ``make oracle-check`` runs it.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from tileforge import legality, smem, space
from tileforge.arch import get_arch
from tileforge.errors import ToolchainError
from tileforge.tactic import Tactic
from tileforge.toolchain import KernelSpec, cutlass_of, find_compiler
from tileforge.toolchain.oracle import Found, Question, ask_all

TRUTH = Path(__file__).parent / "data" / "compiler_truth"
VERSIONS = ("4.2.0", "4.5.0")
#: Rules that only a kernel's body asserts.
BODY_RULES = {"sm120": ("epilogue_tile",), "sm90": ("tile_m", "tile_n", "epilogue_tile")}


class Row(NamedTuple):
    """One recorded question with the compiler's answer; ``inside`` the space, or of the sample outside it."""

    cutlass: str
    arch: str
    inside: bool
    format: str
    out: str
    c: str | None
    epilogue: str
    tactic: Tactic
    figures: tuple[int, int, int, int, int, str]
    error: str

    @property
    def asked(self) -> dict[str, Any]:
        return {"format": self.format, "out": self.out, "c": self.c, "epilogue": self.epilogue, "cutlass": self.cutlass}


@cache
def table(cutlass: str, arch: str) -> tuple[dict[str, str], list[Row]]:
    """The header and the rows of one file; arch ``sm120_bodies`` for what bodies assert."""
    with gzip.open(TRUTH / f"{cutlass}_{arch}.tsv.gz", "rt", encoding="utf-8") as file:
        head = json.loads(next(file))
        rows = []
        for number, line in enumerate(file):
            form, out, c, epilogue, tactic, *figures, tile, error = line.rstrip("\n").split("\t")
            inside = number < int(head.get("inside", 0))
            found = (*map(int, figures), tile)
            rows.append(
                Row(cutlass, head["arch"], inside, form, out, c or None, epilogue, Tactic.parse(tactic), found, error)  # type: ignore[arg-type]
            )
    return head, rows


def body(row: Row) -> tuple[object, ...]:
    """What a body's assertions look at; output wider than 16 bits is stored another way."""
    if row.arch == "sm90":
        short = row.tactic.tile[0] < 128 and row.tactic.schedule == "cooperative"
        return (
            "short" if short else row.tactic.schedule,
            row.tactic.tile[1] % 16 == 0 or short,
            row.out == "fp32" and not short,
        )
    return row.tactic.schedule, row.tactic.epilogue_tile, row.out == "fp32"


@cache
def bodies(cutlass: str, arch: str) -> dict[tuple[object, ...], bool]:
    """Whether the kernel's body holds: what the types do not show."""
    found: dict[tuple[object, ...], set[bool]] = {}
    for row in table(cutlass, f"{arch}_bodies")[1]:
        found.setdefault(body(row), set()).add(not row.error)
    mixed = [key for key, holds in found.items() if len(holds) > 1]
    assert not mixed, f"bodies that hold for one operand order and not for another: {mixed}"
    return {key: holds == {True} for key, holds in found.items()}


def said(row: Row) -> str:
    """``fits``, ``over`` or ``refused``: the compiler's side. No rule of ours takes part, only the SM's limit."""
    if row.error:
        return "refused"
    if bodies(row.cutlass, row.arch).get(body(row)) is False:
        return "refused"
    return "over" if row.figures[1] > get_arch(row.arch).smem_per_block else "fits"


@dataclass
class Confusion:
    """Counts of (the compiler, ours), and the rows that disagree."""

    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    false_keep: list[Row] = field(default_factory=list)
    false_prune: list[Row] = field(default_factory=list)
    wrong_bytes: list[Row] = field(default_factory=list)
    unjudged: int = 0

    def add(self, row: Row) -> None:
        """A refusal of ours that only a full compile could confirm, and none has, is counted as unjudged."""
        arch = get_arch(row.arch)
        verdict = legality.check(row.tactic, arch=arch, **row.asked)
        theirs = said(row)
        of_the_body = verdict.reason in BODY_RULES[row.arch]
        if theirs != "refused" and of_the_body and body(row) not in bodies(row.cutlass, row.arch):
            self.unjudged += 1
            return
        self.counts[theirs, verdict.kind] += 1
        if verdict.kind == "fits" and theirs != "fits":
            self.false_keep.append(row)
        if theirs == "fits" and verdict.kind in ("illegal", "over"):
            self.false_prune.append(row)
        if not row.error and verdict.kind in ("fits", "over") and estimate(row) != row.figures:
            self.wrong_bytes.append(row)


def estimate(row: Row) -> tuple[int, int, int, int, int, str]:
    """Our figures in the order of the recorded ones."""
    ours = smem.breakdown(row.tactic, arch=row.arch, **row.asked)
    tile = "x".join(map(str, ours.epilogue_tile))
    return ours.stages, ours.total, ours.mainloop, ours.epilogue, ours.threads, tile


def confusion(rows: Iterable[Row]) -> Confusion:
    found = Confusion()
    for row in rows:
        found.add(row)
    return found


def fresh(version: str, amount: int, seed: int) -> Iterator[Row]:
    """Asks the compiler now: the space of every output and epilogue, and one in four from outside it."""
    toolchain = Found(cutlass_of(version), find_compiler())
    pick, arch = random.Random(seed), get_arch("sm120")
    questions: dict[Question, None] = {}
    while len(questions) < amount:
        form, out = pick.choice(arch.formats), pick.choice(("bf16", "fp16", "fp32"))
        epilogue = pick.choice(("plain", "plain", "finalize"))
        c = pick.choice((None, "bf16", "fp16", "fp32")) if epilogue == "plain" else None
        if len(questions) % 4:
            listed = space.enumerate_tactics(arch, form, version, out=out, epilogue=epilogue, c=c)
            tactic = pick.choice(list(listed))
        else:
            tile = (
                pick.choice((64, 128, 256)),
                pick.choice((16, 32, 64, 128, 192, 256)),
                pick.choice((64, 128, 256, 512)),
            )
            tactic = Tactic(tile, (1, 1), pick.choice(("cooperative", "pingpong")), pick.choice((None, 2, 3, 5)))
        questions[Question(KernelSpec("sm120", form, out, tactic), c, epilogue)] = None
    for question, a in ask_all(questions, toolchain).items():
        spec, tile_of = question.spec, "x".join(map(str, a.epilogue_tile))
        figures = (a.stages, a.smem_bytes, a.mainloop_bytes, a.epilogue_bytes, a.threads, tile_of)
        yield Row(
            version, "sm120", False, spec.format, spec.out, question.c, question.epilogue, spec.tactic, figures, a.error
        )


def report(title: str, found: Confusion) -> bool:
    """Prints one line, and the rows that disagree; returns whether none does."""
    count = found.counts
    line = [count["fits", "fits"], count["over", "over"], count["refused", "illegal"]]
    unknown = sum(number for (_, ours), number in count.items() if ours == "unknown")
    wrong = [len(found.false_keep), len(found.false_prune), len(found.wrong_bytes)]
    print(f"{title:<26}" + "".join(f"{n:>9,}" for n in (*line, unknown, found.unjudged, *wrong)))
    for kind, rows in (
        ("false keep", found.false_keep),
        ("false prune", found.false_prune),
        ("bytes", found.wrong_bytes),
    ):
        for row in rows[:5]:
            print(f"  {kind}: {row.asked} {row.tactic.id}: the compiler: {row.error or row.figures}", file=sys.stderr)
    return not any(wrong)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fresh", type=int, default=0, metavar="N")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    options = parser.parse_args()
    heads = ("fits", "over", "refused", "unknown", "unjudged", "keep!", "prune!", "bytes!")
    print(
        "the compiler and the rules agree that it ...; then what disagrees\n"
        + " " * 26
        + "".join(f"{h:>9}" for h in heads)
    )
    agree = True
    for cutlass in VERSIONS:
        for arch in ("sm120", "sm90"):
            rows = table(cutlass, arch)[1]
            for form in get_arch(arch).formats:
                agree &= report(f"{cutlass} {arch} {form}", confusion(row for row in rows if row.format == form))
    for cutlass in VERSIONS if options.fresh else ():
        try:
            found = confusion(fresh(cutlass, options.fresh, options.seed))
        except ToolchainError as missing:
            print(f"{cutlass}: not asked: {missing}", file=sys.stderr)
            return 2
        agree &= report(f"{cutlass} now, seed {options.seed}", found)
    print("false keeps and false prunes: 0" if agree else "THE COMPILER DISAGREES")
    return 0 if agree else 1


if __name__ == "__main__":
    sys.exit(main())
