"""The store: a directory of YAML files, one per key, that several processes may write at once.

``<database>/<gpu sku>/<format>_<out>_n<N>_k<K>_g<G>.yaml``. Files are read when they are asked for. ``put`` changes
what this object sees; ``save`` merges that, under a lock, into what the files say by then. A file that cannot be
read is refused alone, with line and reason, and is never written over.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from tileforge.db import schema
from tileforge.db.key import Key
from tileforge.db.merge import merge
from tileforge.db.quarantine import FILE as QUARANTINE
from tileforge.db.record import Record
from tileforge.db.schema import Content
from tileforge.db.yaml_io import Refused, read_text
from tileforge.errors import DatabaseError, InputError
from tileforge.files import lock, sweep, write_atomic

if TYPE_CHECKING:
    from tileforge.db.lookup import Pick, Table
    from tileforge.problem import GroupedGemm


@dataclass(frozen=True)
class Refusal:
    """A file that was not taken. ``str`` gives ``path:line: reason``."""

    path: Path
    line: int
    reason: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.reason}" if self.line else f"{self.path}: {self.reason}"


class TuningDB:
    """A tuning database at ``path``; the directory need not exist until something is saved.

    Safe to share between threads. Reading never raises for what a file says (see :meth:`refused`); a ``path`` that
    is not a directory raises DatabaseError. With ``read_only`` put and save raise DatabaseError.
    """

    def __init__(self, path: str | os.PathLike[str], read_only: bool = False) -> None:
        self.path = Path(path)
        self.read_only = read_only
        self._mutex = threading.RLock()
        self._contents: dict[Key, Content] = {}
        self._refused: dict[Path, Refusal] = {}
        self._pending: dict[Key, list[tuple[Record, bool]]] = {}
        if self.path.exists() and not self.path.is_dir():
            raise DatabaseError(f"{self.path} is not a directory: name the folder that holds the GPUs' folders")

    def __repr__(self) -> str:
        return f"TuningDB({str(self.path)!r}{', read_only=True' if self.read_only else ''})"

    # Reading.
    def keys(self, gpu: str | None = None) -> list[Key]:
        """Keys that have a file or unsaved records, sorted by path; of one GPU's SKU or of all."""
        found = {}
        with self._mutex:
            for folder in [gpu] if gpu is not None else self.gpus():
                for file in self._files(folder):
                    try:
                        key = Key.from_path(folder, file)
                    except InputError as error:
                        self._refuse(self.path / folder / file, 0, str(error))
                        continue
                    found[key.path] = key
            found |= {key.path: key for key in self._pending if gpu in (None, key.gpu)}
        return [found[path] for path in sorted(found)]

    def gpus(self) -> list[str]:
        """SKUs that have a folder, sorted."""
        if not self.path.is_dir():
            return []
        try:
            return sorted(item.name for item in self.path.iterdir() if item.is_dir() and not item.name.startswith("."))
        except OSError as error:
            raise DatabaseError(f"cannot list {self.path}: {error.strerror}") from None

    def _files(self, gpu: str) -> list[str]:
        folder = self.path / gpu
        if not folder.is_dir():
            return []
        try:
            names = sorted(name for name in os.listdir(folder) if not name.startswith("."))
        except OSError as error:
            self._refuse(folder, 0, f"cannot be listed: {error.strerror}")
            return []
        return [name for name in names if name.endswith((".yaml", ".yml")) and name != QUARANTINE]

    def get(self, key: Key) -> tuple[Record, ...]:
        """The records of one key by M bucket, then routing; empty when there is no file or it was refused."""
        with self._mutex:
            content = self._content(key)
            return tuple(content.records[slot] for slot in sorted(content.records))

    def records(self, gpu: str | None = None) -> Iterator[Record]:
        """Every record of every file that can be read, by path and M bucket."""
        for key in self.keys(gpu):
            yield from self.get(key)

    def refused(self) -> tuple[Refusal, ...]:
        """Files refused so far, by path (files are read when asked for; ``list(db.records())`` asks for all)."""
        with self._mutex:
            return tuple(self._refused[path] for path in sorted(self._refused))

    def refusal(self, key: Key) -> Refusal | None:
        """Why the file of ``key`` was refused, None when it was not."""
        self.get(key)
        return self._refused.get(self.path / key.path)

    def reload(self) -> None:
        """Forgets what was read, so that files are read again; unsaved records stay."""
        with self._mutex:
            self._contents.clear()
            self._refused.clear()

    def lookup(self, problem: GroupedGemm, gpu: str, environment: Mapping[str, str] | None = None) -> Pick:
        """What to run for ``problem`` on the GPU with SKU ``gpu``: see :mod:`tileforge.db.lookup`.

        ``environment`` holds what is known about here. This is the plain form: serving code uses
        :func:`tileforge.picking.pick`, which looks through several databases and keeps its tables.
        """
        from tileforge.db.lookup import MISS, with_command

        found = self.table(Key.of(problem, gpu), environment).find(problem)
        return with_command(found, problem, gpu) if found.outcome == MISS else found

    def table(self, key: Key, environment: Mapping[str, str] | None = None, layer: str = "") -> Table:
        """A look-up table of one key's records as they are now."""
        from tileforge.db.lookup import Table

        with self._mutex:
            return Table(key, self.get(key), self.path / key.path, self.refusal(key), environment, layer)

    def _content(self, key: Key) -> Content:
        """What this object sees of a key: the file's records with the unsaved ones merged in."""
        if key not in self._contents:
            content = self._read(key)
            for record, force in self._pending.get(key, ()):
                content = _joined(content, record, force)[0]
            self._contents[key] = content
        return self._contents[key]

    def _read(self, key: Key) -> Content:
        path = self.path / key.path
        self._refused.pop(path, None)
        try:
            return schema.read(read_text(path), key)
        except (FileNotFoundError, NotADirectoryError):
            return Content(key)
        except Refused as refused:
            self._refuse(path, refused.line, refused.reason)
            return Content(key)

    def _refuse(self, path: Path, line: int, reason: str) -> None:
        self._refused[path] = Refusal(path, line, reason)

    # Writing.
    def put(self, record: Record, force: bool = False) -> str:
        """Merges ``record`` into what this object sees, to be written by :meth:`save`.

        Returns what became of it: ``added``, ``replaced``, ``kept as evidence``, ``confirmed`` or ``dropped``
        (rules: :mod:`tileforge.db.merge`). ``force`` puts it in place whatever stands there. Raises DatabaseError
        when the database is read-only or the record's GPU contradicts the file's.
        """
        if self.read_only:
            raise DatabaseError(f"{self.path} is opened read-only: give another database to write to")
        with self._mutex:
            content, outcome = _joined(self._content(record.key), record, force)
            self._contents[record.key] = content
            self._pending.setdefault(record.key, []).append((record, force))
        return outcome

    def check(self, *keys: Key) -> None:
        """Raises the DatabaseError that :meth:`save` would raise for records of ``keys``, before any work is done.

        Makes the directory and its lock file, and reads the files.
        """
        with self._mutex, self._writing():
            for key in keys:
                self._contents.pop(key, None)
                self._content(key)
        broken = [str(refusal) for key in keys if (refusal := self._refused.get(self.path / key.path))]
        self._raise_refused(broken)

    def save(self) -> tuple[Path, ...]:
        """Merges what was put into the files, each whole or not at all; the files that changed.

        Nothing is written where nothing changed. Raises DatabaseError when the directory cannot be written, and,
        after all other files are saved, when a file could not be read; what was not saved stays pending.
        """
        with self._mutex:
            if not self._pending:
                return ()
            written, broken = [], []
            with self._writing():
                for key in sorted(self._pending, key=lambda key: key.path):
                    path = self.path / key.path
                    disk = self._read(key)
                    if refusal := self._refused.get(path):
                        broken.append(str(refusal))
                        continue
                    content = disk
                    for record, force in self._pending[key]:
                        content = _joined(content, record, force)[0]
                    if content != disk:
                        self._write(path, content)
                        written.append(path)
                    self._contents[key] = content
                    del self._pending[key]
            self._raise_refused(broken)
            return tuple(written)

    def _write(self, path: Path, content: Content) -> None:
        text = schema.write(content)
        try:
            again = schema.read(text, content.key)
        except Refused as refused:
            raise DatabaseError(
                f"a record for {path} would not read back (line {refused.line}: {refused.reason}): not written"
            ) from None
        if again != content:
            raise DatabaseError(f"a record for {path} would read back as something else: not written")
        path.parent.mkdir(parents=True, exist_ok=True)
        sweep(path.parent)
        write_atomic(path, text)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """Directory and lock for a save; what the system refuses becomes one DatabaseError."""
        if self.read_only:
            raise DatabaseError(f"{self.path} is opened read-only: give another database to write to")
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            with lock(self.path):
                yield
        except OSError as error:
            raise DatabaseError(
                f"cannot write the database {self.path}: {error.strerror or error}; name another with TILEFORGE_DB"
            ) from None

    def _raise_refused(self, broken: list[str]) -> None:
        if broken:
            more = f" (and {len(broken) - 1} more)" if len(broken) > 1 else ""
            raise DatabaseError(
                f"not written over a file that cannot be read: {broken[0]}{more}; mend it or move it away"
            )


def _joined(content: Content, record: Record, force: bool) -> tuple[Content, str]:
    """``content`` with ``record`` merged in, and what became of it."""
    differences = content.gpu.differences(record.gpu)
    if differences:
        raise DatabaseError(
            f"{record.key.path} is of a GPU with other facts than this record's ({'; '.join(differences)}): "
            "that is another SKU"
        )
    gpu = content.gpu.healed(record.gpu)
    merged, outcome = merge(content.records.get(record.slot), replace(record, gpu=gpu), force)
    records = {**content.records, record.slot: merged}
    if gpu != content.gpu:
        records = {slot: replace(item, gpu=gpu) for slot, item in records.items()}
    return Content(content.key, gpu, records), outcome
