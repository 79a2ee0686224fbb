"""Finding CUTLASS, telling versions apart, and fetching headers out of a wheel."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from fake_toolchain import headers

from tileforge.errors import ToolchainError
from tileforge.toolchain import cutlass, fetch
from tileforge.toolchain.cutlass import find_all_cutlass, find_cutlass, headers_cache, tree_digest


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache of its own, and nothing that is installed here."""
    monkeypatch.setenv("TILEFORGE_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("TILEFORGE_CUTLASS", raising=False)
    real = importlib.util.find_spec
    site = str(tmp_path / "site")

    def find_spec(name: str, package: str | None = None) -> object:
        found = real(name, package)
        here = found and any(str(place).startswith(site) for place in found.submodule_search_locations or ())
        return found if here or name not in ("flashinfer", "cutlass_library") else None

    monkeypatch.setattr(importlib.util, "find_spec", find_spec)


def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, below: str, version: str) -> Path:
    """A package with headers inside, which must not be imported to find them."""
    package = tmp_path / "site" / module
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise SystemExit('imported')\n")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    return headers(package / below, version, module)


@pytest.mark.parametrize("below", ["", "include"])
def test_named_include_directory_or_its_parent(tmp_path: Path, below: str) -> None:
    include = headers(tmp_path / "x" / below, "4.6.1")
    found = find_cutlass(tmp_path / "x")
    assert (found.include, found.version, found.origin) == (include, "4.6.1", "named")
    assert len(found.digest) == 12


def test_named_directory_that_is_not_cutlass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ToolchainError, match="is not a directory") as error:
        find_cutlass(tmp_path / "nowhere")
    assert "\n" not in str(error.value)
    monkeypatch.setenv("TILEFORGE_CUTLASS", str(tmp_path))
    for find in (find_cutlass, find_all_cutlass):
        with pytest.raises(ToolchainError, match=r"is not CUTLASS: there is no cutlass/version\.h"):
            find()


def test_nothing_found_says_how_to_get_it() -> None:
    with pytest.raises(ToolchainError, match="tileforge toolchain fetch-headers"):
        find_cutlass()
    assert find_all_cutlass() == []


def test_newest_wins_and_nothing_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = install(tmp_path, monkeypatch, "cutlass_library", "source/include", "4.2.0")
    assert find_cutlass().include == old
    new = install(tmp_path, monkeypatch, "flashinfer", "data/cutlass/include", "4.10.0")
    assert find_cutlass().include == new and find_cutlass().origin.startswith("flashinfer-python")
    assert [found.version for found in find_all_cutlass()] == ["4.10.0", "4.2.0"]
    monkeypatch.setenv("TILEFORGE_CUTLASS", str(old))
    assert find_cutlass().version == "4.2.0"  # what is named is used, newer or not
    assert [found.origin for found in find_all_cutlass()][0] == "named"
    assert "flashinfer" not in sys.modules and "cutlass_library" not in sys.modules


def test_digest_is_of_content_not_of_place_or_time(tmp_path: Path) -> None:
    one = headers(tmp_path / "one")
    two = Path(shutil.copytree(one, tmp_path / "two"))
    os.utime(two / "cute" / "tensor.hpp", (1, 1))
    (two / "README").write_text("beside the headers: not a part of them")
    assert tree_digest(one) == tree_digest(two)
    (two / "cute" / "tensor.hpp").rename(two / "cute" / "other.hpp")
    assert tree_digest(one) != tree_digest(two)


def test_digest_follows_a_changed_header(tmp_path: Path) -> None:
    include = headers(tmp_path / "one")
    before = tree_digest(include)
    (include / "cute" / "tensor.hpp").write_text("// patched\n")
    assert tree_digest(include) != before


def test_digest_is_computed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    include = headers(tmp_path / "one")
    first = tree_digest(include)
    monkeypatch.setattr(Path, "read_bytes", lambda self: pytest.fail(f"{self} was read again"))
    assert tree_digest(include) == first


def test_digest_needs_no_writable_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    include = headers(tmp_path / "one")
    first = tree_digest(include)
    (tmp_path / "file").touch()
    monkeypatch.setenv("TILEFORGE_CACHE", str(tmp_path / "file" / "cache"))
    assert tree_digest(include) == first


def wheel(tmp_path: Path, extra: dict[str, str] | None = None, version: str = "4.5.0", name: str = "9.9.9") -> Path:
    include = headers(tmp_path / f"tree-{version}-{len(extra or {})}", version)
    path = tmp_path / f"flashinfer_python-{name}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for file in sorted(include.rglob("*")):
            if file.is_file():
                archive.write(file, f"flashinfer/data/cutlass/include/{file.relative_to(include)}")
        archive.writestr("flashinfer/__init__.py", "raise SystemExit")
        for member, content in (extra or {}).items():
            archive.writestr(member, content)
    return path


def leftovers() -> list[str]:
    return sorted(path.name for path in headers_cache().iterdir() if path.name != "digests")


