"""The problem and the formats: sizes that work, and what is said about those that do not."""

from __future__ import annotations

import dataclasses

import pytest

from tileforge.errors import InputError, TileforgeError
from tileforge.formats import FORMATS, get_format, round_up
from tileforge.problem import GroupedGemm
from tileforge.routing import Routing

GLM5 = GroupedGemm(m=512, n=4096, k=6144, groups=32)


def test_what_a_problem_says_of_itself() -> None:
    assert GLM5.rows_per_group == 16
    assert GLM5.flops == 2 * 512 * 4096 * 6144
    assert GLM5.key == "nvfp4_bf16_n4096_k6144_g32"
    assert str(GLM5) == "M=512 (16 rows/group) N=4096 K=6144 G=32 nvfp4->bf16 balanced"
    assert str(dataclasses.replace(GLM5, name="gate+up")).startswith("gate+up: M=512")
    assert "(0.5 rows/group)" in str(GLM5.with_m(16))
    assert GLM5.routing == Routing("balanced")


def test_a_problem_is_frozen_hashable_and_equal_by_value() -> None:
    assert {GLM5, GroupedGemm(m=512, n=4096, k=6144, groups=32)} == {GLM5}
    assert GLM5.with_m(513) != GLM5
    with pytest.raises(dataclasses.FrozenInstanceError):
        GLM5.m = 1  # type: ignore[misc]


@pytest.mark.parametrize("routing", ["balanced", "uniform", "zipf:1.2", "rows:0,5,0,130"])
def test_a_problem_survives_its_dictionary(routing: str) -> None:
    problem = GroupedGemm(m=135, n=256, k=512, groups=4, format="bf16", out="fp32", routing=routing, seed=5, name="x")
    plain = problem.as_dict()
    assert all(type(value) in (int, str) for value in plain.values())
    assert GroupedGemm(**plain) == problem


def test_d1_two_output_types_are_two_keys() -> None:
    keys = {dataclasses.replace(GLM5, out=out).key for out in ("bf16", "fp16", "fp32")}
    keys |= {dataclasses.replace(GLM5, format=name).key for name in FORMATS}
    assert len(keys) == 3 + len(FORMATS) - 1


def test_m_routing_seed_and_name_are_not_in_the_key() -> None:
    assert dataclasses.replace(GLM5, m=1, routing="uniform", seed=9, name="x").key == GLM5.key


def test_p3_no_rows_is_a_problem() -> None:
    empty = GLM5.with_m(0)
    assert empty.sizes == [0] * 32
    assert empty.flops == empty.bytes() == 0


def test_p1_empty_groups_are_not_read() -> None:
    ragged = GroupedGemm(m=135, n=256, k=512, groups=4, format="bf16", routing="rows:0,5,0,130")
    assert ragged.sizes == [0, 5, 0, 130]
    assert ragged.bytes() == 2 * (135 * 512 + 2 * 256 * 512 + 135 * 256)


def test_bytes_counts_scales_stored_for_128_rows() -> None:
    one = GroupedGemm(m=1, n=64, k=256, groups=1, format="nvfp4")
    assert one.bytes() == 256 // 2 + 64 * 256 // 2 + (1 + 128) * 16 + 64 * 2


def test_bytes_of_one_expert_of_the_field_notes() -> None:
    """32x2048x6144 at vector 16 reads about 110 FLOP a byte: ten times below the ridge, not 72."""
    expert = GroupedGemm(m=32, n=2048, k=6144, groups=1)
    assert expert.bytes() == 32 * 3072 + 2048 * 3072 + (32 + 2048) * 384 + 2 * 32 * 2048
    assert expert.flops / expert.bytes() == pytest.approx(110, abs=2)


@pytest.mark.parametrize("field", ["m", "n", "k", "groups"])
@pytest.mark.parametrize("value", [-1, 1.0, "8", True, 2**31, None])
def test_sizes_that_are_no_sizes(field: str, value: object) -> None:
    with pytest.raises(InputError, match="is not a whole number from"):
        dataclasses.replace(GLM5, **{field: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("field", ["n", "k", "groups"])
def test_zero_is_for_m_alone(field: str) -> None:
    with pytest.raises(InputError, match="is not a whole number from 1"):
        dataclasses.replace(GLM5, **{field: 0})  # type: ignore[arg-type]


@pytest.mark.parametrize("format", ["nvfp4", "mxfp4", "mxfp8_mxfp4"])
def test_l18_k_704_is_refused_with_the_multiple_and_the_padded_size(format: str) -> None:
    with pytest.raises(InputError, match=r"needs K % 128 == 0, but K = 704 leaves 64: pad to 768 and tune that size"):
        GroupedGemm(m=8, n=128, k=704, groups=1, format=format)


@pytest.mark.parametrize(
    ("format", "n", "k", "words"),
    [
        ("bf16", 12, 64, "N % 8 == 0, but N = 12 leaves 4: pad to 16"),
        ("bf16", 16, 12, "K % 8 == 0, but K = 12 leaves 4: pad to 16"),
        ("fp8", 16, 24, "K % 16 == 0, but K = 24 leaves 8: pad to 32"),
        ("nvfp4", 100, 128, "N % 8 == 0, but N = 100 leaves 4: pad to 104"),
    ],
)
def test_n_and_k_that_a_format_cannot_take(format: str, n: int, k: int, words: str) -> None:
    with pytest.raises(InputError) as caught:
        GroupedGemm(m=8, n=n, k=k, groups=1, format=format)
    assert words in str(caught.value)


def test_unknown_format_and_output_list_the_known_ones() -> None:
    with pytest.raises(InputError, match="unknown format 'fp5': use one of bf16, fp8, nvfp4, mxfp4, mxfp8_mxfp4"):
        dataclasses.replace(GLM5, format="fp5")
    with pytest.raises(InputError, match="unknown output type 'int8': use one of bf16, fp16, fp32"):
        dataclasses.replace(GLM5, out="int8")
    with pytest.raises(InputError, match="unknown format"):
        get_format(["nvfp4"])  # type: ignore[arg-type]


def test_a_histogram_must_match_the_problem() -> None:
    with pytest.raises(InputError, match="one count per group that sums to M"):
        dataclasses.replace(GLM5, routing="rows:1,2")


@pytest.mark.parametrize(
    ("format", "k", "columns"),
    [
        ("mxfp4", 2880, 92),
        ("mxfp4", 128, 4),
        ("mxfp4", 64, 4),
        ("nvfp4", 128, 8),
        ("nvfp4", 6144, 384),
        ("bf16", 64, 0),
    ],
    ids=["P5", "one-atom", "half-atom", "nvfp4-two", "glm-5", "none"],
)
def test_scale_columns_are_stored_by_fours(format: str, k: int, columns: int) -> None:
    assert get_format(format).scale_columns(k) == columns


def test_the_scale_vector_belongs_to_the_format() -> None:
    assert {name: form.scale_vector for name, form in FORMATS.items()} == {
        "bf16": None,
        "fp8": None,
        "nvfp4": 16,
        "mxfp4": 32,
        "mxfp8_mxfp4": 32,
    }
    assert [form.block_scaled for form in FORMATS.values()] == [False, False, True, True, True]


def test_round_up() -> None:
    assert [round_up(value, 128) for value in (0, 1, 127, 128, 129)] == [0, 128, 128, 128, 256]


def test_errors_are_one_line() -> None:
    assert str(InputError("two\n  lines ")) == "two lines"
    assert issubclass(InputError, TileforgeError) and issubclass(InputError, ValueError)
