"""The wheel, as people get it: built by way of the sdist, installed into an empty environment, used from elsewhere."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
pytestmark = pytest.mark.wheel


def run(*command: str | Path, cwd: Path, codes: tuple[int, ...] = (0,)) -> str:
    """Output of a command that sees nothing of this checkout or of the environment's settings."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("TILEFORGE_", "PYTHON"))}
    environment["TILEFORGE_CACHE"] = str(cwd / "cache")
    answer = subprocess.run(
        [str(part) for part in command], cwd=cwd, env=environment, capture_output=True, text=True, timeout=600
    )
    assert answer.returncode in codes, f"{command}\n{answer.stdout}\n{answer.stderr}"
    return answer.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from the sdist, which `build` unpacks elsewhere: both must carry what they need."""
    out = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", out, ROOT, cwd=out)
    (built,) = out.glob("*.whl")
    assert list(out.glob("*.tar.gz"))
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bin directory of an environment that holds the wheel and what it asks for, and nothing else."""
    folder = tmp_path_factory.mktemp("wheel") / "venv"
    run(sys.executable, "-m", "venv", folder, cwd=folder.parent)
    run(folder / "bin" / "python", "-m", "pip", "install", "--quiet", wheel, cwd=folder.parent)
    return folder / "bin"


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    folder = tmp_path / "empty"
    folder.mkdir()
    return folder


def names_under(folder: str) -> set[str]:
    return {
        str(path.relative_to(ROOT / folder))
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.name != ".lock"  # gitignored: a save leaves it
    }


@pytest.mark.parametrize(
    ("folder", "inside"),
    [("kernels", "_kernels"), ("tuning_db", "_tuning_db"), ("examples/models", "_models")],
    ids=["kernels", "tuning_db", "models"],
)
def test_what_lies_beside_the_package_travels_inside(wheel: Path, folder: str, inside: str) -> None:
    prefix = f"tileforge/{inside}/"
    packed = {name.removeprefix(prefix) for name in zipfile.ZipFile(wheel).namelist() if name.startswith(prefix)}
    assert packed == names_under(folder) != set()


def test_nothing_else_travels(wheel: Path) -> None:
    tops = {name.split("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert tops == {"tileforge", wheel.name.removesuffix("-py3-none-any.whl") + ".dist-info"}
    assert "tileforge/py.typed" in zipfile.ZipFile(wheel).namelist()


def test_only_the_base_dependencies_are_needed(installed: Path, empty: Path) -> None:
    packages = json.loads(run(installed / "python", "-m", "pip", "list", "--format=json", cwd=empty))
    names = {package["name"].lower() for package in packages}
    assert {"tileforge", "numpy", "optuna", "nvidia-cutlass"} <= names
    assert not names & {"torch", "flashinfer-python", "nvidia-cuda-nvcc", "pytest"}


def test_l2_explain_from_the_wheel(installed: Path, empty: Path) -> None:
    command = (
        installed / "tileforge",
        "explain",
        "128x128x256",
        "--gpu",
        "rtx_pro_6000",
        "--cutlass",
        "4.5.0",
        "--json",
    )
    answer = json.loads(run(*command, cwd=empty))
    assert answer["verdict"] == "fits"
    assert answer["stages"] == 2
    assert answer["smem_bytes"] <= answer["limit_bytes"] == 101_376


def test_pick_from_the_wheel_answers_with_a_tactic_or_the_command_to_get_one(installed: Path, empty: Path) -> None:
    command = (installed / "tileforge", "pick", "--model", "glm-5", "--ep", "8", "--format", "bf16", "--gpu", "h200")
    answers = json.loads(run(*command, "--rows", "16", "--json", cwd=empty, codes=(0, 1)))
    assert [answer["problem"]["n"] for answer in answers] == [4096, 6144]
    assert all(answer.get("tactic") or answer.get("command") for answer in answers)


def test_pick_in_serving_code_from_the_wheel(installed: Path, empty: Path) -> None:
    code = (
        "import tileforge\n"
        "found = tileforge.pick(tileforge.GroupedGemm(m=0, n=4096, k=6144, groups=32, format='bf16'), gpu='h200')\n"
        "print(found.reason)\n"
        "print(tileforge.__file__)\n"
    )
    reason, file = run(installed / "python", "-c", code, cwd=empty).splitlines()
    assert "nothing to launch" in reason
    assert Path(file).is_relative_to(installed.parent)


def test_python_m_and_version(installed: Path, empty: Path) -> None:
    version = run(installed / "tileforge", "--version", cwd=empty)
    assert version == run(installed / "python", "-m", "tileforge", "--version", cwd=empty)
    assert version.split()[-1] in run(installed / "python", "-m", "pip", "show", "tileforge", cwd=empty)
    assert list(empty.iterdir()) == [], "a look at the version wrote something"
