"""Routing: how M rows fall on G groups, stated and seeded."""

from __future__ import annotations

import pytest

from tileforge.errors import InputError
from tileforge.routing import Routing


@pytest.mark.parametrize("text", ["balanced", "uniform", "zipf:1.2", "zipf:0.5", "rows:0,5,0,130", "rows:0"])
def test_parses_back(text: str) -> None:
    assert str(Routing.parse(text)) == text
    assert Routing.parse(str(Routing.parse(text))) == Routing.parse(text)


def test_a_routing_is_its_own_parse() -> None:
    routing = Routing.parse("zipf:1.2")
    assert Routing.parse(routing) is routing


@pytest.mark.parametrize(
    "text",
    ["", "even", "balanced:1", "uniform:1", "zipf", "zipf:", "zipf:-1", "zipf:0", "zipf:nan", "zipf:inf", "zipf:x"]
    + ["rows", "rows:", "rows:1,-2", "rows:1,,2", "rows:1.5", "rows:a"],
)
def test_anything_else_is_refused_with_the_forms_that_work(text: str) -> None:
    with pytest.raises(InputError, match=r"unknown routing .*use balanced, uniform, zipf:<exponent> or rows:"):
        Routing.parse(text)


def test_balanced_is_within_one_row() -> None:
    assert Routing("balanced").sizes(10, 4) == [3, 3, 2, 2]
    assert Routing("balanced").sizes(3, 4) == [1, 1, 1, 0]
    assert Routing("balanced").sizes(0, 2) == [0, 0]


@pytest.mark.parametrize("text", ["balanced", "uniform", "zipf:1.2", "zipf:3"])
@pytest.mark.parametrize(("m", "groups"), [(0, 1), (1, 1), (7, 3), (512, 32), (4096, 256)])
def test_sizes_sum_to_m(text: str, m: int, groups: int) -> None:
    sizes = Routing.parse(text).sizes(m, groups, seed=3)
    assert len(sizes) == groups
    assert sum(sizes) == m
    assert min(sizes) >= 0


@pytest.mark.parametrize(
    ("text", "expected"), [("uniform", [0, 4, 1, 3]), ("zipf:1.2", [0, 6, 1, 1])], ids=["uniform", "zipf"]
)
def test_a_recorded_seed_means_the_same_rows_on_every_python(text: str, expected: list[int]) -> None:
    assert Routing.parse(text).sizes(8, 4, seed=0) == expected


@pytest.mark.parametrize("text", ["uniform", "zipf:1.2"])
def test_the_seed_changes_the_rows(text: str) -> None:
    sizes = [Routing.parse(text).sizes(512, 32, seed=seed) for seed in (0, 1, 0)]
    assert sizes[0] == sizes[2] != sizes[1]


def test_zipf_is_more_skewed_than_uniform_and_no_group_is_always_first() -> None:
    uniform, zipf = (Routing.parse(text).sizes(4096, 32) for text in ("uniform", "zipf:1.2"))
    assert max(uniform) < 2 * 128 < max(zipf)
    first = {max(range(32), key=Routing.parse("zipf:1.2").sizes(4096, 32, seed=seed).__getitem__) for seed in range(8)}
    assert len(first) > 1


def test_p1_a_histogram_with_empty_groups_is_kept_as_it_is() -> None:
    assert Routing.parse("rows:0,5,0,130").sizes(135, 4) == [0, 5, 0, 130]
    assert Routing.parse("rows:0,0").sizes(0, 2) == [0, 0]


@pytest.mark.parametrize(("m", "groups"), [(134, 4), (135, 3), (135, 5)])
def test_a_histogram_that_does_not_sum_to_m(m: int, groups: int) -> None:
    with pytest.raises(InputError, match=f"4 groups and 135 rows, the problem {groups} groups and M = {m} rows"):
        Routing.parse("rows:0,5,0,130").sizes(m, groups)
