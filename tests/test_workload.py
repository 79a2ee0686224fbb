"""Model files and what they become on one GPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from tileforge.errors import InputError
from tileforge.workload import Model, bucket_of, buckets, known_models, load_model

GLM5 = Model("glm-5", hidden=6144, moe_intermediate=2048, experts=256, top_k=8)


def shapes(model: Model, **options: object) -> list[tuple[int, int, int, int]]:
    return [(p.m, p.n, p.k, p.groups) for p in model.problems(**{"rows_per_group": [1], **options}).problems]  # type: ignore[arg-type]


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "model.yaml"
    path.write_text(text)
    return path


def test_p6_ep8_has_a_share_of_the_experts_and_whole_n() -> None:
    assert shapes(GLM5, ep=8) == [(32, 4096, 6144, 32), (32, 6144, 2048, 32)]


def test_p6_tp8_has_all_experts_and_a_share_of_n() -> None:
    assert shapes(GLM5, tp=8) == [(256, 512, 6144, 256), (256, 6144, 256, 256)]


def test_p6_tp_and_ep_together() -> None:
    assert shapes(GLM5, tp=2, ep=4) == [(64, 2048, 6144, 64), (64, 6144, 1024, 64)]


def test_one_gpu_and_a_model_without_gate() -> None:
    plain = Model("plain", hidden=1024, moe_intermediate=512, experts=4, top_k=1, gated=False)
    work = plain.problems(rows_per_group=[3])
    assert [(p.m, p.n, p.k) for p in work.problems] == [(12, 512, 1024), (12, 1024, 512)]
    assert [p.name for p in work.problems] == ["plain up", "plain down"]


def test_rows_are_per_group_and_come_out_sorted_once_each() -> None:
    work = GLM5.problems(rows_per_group=[16, 1, 16, 0], ep=8)
    assert [p.m for p in work.problems] == [0, 32, 512] * 2
    assert [p.rows_per_group for p in work.problems] == [0, 1, 16] * 2


@pytest.mark.parametrize(
    ("tokens", "ep", "m"), [(512, 8, 512), (1, 8, 1), (1, 1, 8), (3, 8, 3), (5, 256, 1), (0, 8, 0)]
)
def test_tokens_become_rows_by_top_k_and_ep(tokens: int, ep: int, m: int) -> None:
    assert [p.m for p in GLM5.problems(tokens=[tokens], ep=ep).problems] == [m, m]


def test_options_reach_the_problems() -> None:
    work = GLM5.problems(rows_per_group=[1], format="bf16", out="fp16", ep=8, routing="zipf:1.2", seed=7)
    assert {(p.format, p.out, str(p.routing), p.seed) for p in work.problems} == {("bf16", "fp16", "zipf:1.2", 7)}
    assert not work.notes


def test_p4_352_gated_columns_pad_to_384_and_say_so() -> None:
    model = Model("m704", hidden=2048, moe_intermediate=704, experts=8, top_k=2)
    work = model.problems(rows_per_group=[1], tp=4)
    gate_up, down = work.problems
    assert (gate_up.n, gate_up.k) == (384, 2048)
    assert (down.n, down.k) == (2048, 256)
    assert any("gate+up: N 352 padded to 384" in note and "352 % 128 = 96" in note for note in work.notes)
    assert any("down: K 176 padded to 256" in note for note in work.notes)
    assert len(work.notes) == 2


def test_p4_formats_without_scale_factors_are_not_padded() -> None:
    model = Model("m704", hidden=2048, moe_intermediate=704, experts=8, top_k=2)
    work = model.problems(rows_per_group=[1], tp=4, format="bf16")
    assert [(p.n, p.k) for p in work.problems] == [(352, 2048), (2048, 176)]
    assert work.notes == ()


@pytest.mark.parametrize("format", ["mxfp4", "mxfp8_mxfp4"])
def test_p5_90_scale_columns_are_stored_as_92_and_the_vector_stays_32(format: str) -> None:
    work = load_model("gpt-oss-120b").problems(rows_per_group=[1], format=format, ep=4)
    for problem in work.problems:
        assert problem.form.scale_vector == 32
        assert problem.form.scale_columns(2880) == problem.form.scale_columns(problem.k) == 92
    gate_up, down = work.problems
    assert (gate_up.n, gate_up.k, down.n, down.k) == (5760, 2944, 2944, 2944)
    assert any(
        "gate+up: K 2880 padded to 2944" in note and "vector 32: 90, stored as 92" in note for note in work.notes
    )


def test_p5_nvfp4_has_vector_16() -> None:
    work = load_model("gpt-oss-120b").problems(rows_per_group=[1], format="nvfp4")
    assert any("vector 16: 180, stored as 184" in note for note in work.notes)


def test_p7_top_k_may_exceed_the_local_experts() -> None:
    model = Model("m128", hidden=2048, moe_intermediate=1024, experts=128, top_k=4)
    work = model.problems(tokens=[1, 64], ep=64)
    assert {(p.m, p.groups) for p in work.problems} == {(1, 2), (4, 2)}
    assert all(sum(p.sizes) == p.m for p in work.problems)


def test_l18_k_704_pads_to_768_and_says_so() -> None:
    model = Model("m704", hidden=2048, moe_intermediate=704, experts=8, top_k=2)
    work = model.problems(rows_per_group=[1])
    assert work.problems[1].k == 768
    assert [note for note in work.notes if "down: K 704 padded to 768" in note and "704 % 128 = 64" in note]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"ep": 3}, "EP3 does not divide the 256 experts of glm-5: EP2 does"),
        ({"ep": 512}, "EP512 does not divide the 256 experts of glm-5: EP256 does"),
        ({"tp": 3}, "TP3 does not divide moe_intermediate 2048"),
        ({"ep": 0}, "EP 0 is not a number of GPUs"),
        ({"tp": -2}, "TP -2 is not a number of GPUs"),
        ({"rows_per_group": [-1]}, "rows or tokens -1"),
        ({"rows_per_group": [1.5]}, "rows or tokens 1.5"),
        ({"rows_per_group": []}, "say how many rows"),
        ({"tokens": [4]}, "not both"),
        ({"format": "fp3"}, "unknown format 'fp3'"),
        ({"routing": "rows:1,2"}, "one count per group"),
    ],
)
def test_options_that_cannot_be_meant(options: dict[str, object], words: str) -> None:
    with pytest.raises(InputError) as caught:
        shapes(GLM5, **options)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_models_that_come_along() -> None:
    assert {"glm-5", "deepseek-v3", "qwen3-235b-a22b", "gpt-oss-120b"} <= set(known_models())
    for name, path in known_models().items():
        model = load_model(path)
        assert model.name == name
        assert model == load_model(name) == load_model(Path(name))
        assert model.source
    glm5 = load_model("glm-5")
    assert (glm5.hidden, glm5.moe_intermediate, glm5.experts, glm5.top_k, glm5.gated) == (6144, 2048, 256, 8, True)


GOOD = "name: x\nhidden: 128\nmoe_intermediate: 128\nexperts: 4\ntop_k: 2\n"


def test_a_model_file_with_the_needed_fields_only(tmp_path: Path) -> None:
    assert load_model(write(tmp_path, GOOD)) == Model("x", 128, 128, 4, 2, gated=True, shared_experts=0, source="")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (GOOD.replace("hidden: 128\n", ""), "model field 'hidden' is missing"),
        (GOOD + "hiden: 1\n", "unknown model field 'hiden': known are name, hidden"),
        (GOOD.replace("hidden: 128", "hidden: '128'"), "hidden = '128' is not a whole number"),
        (GOOD.replace("experts: 4", "experts: 4.0"), "experts = 4.0 is not a whole number"),
        (GOOD.replace("experts: 4", "experts: true"), "experts = True is not a whole number"),
        (GOOD.replace("top_k: 2", "top_k: 0"), "top_k = 0 is not a whole number of 1 or more"),
        (GOOD.replace("top_k: 2", "top_k: 5"), "top_k = 5 is more than its 4 experts"),
        (GOOD.replace("name: x", "name: 7"), "name = 7 is not a text"),
        (GOOD.replace("name: x", "name: ''"), "name = '' is not a text"),
        (GOOD + "gated: 1\n", "gated = 1 is not true or false"),
        (GOOD + "shared_experts: -1\n", "shared_experts = -1 is not a whole number of 0 or more"),
        ("- 1\n- 2\n", "not list"),
        ("", "not NoneType"),
        ("name: [x\nhidden: 3\n", "not YAML"),
        ("a: !!python/object/apply:os.getcwd []\n", "not YAML"),
    ],
)
def test_a_bad_model_file_is_one_line_that_names_it(tmp_path: Path, text: str, words: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(InputError) as caught:
        load_model(path)
    assert str(caught.value).startswith(str(path))
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_no_such_model() -> None:
    with pytest.raises(InputError, match="no model file 'nope': give a YAML file or one of .*glm-5"):
        load_model("nope")


def test_a_model_file_that_is_not_text(tmp_path: Path) -> None:
    path = tmp_path / "model.yaml"
    path.write_bytes(b"name: \xff\xfe\n")
    with pytest.raises(InputError, match="cannot be read"):
        load_model(path)


def test_buckets_are_powers_of_two_that_cover_the_range() -> None:
    assert buckets(1) == (1,)
    assert buckets(64) == (1, 2, 4, 8, 16, 32, 64)
    assert buckets(65, smallest=16) == (16, 32, 64, 128)
    assert buckets(48, smallest=3, per_octave=2) == (3, 4, 6, 8, 12, 16, 24, 32, 48)
    assert buckets(3, per_octave=2) == (1, 2, 3)


@pytest.mark.parametrize("arguments", [(0,), (4, 8), (4, 0), (4, 1, 3)])
def test_empty_ranges_of_buckets(arguments: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match="no buckets"):
        buckets(*arguments)


def test_d5_look_up_rounds_up() -> None:
    assert [bucket_of(m, (16, 32)) for m in (1, 16, 17, 24, 32, 33)] == [16, 16, 32, 32, 32, None]
    assert bucket_of(1, ()) is None
