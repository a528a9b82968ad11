"""HDF5 files, read by libhdf5 in a separate process.

``libhdf5`` trusts its input. Of some 10 000 real profile files with a few bytes changed, two made
version 2.0 abort with a corrupted heap; profile files belong to users, and are often merged by
another user. So a separate process (``hdf5_process``) reads the files, object by object on request:
if it crashes, the requested object is reported as damaged, and the next request restarts it.
"""

import atexit
import importlib.util
import itertools
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from os import PathLike
from typing import Any

import msgspec
import numpy as np

from ccpipe.errors import DataError, MissingExtra

Records = np.ndarray[tuple[int], np.dtype[np.void]]
"""Rows of named fields."""

Array = np.ndarray[Any, np.dtype[Any]]
"""Values of one field, or flags for them."""

Value = int | float | str

SIGNATURE = b"\x89HDF\r\n\x1a\n"
SUPERBLOCK = 96
"""Bytes; all that Slurm's plug-in writes until the step ends."""

MAX_CRASHES = 3
"""Crashes of libhdf5 with one file before it is given up."""

HEAD = 8
"""Bytes of the length before each message between the processes."""


class ProfileError(DataError):
    """A profile file, or an object in it, cannot be read; the rest may be intact."""

    def __init__(self, path: str | PathLike[str], reason: str, where: str = "") -> None:
        self.path = os.fspath(path)
        super().__init__(": ".join(part for part in (self.path, where, reason) if part))
        self.where = where
        self.reason = reason


class LiveProfileError(ProfileError):
    """The step still runs: Slurm's plug-in keeps everything in memory until it ends."""


class DamagedProfileError(ProfileError):
    """The file is inconsistent or truncated."""


class ForeignProfileError(ProfileError):
    """Not an HDF5 file, or not a profile."""


class ObjectRequest(msgspec.Struct, array_like=True):
    """A request to read an object, or to close a file."""

    file: int
    """Identifies the open file in the process."""
    path: bytes
    inode: tuple[int, int]
    name: str
    """The object's path in the file; empty to close the file."""
    start: int = 0
    stop: int | None = None
    """End of the rows to read; None describes the object."""


class GroupReply(msgspec.Struct, tag=True):
    """A group's names, in byte order, and its attributes of one number or text."""

    names: list[str]
    attributes: dict[str, Value]


class TableReply(msgspec.Struct, tag=True):
    """Describes a table: its fields with types and offsets, and its rows."""

    fields: list[tuple[str, str, int]]
    width: int
    rows: int
    claimed: int


class RowsReply(msgspec.Struct, tag=True):
    """Bytes of rows."""

    data: bytes


class Failure(msgspec.Struct, tag=True):
    """Why something cannot be read."""

    reason: str


Reply = GroupReply | TableReply | RowsReply | Failure


class Hdf5File:
    """A file whose objects are read on request.

    Small files are read at once: a snapshot, even of a file that is being written.
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        """Check the beginning of a file.

        Raises LiveProfileError if only the superblock was written.
        """
        self.path = os.fspath(path)
        status, head = _stat_and_head(self.path)
        self.identity = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
        if not stat.S_ISREG(status.st_mode):
            raise ForeignProfileError(self.path, "not a regular file")
        if not head:
            raise LiveProfileError(self.path, "the file is empty")
        if not head.startswith(SIGNATURE):
            raise ForeignProfileError(self.path, "not an HDF5 file")
        if len(head) < SUPERBLOCK:
            raise DamagedProfileError(self.path, f"truncated after {len(head)} bytes")
        if status.st_size == SUPERBLOCK:
            reason = "the step still runs, or its slurmstepd was killed"
            raise LiveProfileError(self.path, f"only the superblock is on disk: {reason}")
        self._number = next(_numbers)
        self._absolute = os.fsencode(os.path.abspath(self.path))  # noqa: PTH100 - bytes
        self._crashes = 0

    def root(self) -> "Group":
        found = self.open("/")
        if not isinstance(found, Group):
            raise DamagedProfileError(self.path, "the root is a table; expected a group")
        return found

    def open(self, name: str) -> "Group | Dataset":
        reply = self.ask(name)
        if isinstance(reply, GroupReply):
            return Group(self, name, reply)
        assert isinstance(reply, TableReply)
        return Dataset(self, name, reply)

    def close(self) -> None:
        _process.close_file(ObjectRequest(self._number, b"", (0, 0), ""))

    def ask(self, name: str, start: int = 0, stop: int | None = None) -> Reply:
        request = ObjectRequest(self._number, self._absolute, self.identity[:2], name, start, stop)
        reason = f"libhdf5 crashed {MAX_CRASHES} times while reading the file"
        if self._crashes < MAX_CRASHES:
            try:
                reply = _process.ask(request)
            except ChildProcessError as error:
                self._crashes += 1
                reason = str(error)
            else:
                if not isinstance(reply, Failure):
                    return reply
                reason = reply.reason
        raise DamagedProfileError(self.path, reason, name.strip("/") and name)


class Group:
    """A group whose members are read on request."""

    def __init__(self, file: Hdf5File, path: str, reply: GroupReply) -> None:
        self.path = path
        self.attributes = reply.attributes
        self._file = file
        self._names = dict.fromkeys(reply.names)

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names in byte order, like libhdf5's name index."""
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def open(self, name: str) -> "Group | Dataset":
        return self._file.open(f"{self.path.rstrip('/')}/{name}")

    def group(self, name: str) -> "Group | None":
        found = self.open(name) if name in self._names else None
        return found if isinstance(found, Group) else None


