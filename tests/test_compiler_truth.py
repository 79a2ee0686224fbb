"""The whole recorded space against the compiler: no false keep, no false prune, every byte; and a fresh sample."""

from __future__ import annotations

import random
from itertools import pairwise

import confusion
import pytest
from confusion import VERSIONS, Row, said, table

from tileforge import legality, smem, space
from tileforge.arch import get_arch
from tileforge.errors import ToolchainError
from tileforge.tactic import Tactic

#: Rows that each file must at least have, so that a file cut short is noticed.
LEAST = {("4.2.0", "sm120"): 4500, ("4.5.0", "sm120"): 17000, ("4.2.0", "sm90"): 1400, ("4.5.0", "sm90"): 6000}
EVERY = sorted(LEAST)


@pytest.mark.parametrize(("cutlass", "arch"), EVERY)
def test_no_false_keep_no_false_prune_and_every_byte(cutlass: str, arch: str) -> None:
    rows = table(cutlass, arch)[1]
    assert len(rows) >= LEAST[cutlass, arch]
    found = confusion.confusion(rows)
    assert not found.false_keep, found.false_keep[:3]
    assert not found.false_prune, found.false_prune[:3]
    assert not found.wrong_bytes, [(row, confusion.estimate(row)) for row in found.wrong_bytes[:3]]
    assert found.counts["fits", "fits"] > 1000
    assert found.counts["refused", "illegal"] > 50


@pytest.mark.parametrize("cutlass", VERSIONS)
@pytest.mark.parametrize("epilogue", [(False, "plain"), (True, "plain"), (False, "finalize")])
def test_nothing_that_is_kept_was_not_asked(cutlass: str, epilogue: tuple[bool, str]) -> None:
    """Every tactic of the SM120 space that the rules keep or find over is in the table, for every output type."""
    arch = get_arch("sm120")
    asked = {(r.format, r.out, r.c, r.epilogue, r.tactic) for r in table(cutlass, "sm120")[1]}
    for form in arch.formats:
        for out in ("bf16", "fp16", "fp32"):
            c, name = out if epilogue[0] else None, epilogue[1]
            how = {"out": out, "epilogue": name, "c": c}
            for tactic in space.enumerate_tactics(arch, form, cutlass, **how):
                verdict = legality.check(tactic, arch=arch, format=form, cutlass=cutlass, **how)
                if verdict.kind in ("fits", "over"):
                    assert (form, out, c, name, tactic) in asked, (form, out, c, name, tactic.id)


@pytest.mark.parametrize("cutlass", VERSIONS)
def test_nothing_of_the_space_is_unknown_or_unjudged(cutlass: str) -> None:
    found = confusion.confusion(row for row in table(cutlass, "sm120")[1] if row.inside)
    assert not any(ours == "unknown" for _, ours in found.counts)
    assert found.unjudged == 0


def test_terms_sum_to_the_compilers_total() -> None:
    for cutlass, arch in EVERY:
        for row in table(cutlass, arch)[1]:
            if not row.error and said(row) != "refused" and row.inside:
                terms = smem.breakdown(row.tactic, arch=arch, **row.asked).terms
                assert sum(terms.values()) == row.figures[1] and min(terms.values()) >= 0, row


def test_a_wrong_estimate_would_be_seen() -> None:
    """The comparison itself: a byte more, and a verdict turned round, are told."""
    rows = [row for row in table("4.5.0", "sm120")[1] if said(row) == "fits"][:50]
    assert not confusion.confusion(rows).wrong_bytes
    spoiled = [row._replace(figures=(row.figures[0], row.figures[1] + 1, *row.figures[2:])) for row in rows]
    assert len(confusion.confusion(spoiled).wrong_bytes) == 50
    over = [row._replace(figures=(row.figures[0], 101_377, *row.figures[2:])) for row in rows]
    assert len(confusion.confusion(over).false_keep) == 50
    refused = [row for row in table("4.5.0", "sm120")[1] if row.error][:20]
    fits = [row._replace(error="", figures=rows[0].figures) for row in refused]
    found = confusion.confusion(fits)
    assert len(found.false_prune) + found.unjudged == 20


@pytest.mark.parametrize("cutlass", VERSIONS)
def test_the_limit_lies_between_two_stage_counts(cutlass: str) -> None:
    """One stage more than fits was asked of every shape, and the compiler finds it over."""
    shapes: dict[tuple[object, ...], dict[int, Row]] = {}
    for row in table(cutlass, "sm120")[1]:
        if row.inside and not row.error and row.tactic.stages:
            key = (row.format, row.out, row.c, row.epilogue, Tactic.parse(row.tactic.id).tile, row.tactic.schedule)
            shapes.setdefault((*key, row.tactic.epilogue_tile, row.tactic.swap_ab), {})[row.tactic.stages] = row
    edges = 0
    for counts in shapes.values():
        for low, high in pairwise(sorted(counts)):
            edges += (said(counts[low]), said(counts[high])) == ("fits", "over")
    assert edges > 200


@pytest.mark.compile
@pytest.mark.parametrize("cutlass", VERSIONS)
def test_the_compiler_now_agrees_on_a_fresh_sample(cutlass: str) -> None:
    """Twelve for each version, twenty-four in all, from a new seed each time; needs nvcc and both CUTLASS."""
    seed = random.SystemRandom().randrange(10**6)
    print(f"seed {seed}")
    try:
        rows = list(confusion.fresh(cutlass, 12, seed))
    except ToolchainError as missing:
        pytest.skip(str(missing))
    found = confusion.confusion(rows)
    wrong = found.false_keep + found.false_prune + found.wrong_bytes
    assert not wrong, (seed, [(row, confusion.estimate(row)) for row in wrong])
    assert sum(found.counts.values()) + found.unjudged == 12
