"""Files of the database: read field by field, refused one by one, written with minimal diffs."""

from __future__ import annotations

import random
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from tileforge.db import Evidence, GpuFacts, Key, Record, TuningDB
from tileforge.db import schema as files
from tileforge.db.yaml_io import Refused, scalar
from tileforge.errors import InputError
from tileforge.routing import Routing
from tileforge.tactic import DEFAULT, Tactic

FROZEN = Path(__file__).parent / "data" / "db_v1"
KEY = Key("h200", "bf16", "bf16", 4096, 6144, 32)
HAND = Key("rtx_pro_6000", "nvfp4", "bf16", 4096, 6144, 32)


def frozen_text() -> str:
    return (FROZEN / KEY.path).read_text()


def test_schema_1_file_loads_with_every_field() -> None:
    db = TuningDB(FROZEN, read_only=True)
    predicted, measured, transferred = db.get(KEY)
    assert (predicted.m, predicted.provenance, predicted.time_us, predicted.predicted_us) == (
        32,
        "predicted",
        None,
        381.5,
    )
    assert measured.tactic == Tactic.parse("128x16x128_swap") and measured.default == DEFAULT
    assert (measured.time_us, measured.low_us, measured.high_us, measured.samples) == (382.12, 381.0, 384.0, 7)
    assert (measured.default_us, measured.error, measured.date) == (511.78, 0.00212, "2026-11-30")
    assert measured.rows_per_group == 16 and measured.speedup == pytest.approx(511.78 / 382.12)
    assert measured.ties == (Tactic.parse("128x16x64_swap"),)
    assert measured.environment["cutlass_digest"] == "12e456" and measured.environment["compiler"] == "13.0"
    assert measured.conditions == {"power_w": 433.3, "sm_clock_mhz": 1980, "throttled": False}
    assert [e.tactic.id for e in measured.evidence] == ["64x256x64_c1x1_pp_rm_w4"]
    assert measured.gpu == GpuFacts("NVIDIA H200", 90, 132, 232448)
    assert (
        transferred.routing == Routing("zipf", 1.2) and transferred.seed == 3 and transferred.origin == "h200 balanced"
    )
    assert transferred.tactic == Tactic((64, 128, 64), (2, 1), "pingpong", 3, (64, 32), False, "m", 4)
    assert not db.refused()


def test_schema_1_written_by_hand() -> None:
    first, second = TuningDB(FROZEN).get(HAND)
    assert first.tactic == Tactic((128, 64, 256), swap_ab=True) and first.provenance == "transferred"
    assert second.tactic == Tactic((128, 128, 128), stages=3) and second.note == "people's choice"


def test_text_read_and_written_is_the_same_text() -> None:
    assert files.write(files.read(frozen_text(), KEY)) == frozen_text()


def test_ordinary_yaml_readers_agree() -> None:
    """What we write means the same to PyYAML: text is text (a digest 12e456, a version 13.0), numbers are numbers."""
    loaded = yaml.safe_load(frozen_text())
    record = loaded["records"][1]
    assert record["environment"]["cutlass_digest"] == "12e456" and record["environment"]["compiler"] == "13.0"
    assert record["time_us"] == 382.12 and record["tactic"]["tile"] == [128, 16, 128]
    assert loaded["records"][2]["routing"] == "zipf:1.2"


@pytest.mark.parametrize(
    "value", ["", "no", "1.5", "007", "a: b", "#x", "ü\u2028\x00\x7f", "~", "12e3", "0x1f", "-", "'q\"\\"]
)
def test_text_survives_writing(value: str) -> None:
    assert yaml.safe_load(scalar(value)) == value
    record = replace(files.read(frozen_text(), KEY).records[(512, "balanced")], note=value)
    content = files.Content(KEY, record.gpu, {record.slot: record})
    assert files.read(files.write(content), KEY) == content


@pytest.mark.parametrize("value", [1e-5, 1.25e-7, 3.0, 1234567.0, 1e16])
def test_floats_survive_writing(value: float) -> None:
    assert yaml.safe_load(scalar(value)) == value