class Dataset:
    """A table of records, read in slices."""

    def __init__(self, file: Hdf5File, path: str, reply: TableReply) -> None:
        self.path = path
        self.dtype: np.dtype[np.void] = np.dtype(
            {
                "names": [name for name, _, _ in reply.fields],
                "formats": [kind for _, kind, _ in reply.fields],
                "offsets": [offset for _, _, offset in reply.fields],
                "itemsize": reply.width,
            }
        )
        self.claimed = reply.claimed
        """Rows according to the header."""
        self._rows = reply.rows
        self._file = file

    def __len__(self) -> int:
        """Return the number of rows present; fewer than ``claimed`` in a damaged file."""
        return self._rows

    def read(self, start: int = 0, stop: int | None = None) -> Records:
        stop = self._rows if stop is None else min(stop, self._rows)
        if stop <= start:
            return np.empty(0, self.dtype)
        reply = self._file.ask(self.path, start, stop)
        assert isinstance(reply, RowsReply)
        return np.frombuffer(reply.data, self.dtype)


class _Process:
    """The reader process: started by the first request, and again after a crash."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: subprocess.Popen[bytes] | None = None
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder: msgspec.msgpack.Decoder[Reply] = msgspec.msgpack.Decoder(Reply)

    def ask(self, request: ObjectRequest) -> Reply:
        """Return the reply; raises ChildProcessError with the reason if the process ends."""
        with self._lock:
            child = self._running
            if child is None or child.poll() is not None:
                self._end()
                child = self._running = _start()
            assert child.stdin is not None
            assert child.stdout is not None
            message = self._encoder.encode(request)
            try:
                child.stdin.write(len(message).to_bytes(HEAD, "little") + message)
                child.stdin.flush()
            except BrokenPipeError:
                pass  # it has ended: the read below fails, too
            size = int.from_bytes(child.stdout.read(HEAD), "little")
            data = child.stdout.read(size)
            if not size or len(data) < size:
                raise ChildProcessError(self._end())
            return self._decoder.decode(data)

    def close_file(self, request: ObjectRequest) -> None:
        """Close a file in the process, if it runs."""
        child = self._running
        if child is not None and child.poll() is None:
            self.ask(request)

    def end(self) -> None:
        with self._lock:
            self._end()

    def forget(self) -> None:
        """Leave the process to its parent, after a fork."""
        self._lock = threading.Lock()
        if self._running is not None:
            self._running.returncode = 0  # not a child of this process
        self._running = None

    def _end(self) -> str:
        """Wait for the process to end, and return the reason."""
        child, self._running = self._running, None
        if child is None:
            return ""
        with child:
            assert child.stderr is not None
            _, errors = child.communicate()
        words = errors.decode(errors="replace").strip().splitlines()
        if words and child.returncode > 0:
            return f"the process that reads it failed: {words[-1][:300]}"
        return f"libhdf5 crashed while reading it (status {child.returncode})"


def _start() -> subprocess.Popen[bytes]:
    if importlib.util.find_spec("h5py") is None:
        raise MissingExtra("h5py", "hdf5")
    return subprocess.Popen(  # noqa: S603 - runs a module of this package
        [sys.executable, "-P", "-m", f"{__package__}.hdf5_process"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "HDF5_PLUGIN_PRELOAD": "::"},  # no filters from elsewhere
        start_new_session=True,  # Ctrl-C is for the parent, which ends it
    )


def _stat_and_head(path: str) -> tuple[os.stat_result, bytes]:
    """Return the status and first bytes of a file, without blocking on a pipe."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        status = os.fstat(fd)
        return status, os.pread(fd, SUPERBLOCK, 0) if stat.S_ISREG(status.st_mode) else b""
    finally:
        os.close(fd)


_numbers = itertools.count()
_process = _Process()
atexit.register(_process.end)
os.register_at_fork(after_in_child=_process.forget)
