"""A file that only grows: each append is on the disk whole, or not at all."""

import contextlib
import fcntl
import logging
import os
import threading
from collections.abc import Iterator
from pathlib import Path

from ccpipe.sinks.disk import make_folder, sync_folder

log = logging.getLogger(__name__)

TORN = b" torn\n"
"""Ends a line that a crash cut off, and makes it invalid.

A line end alone would not: half of ``value=123 1740027951`` is a valid line, but a wrong one.
"""


class AppendFile:
    """Appends to the file at a path, and to a new one after a rotation; all methods block."""

    def __init__(self, path: Path, *, mode: int = 0o644) -> None:
        """Open nothing yet; a new file gets the permissions `mode`, less the umask."""
        self.path = path
        self.mode = mode
        self._file: int | None = None
        self._busy = threading.Lock()  # the thread of a cancelled write may still run

    def open(self) -> None:
        """Open the file and mark a line that a crash tore; raises OSError."""
        with self._busy:
            self._open()

    def close(self) -> None:
        """Close the file; the next append opens it again."""
        with self._busy:
            self._close()

    def sync(self) -> None:
        """Sync what was appended to the disk; raises OSError."""
        with self._busy:
            if self._file is not None:
                os.fsync(self._file)

    def append(self, payload: bytes, *, sync: bool = True) -> None:
        """Append and sync to the disk: everything, or nothing where OSError is raised."""
        with self._busy:
            file = self._current()
            with _locked(file):
                self.mend(file)
                size = os.fstat(file).st_size
                try:
                    rest = memoryview(payload)
                    while rest:
                        rest = rest[os.write(file, rest) :]
                    if sync:
                        os.fsync(file)
                except OSError:
                    # Half of it must be removed, for it will be written again.
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
        make_folder(self.path.parent)
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        file = self._file = os.open(self.path, flags, self.mode)
        with _locked(file):
            self.mend(file)
        sync_folder(self.path.parent)
        return file

    def mend(self, file: int) -> None:
        """Mark a line that a crash cut off; called with the file locked."""
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
    """Keep other processes that append to the same file waiting; not all file systems can."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
    except OSError:
        yield
        return
    try:
        yield
    finally:
        with contextlib.suppress(OSError):  # it was closed after a failure, which unlocks too
            fcntl.flock(file, fcntl.LOCK_UN)
