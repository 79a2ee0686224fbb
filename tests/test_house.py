"""The house stays the one that docs/architecture.md draws: small files, imports in one direction, no private paths."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "tileforge"
MOST_LINES = 400

#: Rooms in the order in which data flows; a module imports from rooms above its own and from its own.
#: Rooms in one line are side by side and may not import each other.
LAYERS: list[tuple[str, ...]] = [
    ("_version", "errors"),
    ("formats", "routing", "paths", "verdict", "files"),
    ("problem", "tactic"),
    ("workload", "arch"),
    ("smem",),
    ("legality",),
    ("space",),
    ("toolchain", "predict"),
    ("measure",),
    ("search", "verify"),
    ("db",),
    ("pick", "picking"),
    ("interop", "jobs", "report"),
    ("tuning",),
    ("tune",),
    ("__init__",),
    ("cli",),
    ("__main__",),
]
RANK = {room: rank for rank, rooms in enumerate(LAYERS) for room in rooms}


def sources() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def room_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE).parts
    return parts[0] if len(parts) > 1 else path.stem


def imported_rooms(tree: ast.AST, here: Path) -> Iterator[tuple[int, str]]:
    """(line, room) of every import from tileforge, also those inside functions and for type checkers."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{here}:{node.lineno}: write imports in full, from tileforge"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            package, _, rest = name.partition(".")
            if package == "tileforge":
                room = rest.split(".")[0]
                is_room = (PACKAGE / room).is_dir() or (PACKAGE / f"{room}.py").is_file()
                yield node.lineno, room if room and is_room else "__init__"


def test_imports_run_in_one_direction() -> None:
    wrong = []
    for path in sources():
        room = room_of(path)
        for line, other in imported_rooms(ast.parse(path.read_text(encoding="utf-8")), path):
            assert other in RANK, f"{other} is new: give it a place in LAYERS and in docs/architecture.md"
            if other != room and RANK[other] >= RANK[room]:
                wrong.append(f"{path.relative_to(ROOT)}:{line}: {room} imports {other}, which stands after it")
    assert not wrong, "\n".join(wrong)


def test_every_room_has_a_place() -> None:
    assert {room_of(path) for path in sources()} <= set(RANK)


@pytest.mark.parametrize(
    ("text", "rooms"),
    [
        ("import tileforge", ["__init__"]),
        ("import tileforge.space.rules", ["space"]),
        ("from tileforge import legality, Tactic", ["legality", "__init__"]),
        ("def f():\n    from tileforge.arch.gpus import Gpu", ["arch"]),
        ("import torch", []),
    ],
)
def test_the_reader_of_imports_sees_what_it_should(text: str, rooms: list[str]) -> None:
    assert [room for _, room in imported_rooms(ast.parse(text), Path("x.py"))] == rooms


def test_no_file_holds_two_concepts() -> None:
    files = [*sources(), *(ROOT / "tests").rglob("*.py"), *(ROOT / "benchmarks").rglob("*.py")]
    long = {str(path.relative_to(ROOT)): lines for path in files if (lines := _lines(path)) > MOST_LINES}
    assert not long, f"over {MOST_LINES} lines: {long}"


def _lines(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def tracked_text() -> Iterator[tuple[Path, str]]:
    """Every text file that is in the repository or about to be."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    listing = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        capture_output=True,
        text=True,
        check=True,
    )
    for name in filter(None, listing.stdout.split("\0")):
        path = ROOT / name
        if path.is_file():
            try:
                yield path, path.read_text(encoding="utf-8")
            except UnicodeDecodeError:
                continue


def test_no_paths_of_one_machine_in_the_repository() -> None:
    # Joined here, so that this file does not hold them. Samples of compiler output in tests may name a temporary file.
    everywhere = ["/work" + "/", "/root" + "/", "../" + "shared"]
    outside_tests = [*everywhere, "/tmp" + "/"]
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()[:80]}"
        for path, text in tracked_text()
        for number, line in enumerate(text.splitlines(), start=1)
        if any(part in line for part in (everywhere if path.is_relative_to(ROOT / "tests") else outside_tests))
    ]
    assert not found, "\n".join(found)
