"""Which nvcc is taken, and what is said when none can be."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_toolchain import nvcc_script

from tileforge.errors import ToolchainError
from tileforge.toolchain import compiler
from tileforge.toolchain.compiler import find_compiler


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No compiler but those that a test makes; PATH holds g++ and the shell's tools."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("g++", "cat", "sleep"):
        (tools / name).write_text("#!/bin/sh\n")
        (tools / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tools))
    monkeypatch.delenv("TILEFORGE_NVCC", raising=False)
    monkeypatch.setattr(compiler, "_SYSTEM", tmp_path / "cuda" / "bin" / "nvcc")
    (tmp_path / "site" / "nvidia").mkdir(parents=True)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    everywhere = compiler._wheels
    monkeypatch.setattr(compiler, "_wheels", lambda: [nvcc for nvcc in everywhere() if tmp_path in nvcc.parents])
    return tools


def wheels(tmp_path: Path, leave_out: str = "", release: str = "13.0") -> Path:
    root = tmp_path / "site" / "nvidia" / "cu13"
    for part in compiler._WHEEL_PARTS:
        if leave_out and part.startswith(leave_out):
            continue
        (root / part).parent.mkdir(parents=True, exist_ok=True)
        (root / part).touch()
    return nvcc_script(root / "bin" / "nvcc", release)


def test_named_compiler_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheels(tmp_path)
    monkeypatch.setenv("TILEFORGE_NVCC", str(nvcc_script(tmp_path / "mine", "12.8")))
    found = find_compiler()
    assert (found.nvcc, found.version, found.build, found.origin) == (
        tmp_path / "mine",
        "12.8",
        "12.8.88",
        "TILEFORGE_NVCC",
    )


def test_named_compiler_is_never_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheels(tmp_path)
    for name, message in (("nowhere", "does not run"), ("tools/cat", "is not nvcc")):
        monkeypatch.setenv("TILEFORGE_NVCC", str(tmp_path / name))
        with pytest.raises(ToolchainError, match=message):
            find_compiler()


def test_wheels_go_before_path_before_system(tmp_path: Path, _alone: Path) -> None:
    nvcc_script(tmp_path / "cuda" / "bin" / "nvcc")
    assert find_compiler().origin == "/usr/local/cuda"
    nvcc_script(_alone / "nvcc")
    assert find_compiler().origin == "PATH" and find_compiler().flags == ()
    nvcc = wheels(tmp_path)
    found = find_compiler()
    assert found.origin == "wheels"
    assert found.flags == (f"-L{nvcc.parent.parent / 'lib'}",)
    assert found.command(["x"]) == [str(nvcc), *found.flags, "x"]


def test_wheel_layout_is_known_wherever_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nvcc = wheels(tmp_path)
    monkeypatch.setenv("TILEFORGE_NVCC", str(nvcc))
    assert find_compiler().flags == (f"-L{nvcc.parent.parent / 'lib'}",)


def test_incomplete_wheels_and_old_compilers_are_passed_over(tmp_path: Path, _alone: Path) -> None:
    wheels(tmp_path, leave_out="nvvm")
    nvcc_script(_alone / "nvcc", "12.6")
    nvcc_script(tmp_path / "cuda" / "bin" / "nvcc", "13.1")
    assert find_compiler().origin == "/usr/local/cuda"
    (tmp_path / "cuda" / "bin" / "nvcc").unlink()
    with pytest.raises(ToolchainError) as error:
        find_compiler()
    line = str(error.value)
    assert "lacks nvidia-nvvm" in line and "CUDA 12.6, which does not know sm_120a" in line
    assert "pip install 'tileforge[toolchain]'" in line and "\n" not in line


def test_no_compiler_at_all(_alone: Path) -> None:
    with pytest.raises(ToolchainError, match=r"no usable nvcc found: pip install 'tileforge\[toolchain\]'"):
        find_compiler()


def test_no_host_compiler(tmp_path: Path, _alone: Path) -> None:
    wheels(tmp_path)
    (_alone / "g++").unlink()
    with pytest.raises(ToolchainError, match=r"no g\+\+ on PATH.*apt-get install g\+\+"):
        find_compiler()
