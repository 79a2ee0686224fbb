"""The oracle: its reading of the compiler's answers and refusals with a scripted nvcc, and once with the real one."""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

import pytest
from fake_toolchain import headers

from tileforge import legality, smem, space
from tileforge.arch import get_arch
from tileforge.errors import ToolchainError
from tileforge.problem import GroupedGemm
from tileforge.tactic import Tactic
from tileforge.toolchain import Compiler, KernelSpec, find_compiler, find_cutlass, oracle
from tileforge.toolchain.compiler import find_host_compiler

#: An nvcc that answers as the real one does: K tile 511 fails with a trace, 510 with no trace, 509 like a full disk,
#: 508 hangs, 507 leaves a tactic out of the answer, 506 has no room for B's scale factors.
SCRIPT = r"""
import re, struct, sys, time
open(JOURNAL, "a").write("call\n")
arguments = sys.argv[1:]
lines = open(arguments[-3]).read().splitlines()
asked = [(n + 1, re.findall(r"[\w-]+", line)[1:]) for n, line in enumerate(lines) if line.startswith("TF_ORACLE")]
out, errors = [], []
for number, (name, form, kind, m, n, k, *rest) in asked:
    if k == "511":
        errors.append(f'/x/y/mma.hpp(225): error: static assertion failed with "Stages of {m} too few"\n'
                      f'    instantiation of class "A" at line 40 of /x/y/builder.inl\n'
                      f'    instantiation of class "B" at line {number} of question.cu\n')
    if k == "510":
        errors.append("/x/y/other.hpp(1): error: no luck\n")
    if k == "509":
        sys.exit("nvcc fatal: error: No space left on device")
    if k == "508":
        time.sleep(60)
    a, b = (3 * int(rows) * -(-int(k) // 16) for rows in (m, n))
    values = [3, int(m) * int(n), int(k), 9216, 8704, 240, 896, 384, 64, 32, a, b * (k != "506"), 450, 1]
    raw = struct.pack("<14i", *values).rstrip(b"\0")
    if k != "507":
        size, body = 56, ", ".join(map(str, raw))
        out.append(f".global .align 4 .b8 tf_oracle_{name}[{size}] = " + "{" + body + "};")
if errors:
    print("".join(errors))
    sys.exit(2)
open(arguments[-1], "w").write("\n".join(out))
"""


@pytest.fixture
def fake(tmp_path: Path) -> oracle.Found:
    nvcc = tmp_path / "nvcc"
    journal = tmp_path / "journal"
    nvcc.write_text(f"#!{sys.executable}\nJOURNAL = {str(journal)!r}\n{SCRIPT}")
    nvcc.chmod(0o755)
    compiler = Compiler(nvcc, "13.0", "13.0.88", "test", find_host_compiler())
    return oracle.Found(find_cutlass(headers(tmp_path / "include")), compiler)


def calls(fake: oracle.Found) -> int:
    journal = fake.compiler.nvcc.parent / "journal"
    return len(journal.read_text().splitlines()) if journal.exists() else 0


def spec(k: int = 128, m: int = 128, n: int = 64, arch: str = "sm120") -> KernelSpec:
    return KernelSpec(arch, "nvfp4" if arch != "sm90" else "bf16", "bf16", Tactic((m, n, k)))


def test_answers_come_in_order_and_once(fake: oracle.Found, tmp_path: Path) -> None:
    specs = [spec(256), spec(128), spec(256, arch="sm90"), spec(256)]
    answers = oracle.ask(specs, fake, cache_dir=tmp_path / "cache", jobs=1)
    assert list(answers) == [spec(256), spec(128), spec(256, arch="sm90")]
    assert answers[spec(256)] == oracle.OracleAnswer(3, 128 * 64, 256, 9216, 384, (64, 32))
    assert answers[spec(256)].ok
    assert calls(fake) == 2, "one file for each SM"


def test_a_tile_without_room_for_scale_factors_is_refused(fake: oracle.Found, tmp_path: Path) -> None:
    """It instantiates, and would be wrong."""
    answers = oracle.ask([spec(128), spec(506)], fake, cache_dir=tmp_path / "cache")
    assert answers[spec(128)].ok
    assert answers[spec(506)].error == "instantiates with 0 B a stage for the 2,048 B of B's scale factors"


