"""The tactic and its id, which is an identity: what is written parses back to the same tactic."""

from __future__ import annotations

import dataclasses
import itertools

import pytest

from tileforge.errors import InputError
from tileforge.tactic import DEFAULT, RASTERS, SCHEDULES, SWIZZLES, Tactic

FULL = Tactic(
    tile=(128, 64, 256), stages=3, epilogue_tile=(64, 32), swap_ab=True, schedule="cooperative", raster="m", swizzle=4
)


def every_kind() -> list[Tactic]:
    return [
        Tactic(tile, cluster, schedule, stages, epilogue, swap, raster, swizzle)
        for tile, cluster, schedule, stages, epilogue, swap, raster, swizzle in itertools.product(
            [(128, 8, 64), (256, 128, 128)],
            [(1, 1), (2, 1), (1, 2)],
            SCHEDULES,
            [None, 2, 11],
            [None, (64, 32)],
            [False, True],
            RASTERS,
            SWIZZLES,
        )
    ]


def test_ids_are_unique_and_parse_back() -> None:
    tactics = every_kind()
    assert len({tactic.id for tactic in tactics}) == len(tactics) == 1728
    assert [Tactic.parse(tactic.id) for tactic in tactics] == tactics


def test_dictionaries_come_back() -> None:
    for tactic in every_kind():
        assert Tactic.from_dict(tactic.as_dict()) == tactic


def test_a_readable_id() -> None:
    assert FULL.id == str(FULL) == "128x64x256_c1x1_coop_s3_e64x32_swap_rm_w4"
    assert FULL.kernel_id == "128x64x256_c1x1_coop_s3_e64x32_swap"
    assert DEFAULT.id == "128x128x128_c1x1_coop"


@pytest.mark.parametrize(
    ("text", "tactic"),
    [
        ("128x64x256", Tactic((128, 64, 256))),
        ("128x64x256_pp", Tactic((128, 64, 256), schedule="pingpong")),
        ("128x64x256 pingpong swap", Tactic((128, 64, 256), schedule="pingpong", swap_ab=True)),
        ("  128x64x256   cooperative  s2 ", Tactic((128, 64, 256), stages=2)),
        ("128x64x256_sauto_eauto_w2", Tactic((128, 64, 256), swizzle=2)),
        ("64x256x64_c2x1_rn", Tactic((64, 256, 64), cluster=(2, 1), raster="n")),
    ],
)
def test_short_forms(text: str, tactic: Tactic) -> None:
    assert Tactic.parse(text) == tactic


@pytest.mark.parametrize(
    "text",
    [
        "",
        "128x128",
        "128x128x128x128",
        "128x128x128_turbo",
        "128x128x128_swap_s3",
        "12ax1x1",
        "128x128x128_",
        "7",
        "-1x1x1",
    ]
    + ["128x128x128_c2", "128x128x128_e64", "128x128x128_w", "128x128x128\n128x128x128"],
)
def test_what_is_not_a_tactic_gets_an_example(text: str) -> None:
    with pytest.raises(InputError, match="is not a tactic: write it as 128x64x256_c1x1_coop_s3_e64x32_swap_rm_w4"):
        Tactic.parse(text)


@pytest.mark.parametrize("text", ["0x128x128", "128x128x128_c0x1", "128x128x128_e0x32", "128x128x128_w0"])
def test_sizes_of_zero(text: str) -> None:
    with pytest.raises(InputError, match="whole numbers of 1 and more"):
        Tactic.parse(text)


def test_l13_zero_stages_is_never_a_number_of_stages() -> None:
    with pytest.raises(InputError, match="0 stages is not a number of stages"):
        Tactic.parse("512x512x128_s0")
    with pytest.raises(InputError, match="0 stages is not a number of stages"):
        Tactic((512, 512, 128), stages=0)
    assert Tactic.parse("512x512x128").stages is None


@pytest.mark.parametrize(
    "fields",
    [
        {"schedule": "coop"},
        {"raster": "rm"},
        {"tile": (128, 128)},
        {"tile": (128.0, 128, 128)},
        {"stages": -1},
        {"swizzle": 0},
    ],
    ids=str,
)
def test_fields_that_cannot_be(fields: dict[str, object]) -> None:
    with pytest.raises(InputError):
        dataclasses.replace(DEFAULT, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"tile": [128, 128, 128], "warps": 4}, "unknown tactic field 'warps'"),
        ({}, "not a tactic"),
        ({"tile": 128}, "not a tactic"),
        ({"tile": [128, 128, 128], "stages": "three"}, "whole numbers"),
        ({"tile": ["128", 128, 128]}, "whole numbers"),
    ],
    ids=str,
)
def test_dictionaries_that_are_no_tactic(fields: dict[str, object], words: str) -> None:
    with pytest.raises(InputError, match=words):
        Tactic.from_dict(fields)


def test_missing_fields_of_a_dictionary_take_defaults() -> None:
    assert Tactic.from_dict({"tile": [128, 128, 128]}) == DEFAULT


def test_run_time_fields_do_not_name_a_kernel() -> None:
    assert FULL.compile_time() == dataclasses.replace(FULL, raster="heuristic", swizzle=1)
    kernels = {tactic.kernel_id for tactic in every_kind()}
    assert len(kernels) == 1728 // (len(RASTERS) * len(SWIZZLES))
    assert {tactic.compile_time().id for tactic in every_kind()} == kernels


def test_k_is_written_in_elements_whatever_the_format() -> None:
    assert Tactic.parse("128x128x256").tile[2] == 256


def test_a_tactic_is_small_frozen_and_hashable() -> None:
    assert not hasattr(FULL, "__dict__")
    assert {FULL: 1}[Tactic.parse(FULL.id)] == 1
    with pytest.raises(dataclasses.FrozenInstanceError):
        FULL.stages = 2  # type: ignore[misc]
