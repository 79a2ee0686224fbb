"""The builder: parallel, cached, timed out, interrupted; on a toolchain of scripts, and once on the real one."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from dataclasses import replace
from pathlib import Path

import pytest
from fake_toolchain import HANG, KILLED, OTHER, ROOT, RUBBISH, SLOW, STATIC_ASSERT, Fake, fake, headers, spec

from tileforge import legality, smem
from tileforge.arch import get_arch
from tileforge.errors import BuildError, InputError, ToolchainError
from tileforge.tactic import Tactic
from tileforge.toolchain import Builder, BuildOutcome, KernelSpec, Library, find_cutlass
from tileforge.toolchain import build as build_module
from tileforge.toolchain.verify import query


@pytest.fixture
def tools(tmp_path: Path) -> Fake:
    return fake(tmp_path)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def temporary(tools: Fake) -> list[Path]:
    return list((tools.root / "cache").glob(".tmp-*"))


def test_builds_once_and_finds_again(tools: Fake) -> None:
    builder = tools.builder()
    assert builder.lookup(spec()) is None
    (first,) = builder.build([spec()])
    assert first.ok and not first.cached and first.failure == "" and first.seconds > 0
    assert first.kernel is not None and first.kernel.path.is_file()
    assert first.kernel.info["smem_bytes"] == 90112 and first.kernel.info["stages"] == 4
    assert first.kernel.cutlass == "4.5.0" and first.kernel.meta["peak_bytes"] > 0
    assert (first.kernel.meta["registers"], first.kernel.meta["stack_bytes"]) == (168, 24)
    assert first.kernel.meta["spill_bytes"] == {"stores": 72, "loads": 52}
    (again,) = tools.builder().build([spec()])
    assert again.cached and again.kernel == first.kernel == tools.builder().lookup(spec())
    assert tools.compiles == 1 and temporary(tools) == []


def test_run_time_fields_and_repeats_share_a_kernel(tools: Fake) -> None:
    tactics = [Tactic.parse(text) for text in ("128x64x128", "128x64x128_c1x1_coop_rm_w4", "128x64x128")]
    outcomes = tools.builder().build([KernelSpec("sm120", "nvfp4", "bf16", tactic) for tactic in tactics])
    assert len(outcomes) == 3 and len({outcome.kernel.key for outcome in outcomes if outcome.kernel}) == 1
    assert tools.compiles == 1


def test_what_shapes_the_kernel_is_in_the_key(tools: Fake) -> None:
    """Another compiler, other headers, other sources, other fields: other kernels. The place of things: the same."""
    builder = tools.builder()
    keys = [build_module.key_of(builder.inputs(spec()))]

    def key() -> str:
        return build_module.key_of(tools.builder().inputs(spec()))

    assert key() == keys[0]
    keys.append(build_module.key_of(builder.inputs(spec(stages=3))))
    keys.append(build_module.key_of(builder.inputs(spec(arch="sm121"))))
    object.__setattr__(tools.compiler, "build", "13.1.2")
    keys.append(key())
    object.__setattr__(tools, "cutlass", find_cutlass(headers(tools.root / "other", content="patched")))
    keys.append(key())
    (tools.kernels / "sm120.cuh").write_text("// changed\n")
    keys.append(key())
    assert len(set(keys)) == len(keys)


def test_compile_error_is_one_line_and_remembered(tools: Fake) -> None:
    wanted = [spec(stages=STATIC_ASSERT), spec()]
    failed, fine = tools.builder().build(wanted)
    assert fine.ok and not failed.ok and failed.failure == "compile_failed"
    assert failed.message == f"128x64x128_c1x1_coop_s{STATIC_ASSERT}: Needs at least 2 stages. (sm120.hpp:123)"
    assert failed.log is not None and "ptr_SFA" in failed.log.read_text()
    (again,) = tools.builder().build(wanted[:1])
    assert again.cached and (again.failure, again.message) == (failed.failure, failed.message)
    assert tools.builder().lookup(wanted[0]) is None and tools.compiles == 2
    (retried,) = tools.builder().build(wanted[:1], retry_failed=True)
    assert not retried.cached and retried.message == failed.message and tools.compiles == 3


def test_time_out_kills_all_of_the_compiler(tools: Fake) -> None:
    start = time.monotonic()
    (outcome,) = tools.builder(timeout_s=0.5).build([spec(stages=HANG)])
    assert time.monotonic() - start < 20 and outcome.failure == "timeout"
    assert outcome.message == f"128x64x128_c1x1_coop_s{HANG}: compiling took longer than 0.5 s"
    assert len(tools.pids) == 2 and not any(alive(pid) for pid in tools.pids)
    assert temporary(tools) == []
    (known,) = tools.builder(timeout_s=0.4).build([spec(stages=HANG)])
    assert known.cached and tools.compiles == 1
    (more_time,) = tools.builder(timeout_s=0.6).build([spec(stages=HANG)])
    assert not more_time.cached and tools.compiles == 2


def test_a_failure_of_the_machine_is_not_remembered(tools: Fake) -> None:
    (outcome,) = tools.builder().build([spec(stages=KILLED)])
    assert outcome.failure == "compile_failed" and "'cicc' died due to signal 9" in outcome.message
    assert "not remembered" in outcome.message
    tools.builder().build([spec(stages=KILLED)])
    assert tools.compiles == 2


@pytest.mark.parametrize(
    ("stages", "message", "remembered"),
    [(RUBBISH, "does not answer tf_query: the object: ", False), (OTHER, f"its stages is 3, asked was {OTHER}", True)],
)
def test_what_compiles_but_is_not_the_kernel(tools: Fake, stages: int, message: str, remembered: bool) -> None:
    (outcome,) = tools.builder().build([spec(stages=stages)])
    assert outcome.failure == "compile_failed" and message in outcome.message and str(tools.root) not in outcome.message
    (again,) = tools.builder().build([spec(stages=stages)])
    assert again.cached is remembered and tools.builder().lookup(spec(stages=stages)) is None


def test_order_and_progress(tools: Fake) -> None:
    wanted = [spec(tile=(128, n, 128)) for n in (32, 64, 128)]
    tools.builder().build(wanted[1:2])
    seen: list[BuildOutcome] = []
    outcomes = tools.builder(jobs=1).build(wanted, on_done=seen.append)
    assert [outcome.spec for outcome in outcomes] == wanted
    assert [outcome.spec for outcome in seen] == [wanted[1], wanted[0], wanted[2]]
    assert [outcome.cached for outcome in seen] == [True, False, False]


def test_compiles_run_at_once(tools: Fake) -> None:
    """Four compiles that sleep a second each: less than two seconds with four jobs, more than two with two."""
    wanted = [spec(stages=SLOW, tile=(128, n, 128)) for n in (32, 64, 128, 256)]
    start = time.monotonic()
    assert all(outcome.ok for outcome in tools.builder(jobs=4).build(wanted))
    at_once = time.monotonic() - start
    start = time.monotonic()
    tools.builder(jobs=2, cache_dir=tools.root / "second").build(wanted)
    assert at_once < 3.5 and time.monotonic() - start > 2


def test_broken_entries_are_built_again(tools: Fake) -> None:
    (first,) = tools.builder().build([spec()])
    assert first.kernel is not None
    entry = first.kernel.path.parent
    for damage in (
        lambda: (entry / "kernel.so").unlink(),
        lambda: (entry / "kernel.so").write_bytes(b"half"),
        lambda: (entry / "meta.json").write_text("{"),
        lambda: (entry / "meta.json").write_text('{"inputs": []}'),
        lambda: (entry / "meta.json").unlink(),
    ):
        damage()
        assert tools.builder().lookup(spec()) is None
        (again,) = tools.builder().build([spec()])
        assert not again.cached and again.kernel is not None and again.kernel.path == first.kernel.path
        # Asked in another process: damaging a file that this one has mapped would take it down.
        assert query(again.kernel.path, spec())["tile_n"] == 64
    assert tools.compiles == 6 and temporary(tools) == []


def test_two_processes_build_the_same_kernel(tools: Fake) -> None:
    """Both compile; one entry comes out, and no temporary directory stays."""
    script = textwrap.dedent("""
        import sys; from pathlib import Path; sys.path[:0] = [sys.argv[2], sys.argv[3]]
        from fake_toolchain import *
        from tileforge.toolchain.compiler import find_host_compiler
        root = Path(sys.argv[1])
        compiler = Compiler(root / "bin" / "nvcc", "13.0", "13.0.88", "test", find_host_compiler())
        tools = Fake(root, find_cutlass(root / "include"), compiler, root / "kernels")
        outcome, = tools.builder().build([spec(stages=SLOW)])
        print(outcome.kernel.path, outcome.cached)
    """)
    command = [sys.executable, "-c", script, str(tools.root), str(ROOT), str(ROOT / "tests")]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    answers = [process.communicate(timeout=60)[0].split() for process in running]
    assert answers[0][0] == answers[1][0] and answers[0][1] == answers[1][1] == "False"
    assert tools.compiles == 2 and temporary(tools) == []
    assert tools.builder().lookup(spec(stages=SLOW)) is not None


def test_interrupt_kills_compiles_and_keeps_what_is_done(tools: Fake) -> None:
    """Ctrl-C while one kernel is done and another hangs."""
    script = textwrap.dedent("""
        import sys; from pathlib import Path; sys.path[:0] = [sys.argv[2], sys.argv[3]]
        from fake_toolchain import *
        from tileforge.toolchain.compiler import find_host_compiler
        root = Path(sys.argv[1])
        compiler = Compiler(root / "bin" / "nvcc", "13.0", "13.0.88", "test", find_host_compiler())
        tools = Fake(root, find_cutlass(root / "include"), compiler, root / "kernels")
        wanted = [spec(), spec(stages=HANG), spec(stages=HANG, tile=(128, 128, 128)), spec(tile=(256, 64, 128))]
        try:
            tools.builder(jobs=2).build(wanted, on_done=lambda outcome: print(outcome.spec.id, flush=True))
        except KeyboardInterrupt:
            print("interrupted")
    """)
    command = [sys.executable, "-c", script, str(tools.root), str(ROOT), str(ROOT / "tests")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert process.stdout is not None
    assert process.stdout.readline().strip() == spec().id
    deadline = time.monotonic() + 20
    while len(tools.pids) < 4 and time.monotonic() < deadline:
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGINT)
    assert process.communicate(timeout=20)[0].strip() == "interrupted"
    assert len(tools.pids) == 4 and not any(alive(pid) for pid in tools.pids)
    entries = [path.name for path in (tools.root / "cache").iterdir()]
    kernel = tools.builder().lookup(spec())
    assert kernel is not None and entries == [kernel.key]


def test_unwritable_cache_is_one_line(tools: Fake) -> None:
    (tools.root / "file").touch()
    builder = tools.builder(cache_dir=tools.root / "file" / "kernels")
    assert builder.lookup(spec()) is None
    with pytest.raises(BuildError, match="cannot write the kernel cache .* set TILEFORGE_CACHE"):
        builder.build([spec()])
    assert tools.compiles == 0


def test_a_compiler_that_vanished_is_one_line(tools: Fake) -> None:
    builder = tools.builder()
    tools.compiler.nvcc.unlink()
    with pytest.raises(ToolchainError, match="cannot be started"):
        builder.build([spec()])
    assert temporary(tools) == []


def test_a_full_disk_is_one_line(tools: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(build_module, "write_meta", full)
    with pytest.raises(BuildError, match=r"cannot store kernels in .*: No space left on device"):
        tools.builder().build([spec()])
    assert temporary(tools) == [] and tools.builder().lookup(spec()) is None


def test_sources_that_change_during_a_build_give_no_kernel(tools: Fake) -> None:
    """What was compiled would be filed under the hash of something else."""
    header = tools.kernels / "sm120.cuh"
    builder = tools.builder(jobs=1)

    def edit(outcome: BuildOutcome) -> None:
        if outcome.spec == spec():
            header.write_text("// edited\n")

    with pytest.raises(BuildError, match="changed during the build"):
        builder.build([spec(), spec(stages=SLOW)], on_done=edit)
    assert builder.build([spec()])[0].cached is False  # and a new call goes by the new sources


def test_stale_temporary_directories_are_swept(tools: Fake) -> None:
    old, new = tools.root / "cache" / ".tmp-old", tools.root / "cache" / ".tmp-new"
    for path in (old, new):
        path.mkdir(parents=True)
    os.utime(old, (1, 1))
    tools.builder().build([spec()])
    assert not old.exists() and new.exists()


@pytest.mark.parametrize("options", [{"jobs": 0}, {"timeout_s": 0}])
def test_senseless_options(tools: Fake, options: dict[str, int]) -> None:
    with pytest.raises(InputError):
        tools.builder(**options)


@pytest.fixture
def bare(tools: Fake, monkeypatch: pytest.MonkeyPatch) -> Fake:
    """From here on this machine has neither compiler nor CUTLASS."""

    def none(message: str) -> None:
        raise ToolchainError(message)

    monkeypatch.setattr(build_module, "find_cutlass", lambda: none("no CUTLASS: fetch it"))
    monkeypatch.setattr(build_module, "find_compiler", lambda: none("no nvcc: get one"))
    monkeypatch.delenv("TILEFORGE_NVCC", raising=False)
    monkeypatch.delenv("TILEFORGE_CUTLASS", raising=False)
    return tools


def bare_builder(tools: Fake) -> Builder:
    return Builder(cache_dir=tools.root / "cache", kernels_dir=tools.kernels)


def test_without_a_toolchain_kernels_are_found_by_spec(bare: Fake) -> None:
    for version in ("4.5.0", "4.10.0", "4.2.0"):
        object.__setattr__(bare, "cutlass", find_cutlass(headers(bare.root / version, version)))
        bare.builder().build([spec(), spec(stages=STATIC_ASSERT)])
    builder = bare_builder(bare)
    found = builder.lookup(spec())
    assert found is not None and found.cutlass == "4.10.0"
    (outcome,) = builder.build([spec()])
    assert outcome.cached and outcome.kernel == found
    assert builder.lookup(spec(stages=3)) is None and builder.lookup(spec(stages=STATIC_ASSERT)) is None
    (bare.kernels / "sm120.cuh").write_text("// these are other kernels now\n")
    assert bare_builder(bare).lookup(spec()) is None


def test_kernels_of_other_edited_headers_are_not_found(bare: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    bare.builder().build([spec()])
    (bare.kernels / "emulated.cu").write_text((bare.kernels / "entry.cu").read_text())
    builder, emulated = bare_builder(bare), replace(spec(), emulated=True)
    kernel = builder.lookup(spec())
    assert kernel is not None
    for overlay, found in ((build_module.overlay_digest(), True), ("another", False)):
        inputs = kernel.meta["inputs"] | {"sources": builder._digest(emulated), "overlay": overlay}
        brought = replace(kernel, spec=emulated, meta=kernel.meta | {"inputs": inputs})
        monkeypatch.setattr(builder, "_carried", lambda brought=brought: {emulated: [brought]})
        assert (builder.lookup(emulated) is not None) == found
    monkeypatch.setattr(build_module, "lean_digest", lambda _: "another")
    assert bare_builder(bare).lookup(spec()) is None


def test_kernels_that_arrive_later_are_found(bare: Fake) -> None:
    builder = bare_builder(bare)
    assert builder.lookup(spec()) is None
    bare.builder().build([spec()])
    assert builder.lookup(spec()) is not None


def test_with_headers_but_no_compiler_only_their_kernels_are_found(bare: Fake) -> None:
    bare.builder().build([spec()])
    other = find_cutlass(headers(bare.root / "other", "4.10.0"))
    options = {"cache_dir": bare.root / "cache", "kernels_dir": bare.kernels}
    assert Builder(bare.cutlass, **options).lookup(spec()) is not None
    assert Builder(other, **options).lookup(spec()) is None


def test_headers_that_happen_to_be_here_do_not_hide_kernels_that_were_brought(
    bare: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pip installs CUTLASS 4.2.0 with tileforge; a machine with that and no compiler runs kernels of 4.5.0."""
    bare.builder().build([spec()])
    old = find_cutlass(headers(bare.root / "old", "4.2.0"))
    monkeypatch.setattr(build_module, "find_cutlass", lambda: old)
    builder = bare_builder(bare)
    found = builder.lookup(spec())
    assert found is not None and found.cutlass == builder.cutlass_version == "4.5.0"
    named = Builder(old, cache_dir=bare.root / "cache", kernels_dir=bare.kernels)
    assert named.lookup(spec()) is None and named.cutlass_version == "4.2.0"