def test_a_c_operand_makes_another_question(fake: oracle.Found, tmp_path: Path) -> None:
    questions = [oracle.Question(spec()), oracle.Question(spec(), "fp32"), oracle.Question(spec(), "bf16")]
    answers = oracle.ask_all(questions, fake, cache_dir=tmp_path / "cache", jobs=1)
    assert list(answers) == questions
    (file,) = (tmp_path / "cache").iterdir()
    assert set(json.loads(file.read_text())) == {spec().id, f"{spec().id}+c_fp32", f"{spec().id}+c_bf16"}
    lines = [question.line(3, "TF_ORACLE") for question in questions]
    assert [line.split(", ")[-2:] for line in lines] == [[f"TF_{c}", "0)"] for c in ("C_NONE", "OUT_FP32", "OUT_BF16")]


def test_runtime_fields_do_not_matter(fake: oracle.Found, tmp_path: Path) -> None:
    specs = [KernelSpec("sm120", "nvfp4", "bf16", tactic) for tactic in space.runtime_variants(Tactic((128, 64, 128)))]
    assert len(oracle.ask(specs, fake, cache_dir=tmp_path / "cache")) == 1


def test_refused_tactics_are_taken_out_with_their_message(fake: oracle.Found, tmp_path: Path) -> None:
    specs = [spec(128), spec(511, m=256), spec(256), spec(511, m=512)]
    answers = oracle.ask(specs, fake, cache_dir=tmp_path / "cache", jobs=1)
    assert [answers[s].ok for s in specs] == [True, False, True, False]
    assert answers[spec(511, m=256)] == oracle.OracleAnswer(error="Stages of 256 too few (mma.hpp:225)")
    assert answers[spec(511, m=512)].error == "Stages of 512 too few (mma.hpp:225)"
    assert calls(fake) == 2, "the traces name them: no halving"


def test_a_refusal_without_a_trace_is_found_by_halving(fake: oracle.Found, tmp_path: Path) -> None:
    specs = [spec(128, n=n) for n in (32, 64, 128, 256, 512)] + [spec(510)]
    answers = oracle.ask(specs, fake, cache_dir=tmp_path / "cache", jobs=1)
    assert [s for s in specs if not answers[s].ok] == [spec(510)]
    assert answers[spec(510)].error == "no luck (other.hpp:1)"


def test_answers_and_refusals_are_kept(fake: oracle.Found, tmp_path: Path) -> None:
    specs = [spec(128), spec(511)]
    first = oracle.ask(specs, fake, cache_dir=tmp_path / "cache")
    asked = calls(fake)
    assert oracle.ask(specs, fake, cache_dir=tmp_path / "cache") == first
    assert calls(fake) == asked
    oracle.ask([*specs, spec(256)], fake, cache_dir=tmp_path / "cache")
    assert calls(fake) == asked + 1
    (file,) = (tmp_path / "cache").iterdir()
    assert set(json.loads(file.read_text())) == {spec(128).id, spec(511).id, spec(256).id}


def test_other_headers_are_asked_afresh(fake: oracle.Found, tmp_path: Path) -> None:
    oracle.ask([spec()], fake, cache_dir=tmp_path / "cache")
    other = oracle.Found(find_cutlass(headers(tmp_path / "other", content="changed")), fake.compiler)
    oracle.ask([spec()], other, cache_dir=tmp_path / "cache")
    assert calls(fake) == 2


def test_a_damaged_cache_is_replaced(fake: oracle.Found, tmp_path: Path) -> None:
    first = oracle.ask([spec()], fake, cache_dir=tmp_path / "cache")
    (file,) = (tmp_path / "cache").iterdir()
    for text in ("{", "[]", '{"x": 3}', json.dumps({spec().id: {"stages": 1}})):
        file.write_text(text)
        assert oracle.ask([spec()], fake, cache_dir=tmp_path / "cache") == first
    assert spec().id in json.loads(file.read_text())