def test_fetch_from_a_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = fetch.fetch_headers(wheel=wheel(tmp_path))
    assert found.version == "4.5.0" and found.include.parent.name == f"4.5.0-{found.digest}"
    assert find_cutlass() == found
    assert leftovers() == [f"4.5.0-{found.digest}"]
    assert not list(found.include.rglob("__init__.py"))
    origin = json.loads((found.include.parent / "origin.json").read_text())
    assert origin["distribution"] == "flashinfer-python 9.9.9" and origin["digest"] == found.digest
    assert len(origin["wheel_sha256"]) == 64 and origin["pinned"] is False
    # There already: neither pip nor the wheel is asked.
    monkeypatch.setattr(subprocess, "run", lambda *a, **k: pytest.fail("pip was called"))
    assert fetch.fetch_headers("9.9.9") == found
    assert fetch.fetch_headers(wheel=wheel(tmp_path, {"flashinfer/x": ""})) == found


def test_fetched_headers_that_were_damaged_are_replaced(tmp_path: Path) -> None:
    source = wheel(tmp_path)
    found = fetch.fetch_headers(wheel=source)
    (found.include / "cute" / "tensor.hpp").write_text("")
    with pytest.raises(ToolchainError):
        find_cutlass()  # not what its name says: not used
    assert fetch.fetched("9.9.9") is None
    assert fetch.fetch_headers(wheel=source) == found == find_cutlass()
    assert leftovers() == [f"4.5.0-{found.digest}"]


def test_wheel_with_another_hash_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(fetch.WHEEL_SHA256, "9.9.9", "0" * 64)
    with pytest.raises(ToolchainError, match="has SHA-256 .* the one known is 0000000000000000"):
        fetch.fetch_headers(wheel=wheel(tmp_path))
    assert leftovers() == []


@pytest.mark.parametrize(
    ("extra", "message"),
    [({"flashinfer/data/cutlass/include/../../../../evil.h": "x"}, "unsafe path")],
)
def test_wheel_with_a_path_that_leaves_it(tmp_path: Path, extra: dict[str, str], message: str) -> None:
    with pytest.raises(ToolchainError, match=message):
        fetch.fetch_headers(wheel=wheel(tmp_path, extra))
    assert leftovers() == [] and not list(tmp_path.rglob("evil.h"))


def test_files_that_are_no_wheel(tmp_path: Path) -> None:
    (tmp_path / "flashinfer_python-1-py3-none-any.whl").write_text("not a zip")
    with zipfile.ZipFile(tmp_path / "flashinfer_python-2-py3-none-any.whl", "w") as archive:
        archive.writestr("flashinfer/__init__.py", "")
    for name, message in (
        ("nothing.whl", "is not a wheel of flashinfer-python"),
        ("flashinfer_python-3-py3-none-any.whl", "is not a wheel of flashinfer-python"),
        ("flashinfer_python-1-py3-none-any.whl", "is not a zip file"),
        ("flashinfer_python-2-py3-none-any.whl", "holds no CUTLASS headers"),
    ):
        with pytest.raises(ToolchainError, match=message):
            fetch.fetch_headers(wheel=tmp_path / name)
    assert leftovers() == []


def test_interrupted_fetch_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(path: Path) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr(fetch, "tree_digest", interrupted)
    with pytest.raises(KeyboardInterrupt):
        fetch.fetch_headers(wheel=wheel(tmp_path))
    assert leftovers() == []


def test_download_is_pips(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = wheel(tmp_path)

    def pip(command: list[str], **options: object) -> subprocess.CompletedProcess[str]:
        assert command[1:4] == ["-m", "pip", "download"] and "--no-deps" in command
        assert command[-1] == "flashinfer-python==9.9.9"
        shutil.copy(source, command[command.index("--dest") + 1])
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(subprocess, "run", pip)
    assert fetch.fetch_headers("9.9.9").version == "4.5.0"


@pytest.mark.parametrize(
    ("said", "reason"),
    [("WARNING: Retrying\nERROR: No matching distribution found\n", "No matching"), ("No module named pip\n", "pip")],
)
def test_failed_download_is_one_line(monkeypatch: pytest.MonkeyPatch, said: str, reason: str) -> None:
    monkeypatch.setattr(subprocess, "run", lambda c, **k: subprocess.CompletedProcess(c, 1, "", said))
    with pytest.raises(ToolchainError, match=reason) as error:
        fetch.fetch_headers()
    assert "--wheel FILE" in str(error.value) and "\n" not in str(error.value)
    assert leftovers() == []


def test_unwritable_cache_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("TILEFORGE_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(ToolchainError, match="set TILEFORGE_CACHE"):
        fetch.fetch_headers(wheel=wheel(tmp_path))


def test_the_pinned_wheel_is_the_default() -> None:
    assert fetch.DEFAULT_VERSION in fetch.WHEEL_SHA256
    assert cutlass.FETCH_COMMAND.startswith("tileforge toolchain ")