def test_without_a_toolchain_a_missing_kernel_says_what_to_do(bare: Fake) -> None:
    bare.builder().build([spec()])
    calls: list[BuildOutcome] = []
    with pytest.raises(BuildError) as error:
        bare_builder(bare).build([spec(), spec(stages=3)], on_done=calls.append)
    line = str(error.value)
    assert "1 of 2 kernels" in line and spec(stages=3).id in line and "no CUTLASS: fetch it; no nvcc: get one" in line
    assert "tileforge build --pack FILE" in line and "tileforge build --unpack FILE" in line and "\n" not in line
    assert calls == []


def test_a_toolchain_that_was_named_and_is_not_there_is_an_error_at_once(
    bare: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILEFORGE_NVCC", "/nowhere")
    with pytest.raises(ToolchainError, match="no nvcc"):
        bare_builder(bare)
    monkeypatch.delenv("TILEFORGE_NVCC")
    monkeypatch.setenv("TILEFORGE_CUTLASS", "/nowhere")
    with pytest.raises(ToolchainError, match="no CUTLASS"):
        bare_builder(bare)
    # The headers were named and are there; that no compiler is, is no mistake: kernels can still be looked up.
    assert Builder(bare.cutlass, cache_dir=bare.root / "cache", kernels_dir=bare.kernels).missing is not None


@pytest.mark.compile
@pytest.mark.parametrize("text", ["sm120_nvfp4_bf16_128x128x128_c1x1_coop", "sm90_bf16_bf16_64x16x64_c1x1_pp_swap"])
def test_one_real_kernel(text: str) -> None:
    """A kernel of this repository, compiled in full by whatever toolchain is here; kept for the next run.

    What it says of itself must be what the shared-memory arithmetic says without a compiler.
    """
    cache = Path(os.environ.get("TILEFORGE_TEST_CACHE") or ROOT / ".cache" / "tests")
    wanted = KernelSpec.parse(text)
    builder = Builder(cache_dir=cache / "kernels")
    (outcome,) = builder.build([wanted])
    assert outcome.kernel is not None and builder.cutlass is not None, outcome.message
    info = outcome.kernel.info
    assert info == Library(outcome.kernel.path).query()
    assert json.loads((outcome.kernel.path.parent / "meta.json").read_text())["info"] == info
    major, minor, patch = builder.cutlass.version_info
    assert info["cutlass_version"] == major * 100 + minor * 10 + patch
    arch = get_arch(wanted.arch)
    verdict = legality.check(wanted.tactic, arch=arch, format=wanted.format, cutlass=builder.cutlass.version)
    assert verdict and info["smem_bytes"] <= arch.smem_per_block
    said = smem.breakdown(wanted.tactic, arch=arch, format=wanted.format, cutlass=builder.cutlass.version)
    assert (said.stages, said.total) == (info["stages"], info["smem_bytes"])
