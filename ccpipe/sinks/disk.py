"""Files and directories that survive a crash: a write is on disk completely, or not at all.

Until a directory is synced, a crash can remove a new name from it.
"""

import contextlib
import fcntl
import logging
import os
import threading
from collections.abc import Iterator
from pathlib import Path

from ccpipe.errors import CreateError, UnavailableError, create_reason

log = logging.getLogger(__name__)

TORN = b" torn\n"
"""Appended after a torn line, which it makes invalid.

A line end alone would not suffice: half of ``value=123 1740027951`` is a valid line with a wrong
value.
"""


def check_directory(directory: Path) -> None:
    """Raise CreateError if a directory cannot be written to, or created; change nothing."""
    existing = next(path for path in (directory, *directory.absolute().parents) if _exists(path))
    if not existing.is_dir():
        raise CreateError(f"{existing} is not a directory")
    if not os.access(existing, os.W_OK | os.X_OK, effective_ids=True):
        raise CreateError(f"{existing}: no write permission")


def _exists(path: Path) -> bool:
    return os.access(path, os.F_OK, effective_ids=True)


def make_directory(directory: Path) -> None:
    """Create a directory and its missing parents, durably; raises OSError."""
    if not directory.is_dir():
        make_directory(directory.parent)
        directory.mkdir(exist_ok=True)
        sync_directory(directory.parent)


def sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def disk_errors(path: Path, *, opening: bool = False) -> Iterator[None]:
    """Raise UnavailableError instead of OSError, or CreateError when `opening`."""
    try:
        yield
    except OSError as error:
        if opening:
            raise CreateError(f"{path}: {create_reason(error)}") from None
        raise UnavailableError(f"{path}: {error.strerror}") from None


class AppendFile:
    """Appends to the file at a path, and to a new one after a rotation; all methods block."""

    def __init__(self, path: Path, *, mode: int = 0o644) -> None:
        """Open nothing yet; a new file gets the permissions `mode`, less the umask."""
        self.path = path
        self.mode = mode
        self._file: int | None = None
        self._busy = threading.Lock()  # the thread of a cancelled write may still run

    def open(self) -> None:
        """Open the file and mark a line torn by a crash; raises OSError."""
        with self._busy:
            self._open()

    def close(self) -> None:
        with self._busy:
            self._close()

    def sync(self) -> None:
        with self._busy:
            if self._file is not None:
                os.fsync(self._file)

    def append(self, payload: bytes, *, sync: bool = True) -> None:
        """Append and sync to disk: everything, or nothing if OSError is raised."""
        with self._busy:
            file = self._current()
            with _locked(file):
                self.repair(file)
                size = os.fstat(file).st_size
                try:
                    rest = memoryview(payload)
                    while rest:
                        rest = rest[os.write(file, rest) :]
                    if sync:
                        os.fsync(file)
                except OSError:
                    # Remove the partial write, as the caller will retry it.
                    with contextlib.suppress(OSError):
                        os.ftruncate(file, size)
                    self._close()
                    raise

    def _current(self) -> int:
        """Return the file at our path, which a rotation may have replaced."""
        if self._file is not None:
            ours = os.fstat(self._file)
            with contextlib.suppress(FileNotFoundError):
                found = self.path.stat()
                if (found.st_dev, found.st_ino) == (ours.st_dev, ours.st_ino):
                    return self._file
        return self._open()

    def _open(self) -> int:
        self._close()
        make_directory(self.path.parent)
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        file = self._file = os.open(self.path, flags, self.mode)
        with _locked(file):
            self.repair(file)
        sync_directory(self.path.parent)
        return file

    def repair(self, file: int) -> None:
        """Mark a line torn by a crash; called with the file locked."""
        size = os.fstat(file).st_size
        if size and os.pread(file, 1, size - 1) != b"\n":
            log.warning("%s ended in the middle of a line, which is now marked as torn", self.path)
            os.write(file, TORN)

    def _close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


@contextlib.contextmanager
def _locked(file: int) -> Iterator[None]:
    """Block other processes that append to the same file, if the file system supports locks."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
    except OSError:
        yield
        return
    try:
        yield
    finally:
        with contextlib.suppress(OSError):  # closed after a failure, which also unlocks
            fcntl.flock(file, fcntl.LOCK_UN)
