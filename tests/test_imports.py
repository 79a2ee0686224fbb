"""What importing tileforge costs: serving code pays it in every process."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "tileforge"

#: Never loaded by looking a tactic up, explaining or pruning one.
HEAVY = {"torch", "optuna", "numpy", "scipy", "flashinfer", "cutlass_library", "cuda", "pynvml", "ray", "rich"}

#: What may not even name a heavy module at its top level.
LIGHT = [
    *(f"{name}.py" for name in ("__init__", "errors", "formats", "paths", "problem", "routing", "tactic", "verdict")),
    *("legality.py", "smem.py", "pick*.py", "arch/*.py", "space/*.py", "db/*.py", "workload/*.py", "interop/*.py"),
]


def light_files() -> list[Path]:
    return sorted({path for pattern in LIGHT for path in PACKAGE.glob(pattern)})


def top_level_imports(path: Path) -> Iterator[str]:
    """Modules that importing ``path`` imports: everything outside functions and ``if TYPE_CHECKING``."""
    pending: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            pending += node.orelse
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield node.module or ""
        pending += ast.iter_child_nodes(node)


def run(code: str) -> str:
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert answer.returncode == 0, answer.stderr
    return answer.stdout


def loaded(code: str) -> set[str]:
    """Heavy modules that are loaded after ``code``."""
    modules = run(f"import sys\n{code}\nimport json\nprint(json.dumps(sorted(sys.modules)))").splitlines()[-1]
    return {name for name in json.loads(modules) if name in HEAVY}


def test_import_takes_under_100_ms() -> None:
    # Time of this process, not of the wall: other tests, and the compilers that they start, share the cores.
    clock = "import time; start = time.process_time(); import tileforge; print(time.process_time() - start)"
    assert min(float(run(clock)) for _ in range(5)) < 0.100


@pytest.mark.parametrize(
    "code",
    [
        "import tileforge",
        "import tileforge.smem, tileforge.legality, tileforge.space, tileforge.db, tileforge.workload",
        "import tileforge\ntileforge.pick, tileforge.TuningDB, tileforge.Tactic, tileforge.GroupedGemm, tileforge.tune",
        "import tileforge as t\nassert t.pick(t.GroupedGemm(m=0, n=128, k=128, groups=1), gpu='h200').reason",
    ],
    ids=["tileforge", "rooms", "names", "pick"],
)
def test_nothing_heavy_is_loaded(code: str) -> None:
    assert loaded(code) == set()


@pytest.mark.parametrize("path", light_files(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_nothing_heavy_is_named_at_the_top_level(path: Path) -> None:
    assert {name.split(".")[0] for name in top_level_imports(path)} & HEAVY == set()


def test_the_light_list_matches_files() -> None:
    for pattern in LIGHT:
        assert list(PACKAGE.glob(pattern)), f"{pattern} names no file any more"


def test_the_reader_of_imports_sees_what_it_should(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text(
        "import torch.cuda\nfrom typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n    import optuna\nelse:\n    import ray\n"
        "try:\n    from numpy import array\nexcept ImportError:\n    pass\ndef lazy():\n    import scipy\n"
    )
    assert set(top_level_imports(path)) == {"torch.cuda", "typing", "ray", "numpy"}


def test_the_public_names_are_these_and_no_others() -> None:
    import tileforge

    assert set(tileforge.__all__) - {"__version__"} == {"tune", "pick", "GroupedGemm", "Tactic", "TuningDB"}
    assert all(getattr(tileforge, name) is not None for name in tileforge.__all__)