def test_a_cache_that_cannot_be_written_only_costs_time(fake: oracle.Found, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert oracle.ask([spec()], fake, cache_dir=tmp_path / "file" / "cache")[spec()].ok


def test_a_failing_machine_is_not_a_refusal(fake: oracle.Found, tmp_path: Path) -> None:
    with pytest.raises(ToolchainError, match="not because of a tactic: .*No space left"):
        oracle.ask([spec(), spec(509)], fake, cache_dir=tmp_path / "cache")
    assert not (tmp_path / "cache").exists()


def test_no_answer_in_time(fake: oracle.Found, tmp_path: Path) -> None:
    with pytest.raises(ToolchainError, match="no answer about 1 tactics in 0.5 s"):
        oracle.ask([spec(508)], fake, cache_dir=tmp_path / "cache", timeout_s=0.5)


def test_an_answer_that_lacks_a_tactic(fake: oracle.Found, tmp_path: Path) -> None:
    with pytest.raises(ToolchainError, match="answered about 1 of 2"):
        oracle.ask([spec(), spec(507)], fake, cache_dir=tmp_path / "cache", jobs=1)


def test_without_a_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fake: oracle.Found) -> None:
    gone = oracle.Found(fake.cutlass, Compiler(tmp_path / "none", "13.0", "13.0.88", "test", find_host_compiler()))
    with pytest.raises(ToolchainError, match="cannot run"):
        oracle.ask([spec()], gone, cache_dir=tmp_path / "cache")
    monkeypatch.setenv("TILEFORGE_NVCC", str(tmp_path / "none"))
    with pytest.raises(ToolchainError):
        oracle.ask([spec()], cache_dir=tmp_path / "cache")


@pytest.mark.parametrize("arch", ["sm120", "sm90"])
def test_the_real_compiler_agrees_on_a_fresh_sample(arch: str, tmp_path: Path) -> None:
    """Six tactics that the recorded table may not hold, from a new seed each time; needs nvcc and CUTLASS."""
    try:
        toolchain = oracle.Found.find()
    except ToolchainError as missing:
        pytest.skip(str(missing))
    version = toolchain.cutlass.version
    spec_of = get_arch(arch)
    if version not in spec_of.cutlass:
        pytest.skip(f"the rules of CUTLASS {version} are not known")
    seed = random.SystemRandom().randrange(10**6)
    print(f"seed {seed}, CUTLASS {version}")
    pick = random.Random(seed)
    sample: list[KernelSpec] = []
    for _ in range(6):
        name = pick.choice(spec_of.formats)
        problem = GroupedGemm(512, 4096, 6144, 32, format=name)
        sample.append(KernelSpec(arch, name, "bf16", pick.choice(space.prune(problem, spec_of, version).legal)))
    for kernel, answer in oracle.ask(sample, toolchain, cache_dir=tmp_path, jobs=1).items():
        ours = smem.breakdown(kernel.tactic, arch=arch, format=kernel.format, cutlass=version)
        assert answer.ok, (seed, kernel, answer)
        assert (answer.stages, answer.smem_bytes, answer.mainloop_bytes, answer.epilogue_bytes, answer.threads) == (
            ours.stages,
            ours.total,
            ours.mainloop,
            ours.epilogue,
            ours.threads,
        ), (seed, kernel)
        assert legality.check(kernel.tactic, arch=spec_of, format=kernel.format, cutlass=version)


def test_the_real_compiler_refuses_what_the_rules_refuse(tmp_path: Path) -> None:
    """One stage, and a tile without scale factors, in one file with a tactic that is fine."""
    try:
        find_compiler()
        toolchain = oracle.Found.find()
    except ToolchainError as missing:
        pytest.skip(str(missing))
    tactics = ["128x128x128", "128x128x512", "64x128x128"]
    specs = [KernelSpec("sm120", "nvfp4", "bf16", Tactic.parse(text)) for text in tactics]
    fine, stages, scales = oracle.ask(specs, toolchain, cache_dir=tmp_path, jobs=1).values()
    assert fine.ok and fine.stages == 4
    assert "2 or more" in stages.error
    assert not scales.ok and scales.error