def test_D3_every_cut_of_a_file_is_refused_with_a_line() -> None:
    text = frozen_text()
    for cut in range(len(text) - 1):  # all but the last line end: without that one the file is whole
        with pytest.raises(Refused) as refused:
            files.read(text[:cut], KEY)
        assert refused.value.reason
        assert 1 <= refused.value.line <= text[:cut].count("\n") + 1


REFUSALS = {
    "python-tag": ("note: !!python/object/apply:os.system [id]\n", 1, "tag"),
    "alias-bomb": ("a: &a [x, x]\nb: [*a, *a]\n", 1, "anchors"),
    "future-schema": ("schema: 2\nrecords: []\n", 1, "schema 2"),
    "no-schema": ("records: []\n", 1, "no schema"),
    "two-documents": ("schema: 1\nrecords: []\n---\nschema: 1\n", 3, "second document"),
    "repeated-name": ("schema: 1\nrecords: []\nrecords: []\n", 3, "twice"),
    "unknown-field": ("schema: 1\nrecords:\n- m: 1\n  tactic: 128x64x256\n  tiem_us: 3\n", 5, "tiem_us"),
    "text-for-number": ('schema: 1\nrecords:\n- m: "16"\n  tactic: 128x64x256\n', 3, "m must be a whole number"),
    "list-for-number": ("schema: 1\nrecords:\n- tactic: 128x64x256\n  m: [1]\n", 4, "m must be a whole number"),
    "huge-number": (f"schema: 1\nrecords:\n- tactic: 128x64x256\n  m: {'9' * 400}\n", 4, "m must be"),
    "m-0": ("schema: 1\nrecords:\n- {m: 0, tactic: 128x64x256}\n", 3, "bucket"),
    "nan-time": ("schema: 1\nrecords:\n- m: 1\n  tactic: 128x64x256\n  time_us: .nan\n", 5, "time_us must be a number"),
    "inf-time": ("schema: 1\nrecords:\n- m: 1\n  tactic: 128x64x256\n  time_us: 1e999\n", 5, "time_us"),
    "negative-time": ("schema: 1\nrecords:\n- {m: 1, tactic: 128x64x256, time_us: -1.0}\n", 3, "time_us"),
    "predicted-as-measured": (
        "schema: 1\nrecords:\n- {m: 1, tactic: 128x64x256, provenance: predicted, time_us: 3.0}\n",
        3,
        "only what was measured",
    ),
    "no-tactic": ("schema: 1\nrecords:\n- m: 1\n", 3, "no tactic"),
    "not-a-tactic": ("schema: 1\nrecords:\n- m: 1\n  tactic: fast please\n", 4, "not a tactic"),
    "tile-of-2": ("schema: 1\nrecords:\n- m: 1\n  tactic: {tile: [128, 64]}\n", 4, "list of 3"),
    "swizzle-3": ("schema: 1\nrecords:\n- m: 1\n  tactic: {tile: [128, 64, 128], swizzle: 3}\n", 4, "swizzle"),
    "wrong-rows": ("schema: 1\nrecords:\n- {m: 64, tactic: 128x64x256, rows_per_group: 16}\n", 3, "rows_per_group"),
    "same-bucket": ("schema: 1\nrecords:\n- {m: 1, tactic: 128x64x256}\n- {m: 1, tactic: 128x64x256}\n", 4, "second"),
    "another-key": ("schema: 1\nkey:\n  gpu: rtx_pro_6000\n  n: 512\nrecords: []\n", 4, "key says n"),
    "root-is-a-list": ("- schema: 1\n", 1, "mapping"),
    "deep": ("schema: 1\nrecords: " + "[" * 5000 + "]" * 5000 + "\n", 2, "nest"),
    "control-character": ("schema: 1\nrecords: []\nx: \x07\n", 3, "character"),
    "unclosed": ("schema: 1\nrecords: [{m: 1\n", 2, "not YAML"),
    "empty": ("", 1, "empty"),
    "merge-key": ("schema: 1\n<<: {records: []}\nrecords: []\n", 2, "unknown field"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_D3_refused_with_line_and_reason(name: str) -> None:
    text, line, reason = REFUSALS[name]
    with pytest.raises(Refused) as refused:
        files.read(text, HAND)
    assert reason in refused.value.reason
    assert refused.value.line == line
    assert "\n" not in refused.value.reason


def test_D3_mutated_files_are_read_or_refused_and_never_crash() -> None:
    text, rng, refused = frozen_text(), random.Random(0), 0
    pieces = [
        "!!python/name:os.system ",
        "&a ",
        "*a",
        "[" * 50,
        "{",
        "\x00",
        "\t",
        "9" * 60,
        "---\n",
        "...\n",
        ": ",
        "\ud800",
    ]
    for _ in range(300):
        mutated = text
        for _ in range(rng.randint(1, 3)):
            at, length = rng.randrange(len(mutated)), rng.randint(0, 12)
            mutated = mutated[:at] + rng.choice(pieces) + mutated[at + length :]
        try:
            files.read(mutated, KEY)
        except Refused as error:
            refused += 1
            assert error.line >= 0 and error.reason
    assert refused > 250


def test_a_key_has_one_file_name_and_the_name_one_key() -> None:
    variants = [
        KEY,
        Key("h200", "mxfp8_mxfp4", "fp32", 8, 128, 1),
        replace(HAND, execution="eager"),
        replace(HAND, family="flashinfer_moe"),
        replace(HAND, scale_layout="linear", family="flashinfer", execution="eager"),
    ]
    assert len({key.path for key in variants}) == len(variants)
    for key in variants:
        assert Key.from_path(*key.path.split("/")) == key


@pytest.mark.parametrize(
    "name", ["x.yaml", "nvfp4_bf16_n04096_k6144_g32.yaml", "nvfp4_bf16_n4096_k6144_g32__graph.yaml"]
)
def test_a_file_with_another_name_is_refused(name: str, tmp_path: Path) -> None:
    shutil.copytree(FROZEN, tmp_path, dirs_exist_ok=True)
    (tmp_path / "h200" / name).write_text("schema: 1\nrecords: []\n")
    db = TuningDB(tmp_path)
    assert len(list(db.records())) == 5
    assert [refusal.path.name for refusal in db.refused()] == [name]


@pytest.mark.parametrize("bad", [{"gpu": "../evil"}, {"family": "A/B"}, {"execution": "x"}, {"scale_layout": "none"}])
def test_a_key_cannot_leave_the_database(bad: dict[str, str]) -> None:
    with pytest.raises(InputError):
        replace(HAND, **bad)  # type: ignore[arg-type]


def test_floats_are_rounded_to_what_they_are_worth() -> None:
    record = Record(KEY, 8, DEFAULT, time_us=123.456789, low_us=123.00001, error=0.0123456, date="2026-11-30")
    assert (record.time_us, record.low_us, record.error) == (123.46, 123.0, 0.0123)
    assert Evidence.of(record).time_us == 123.46


def test_conditions_become_one_level_of_plain_values() -> None:
    record = Record(KEY, 8, DEFAULT, time_us=1.0, conditions={"clock": {"sm": 1980.123456}, "reasons": ["a", "b"]})
    assert record.conditions == {"clock.sm": 1980.0, "reasons": "a,b"}


def test_the_documented_files_load() -> None:
    text = (Path(__file__).parent.parent / "docs" / "database.md").read_text()
    whole, hand = (block.partition("```")[0] for block in text.split("```yaml\n")[1:])
    assert [record.m for record in files.read(whole, KEY).records.values()] == [32, 512]
    assert files.read(hand, HAND).records[(512, "balanced")].provenance == "transferred"


def test_the_documentation_names_every_field() -> None:
    text = (Path(__file__).parent.parent / "docs" / "database.md").read_text()
    fields = {*Record.__dataclass_fields__} - {"key", "gpu", "default_us", "origin"} | {"from", "rows_per_group"}
    assert {name for name in fields if f"`{name}`" not in text} == set()
