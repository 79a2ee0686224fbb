"""Packing kernels and carrying them to a machine without a compiler."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from pathlib import Path

import pytest
from fake_toolchain import STATIC_ASSERT, Fake, fake, spec

from tileforge.errors import BuildError
from tileforge.toolchain import Kernel, Library, pack, unpack
from tileforge.toolchain.cache import KernelCache


@pytest.fixture
def tools(tmp_path: Path) -> Fake:
    return fake(tmp_path)


@pytest.fixture
def kernels(tools: Fake) -> list[Kernel]:
    outcomes = tools.builder().build([spec(), spec(tile=(128, 32, 128)), spec(stages=STATIC_ASSERT)])
    return [outcome.kernel for outcome in outcomes if outcome.kernel]


def rewrite(source: Path, target: Path, change: dict[str, bytes | None], kind: bytes = tarfile.REGTYPE) -> Path:
    """``source`` with members replaced, added or (None) left out, and its list unchanged unless it is replaced."""
    with tarfile.open(source) as archive:
        members = {m.name: archive.extractfile(m).read() for m in archive}  # type: ignore[union-attr]
    with tarfile.open(target, "w:gz") as archive:
        for name, content in {**members, **change}.items():
            if content is None:
                continue
            member = tarfile.TarInfo(name)
            member.size = len(content)
            if name in change and name not in members:
                member.type = kind
            archive.addfile(member, io.BytesIO(content))
    return target


def test_there_and_back(tools: Fake, kernels: list[Kernel], tmp_path: Path) -> None:
    file = tmp_path / "kernels.tar.gz"
    assert pack(kernels, file) == 2
    other = KernelCache(tmp_path / "other")
    back = unpack(file, other)
    assert {kernel.spec for kernel in back} == {kernel.spec for kernel in kernels}
    for kernel in back:
        assert kernel.path.is_relative_to(other.root) and Library(kernel.path).query() == kernel.info
    builder = tools.builder(cache_dir=other.root)
    assert all(outcome.cached for outcome in builder.build([spec(), spec(tile=(128, 32, 128))]))
    assert len(unpack(file, other)) == 2  # again: nothing changes
    assert sorted(path.name for path in other.root.iterdir()) == sorted(kernel.key for kernel in kernels)


def test_the_same_kernels_are_the_same_bytes(kernels: list[Kernel], tmp_path: Path) -> None:
    one, two = tmp_path / "one.tar.gz", tmp_path / "two.tgz"
    pack(kernels, one)
    pack([*reversed(kernels), kernels[0]], two)
    assert one.read_bytes() == two.read_bytes()
    assert oct(one.stat().st_mode & 0o777) == "0o644"


def test_damage_is_seen_and_nothing_is_stored(kernels: list[Kernel], tmp_path: Path) -> None:
    file, bad = tmp_path / "good.tar.gz", tmp_path / "bad.tar.gz"
    pack(kernels, file)
    key = kernels[0].key
    meta = json.loads((kernels[0].path.parent / "meta.json").read_text())
    other_key = {"sha256": {}, "schema": 1}
    for change, message in (
        ({f"{key}/kernel.so": b"\x7fELF another"}, "has another hash than its list says"),
        ({f"{key}/kernel.so": None}, "does not hold what its list names"),
        ({f"{'0' * 24}/kernel.so": b""}, "does not hold what its list names"),
        ({"tileforge-kernels.json": None}, "holds no list"),
        ({"tileforge-kernels.json": b"{}"}, "holds no list"),
        ({"tileforge-kernels.json": b"["}, "or is damaged"),
        ({"tileforge-kernels.json": json.dumps({**other_key, "schema": 99}).encode()}, "another version"),
        ({"../../evil": b"x"}, r"it holds '\.\./\.\./evil'"),
        ({"/etc/evil": b"x"}, "it holds '/etc/evil'"),
        ({f"{key}/log.txt": b"x"}, "it holds"),
    ):
        rewrite(file, bad, change)
        with pytest.raises(BuildError, match=message):
            unpack(bad, KernelCache(tmp_path / "other"))
    assert meta["inputs"]["spec"]["tactic"] == kernels[0].spec.tactic.kernel_id
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE])
def test_only_plain_files(kernels: list[Kernel], tmp_path: Path, kind: bytes) -> None:
    pack(kernels, tmp_path / "good")
    rewrite(tmp_path / "good", tmp_path / "bad", {f"{'0' * 24}/kernel.so": b""}, kind)
    with pytest.raises(BuildError, match="it holds"):
        unpack(tmp_path / "bad", KernelCache(tmp_path / "other"))


def test_a_key_must_be_the_hash_of_its_entry(kernels: list[Kernel], tmp_path: Path) -> None:
    """An entry that claims another key (say, that of a kernel somebody trusts) is refused, hashes right or not."""
    import hashlib

    claimed = "0" * 24
    source = kernels[0].path.parent
    members = {f"{claimed}/{name}": (source / name).read_bytes() for name in ("kernel.so", "meta.json")}
    listing = {"schema": 1, "sha256": {name: hashlib.sha256(data).hexdigest() for name, data in members.items()}}
    pack([], tmp_path / "empty")
    rewrite(tmp_path / "empty", tmp_path / "bad", {**members, "tileforge-kernels.json": json.dumps(listing).encode()})
    cache = KernelCache(tmp_path / "other")
    with pytest.raises(BuildError, match="is not what its key says"):
        unpack(tmp_path / "bad", cache)
    assert list(cache.root.iterdir()) == []


def test_files_that_are_no_pack(kernels: list[Kernel], tmp_path: Path) -> None:
    pack(kernels, tmp_path / "whole")
    whole = (tmp_path / "whole").read_bytes()
    (tmp_path / "cut").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "text").write_text("hello")
    (tmp_path / "zipped").write_bytes(gzip.compress(b"hello"))
    for name in ("cut", "text", "zipped"):
        with pytest.raises(BuildError, match="is not a pack of tileforge kernels, or is damaged"):
            unpack(tmp_path / name, KernelCache(tmp_path / "other"))
    with pytest.raises(BuildError, match="cannot read the pack"):
        unpack(tmp_path / "nowhere", KernelCache(tmp_path / "other"))


def test_unwritable_target_is_one_line_and_leaves_nothing(kernels: list[Kernel], tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="cannot write the pack"):
        pack(kernels, tmp_path / "nowhere" / "kernels.tar.gz")
    (tmp_path / "directory").mkdir()
    with pytest.raises(BuildError, match="cannot write the pack"):
        pack(kernels, tmp_path / "directory")
    assert not list(tmp_path.glob(".tmp-*"))
