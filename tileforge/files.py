"""Files that are never half-written, and a lock that a killed process cannot leave behind."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from tileforge.errors import DatabaseError

LOCK_NAME = ".lock"
_TEMPORARY = ".tmp"

#: Seconds to wait for another writer. A save takes milliseconds; who holds the lock longer than this hangs.
LOCK_PATIENCE_S = 60.0


@contextlib.contextmanager
def lock(directory: Path, patience_s: float = LOCK_PATIENCE_S) -> Iterator[None]:
    """Excludes other writers, threads or processes, while the block runs.

    flock belongs to the open file, so the kernel lets go of it when its holder dies, however it dies. The lock file
    itself stays: removing it would let two holders lock two files of the same name. Raises DatabaseError when it is
    still held after ``patience_s``; OSError when the directory cannot be written.
    """
    handle = os.open(directory / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
    try:
        end = time.monotonic() + patience_s
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > end:
                    raise DatabaseError(
                        f"{directory / LOCK_NAME} has been held for {patience_s:g} s by another process: end it"
                    ) from None
                time.sleep(0.005)
        yield
    finally:
        os.close(handle)


def write_atomic(path: Path, text: str) -> None:
    """Puts ``text`` at ``path`` whole or not at all: temporary file beside it, fsync, rename, fsync of the folder."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}{_TEMPORARY}")
    try:
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        with os.fdopen(handle, "wb") as file:
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    folder = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def sweep(directory: Path) -> None:
    """Removes what killed writers left in ``directory``. Call it with the lock held: then nobody is writing."""
    for leftover in directory.glob(f".*{_TEMPORARY}"):
        with contextlib.suppress(OSError):
            leftover.unlink()
