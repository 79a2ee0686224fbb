"""A compiler's pages cut to one line; how many compiles fit on a machine; what doctor says."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_toolchain import Fake, fake, headers, nvcc_script, spec

from tileforge.toolchain import describe, machine
from tileforge.toolchain.cache import KernelCache
from tileforge.toolchain.compiler import INSTALL_COMMAND
from tileforge.toolchain.cutlass import FETCH_COMMAND
from tileforge.toolchain.diagnose import first_error, is_machine_failure

LOGS = {
    "a static assertion goes before an earlier error": (
        '/a/b/entry.cu(10): error: identifier "x" is undefined\n'
        '/usr/include/cute/atom.hpp(190): error: static assertion failed with "TiledMMA: bad tile"\n',
        "TiledMMA: bad tile (atom.hpp:190)",
    ),
    "a static assertion without a text shows its condition": (
        "/x/sm120.hpp(12): error: static assertion failed\n"
        "      static_assert(size<1>(TileShape{}) % 8 == 0);\n      ^\n",
        "static_assert(size<1>(TileShape{}) % 8 == 0); (sm120.hpp:12)",
    ),
    "g++ says it otherwise": (
        "In file included from a.h:1:\n/q/w.h:12:3: error: static assertion failed: two at least\n",
        "two at least (w.h:12)",
    ),
    "the first of two errors, warnings passed over": (
        '/k/e.cu(3): warning #177-D: variable "error" was declared\n'
        "/k/e.cu(9): error: first\n/k/e.cu(11): error: second\n",
        "first (e.cu:9)",
    ),
    "template arguments and paths go": (
        '/k/entry.cu(100): error: class "Mma<A, B>::Arguments [with Stages=12, Long=tuple<_1>]" has no member "p"\n',
        'class "Mma<A, B>::Arguments (entry.cu:100)',
    ),
    "ptxas": (
        "ptxas error   : Entry function 'k' uses too much shared data (0x19000 bytes, 0x18c00 max)\n"
        "ptxas fatal   : Ptx assembly aborted due to errors\n",
        "Entry function 'k' uses too much shared data (0x19000 bytes, 0x18c00 max)",
    ),
    "a missing header": (
        "/k/entry.cu:2:10: fatal error: cute/tensor.hpp: No such file or directory\n",
        "cute/tensor.hpp: No such file or directory (entry.cu:2)",
    ),
    "nothing that is called an error": ("Segmentation fault (core dumped) in /usr/bin/cicc\n", "(core dumped) in cicc"),
    "nothing at all": ("\n", "the compiler failed and said nothing"),
}


@pytest.mark.parametrize("name", LOGS)
def test_first_error(name: str) -> None:
    log, expected = LOGS[name]
    line = first_error(log)
    assert line == expected or (name.startswith("nothing that") and line.endswith(expected))


def test_first_error_is_short() -> None:
    line = first_error(f"/k/entry.cu(7): error: {'very ' * 400}long\n")
    assert len(line) <= 240 and line.endswith("... (entry.cu:7)")


def test_failures_of_the_machine() -> None:
    assert is_machine_failure("nvcc error   : 'cicc' died due to signal 9 (Kill signal)")
    assert is_machine_failure("/tmp/x.ii: No space left on device")
    assert not any(is_machine_failure(log) for name, (log, _) in LOGS.items())


def test_jobs_by_cores_and_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "usable_cores", lambda: 16)
    for memory, archs, expected in (
        (128 * 2**30, ["sm120"], 16),
        (22 * 2**30, ["sm120"], 3),
        (22 * 2**30, ["sm90"], 6),
        (22 * 2**30, ["sm90", "sm120"], 3),
        (22 * 2**30, [], 3),
        (2**30, ["sm120"], 1),
        (None, ["sm120"], 16),
    ):
        monkeypatch.setattr(machine, "available_bytes", lambda memory=memory: memory)
        assert machine.default_jobs(archs) == expected


def test_limits_of_a_container(tmp_path: Path) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal: 9000000 kB\nMemAvailable:    8000000 kB\n")
    nothing = tmp_path / "nothing"
    assert machine.available_bytes(nothing, meminfo) == 8_192_000_000
    assert machine.available_bytes(nothing, nothing) is None
    assert machine.usable_cores(nothing) >= 1
    (tmp_path / "memory.max").write_text("4000000000\n")
    (tmp_path / "memory.current").write_text("3000000000\n")
    (tmp_path / "memory.stat").write_text("anon 1\ninactive_file 2000000000\n")
    assert machine.available_bytes(tmp_path, meminfo) == 3_000_000_000
    (tmp_path / "cpu.max").write_text("100000 100000\n")
    assert machine.usable_cores(tmp_path) == 1
    for name in ("memory.max", "cpu.max"):
        (tmp_path / name).write_text("max 100000\n" if name == "cpu.max" else "max\n")
    assert machine.available_bytes(tmp_path, meminfo) == 8_192_000_000


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fake:
    made = fake(tmp_path)
    monkeypatch.setenv("TILEFORGE_CACHE", str(tmp_path / "home"))
    monkeypatch.setenv("TILEFORGE_CUTLASS", str(made.cutlass.include))
    monkeypatch.setenv("TILEFORGE_NVCC", str(made.compiler.nvcc))
    return made


def test_describe_a_whole_toolchain(tools: Fake) -> None:
    cache = KernelCache(tools.root / "cache")
    tools.builder().build([spec(), spec(stages=61)])
    said = describe(cache)
    assert said["missing"] == []
    assert said["cutlass"]["version"] == "4.5.0" and said["cutlass"]["digest"] == tools.cutlass.digest
    assert said["compiler"]["version"] == "13.0" and said["compiler"]["nvcc"] == str(tools.compiler.nvcc)
    assert (said["cache"]["kernels"], said["cache"]["failures"]) == (1, 1) and said["cache"]["bytes"] > 1000
    assert said["machine"]["jobs"] >= 1


def test_describe_says_what_mends_each(tools: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEFORGE_CUTLASS", str(headers(tools.root / "old", "4.2.0")))
    monkeypatch.setenv("TILEFORGE_NVCC", str(nvcc_script(tools.root / "nvcc11", "11.8")))
    (tools.root / "file").touch()
    said = describe(KernelCache(tools.root / "file" / "kernels"))
    commands = [entry["command"] for entry in said["missing"]]
    assert commands[:2] == [FETCH_COMMAND, "unset TILEFORGE_NVCC"] and "TILEFORGE_CACHE" in commands[2]
    assert said["compiler"] is None and said["cutlass"]["version"] == "4.2.0"
    assert said["cache"] == {
        "path": str(tools.root / "file" / "kernels"),
        "writable": False,
        "kernels": 0,
        "failures": 0,
        "bytes": 0,
    }


def test_describe_with_nothing(tools: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEFORGE_CUTLASS", str(tools.root / "nowhere"))
    monkeypatch.delenv("TILEFORGE_NVCC")
    monkeypatch.setattr("tileforge.toolchain.compiler._candidates", lambda: iter(()))
    said = describe(KernelCache(tools.root / "none"))
    assert said["cutlass"] is None and said["cutlass_found"] == [] and said["cache"]["writable"]
    assert [entry["command"] for entry in said["missing"]] == ["unset TILEFORGE_CUTLASS", INSTALL_COMMAND]
    monkeypatch.setenv("PATH", str(tools.root))
    assert [entry["command"] for entry in describe()["missing"]][1] == "apt-get install g++"
