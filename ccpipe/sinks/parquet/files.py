"""Files of one folder: their names, what their metadata says of messages, and locks."""

import contextlib
import errno
import fcntl
import os
import secrets
import time
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from ccpipe.errors import UnavailableError
from ccpipe.pipeline import MessageRange

MESSAGES = b"ccpipe.messages"
"""In a file's metadata: the messages whose rows of its cluster and day are in it, as runs."""

REPLACES = b"ccpipe.replaces"
"""In a file's metadata: the names of the files whose rows it has now."""

JOINED_SUFFIX = "-joined.parquet"
"""Ends the names of files that replace others."""

LATEST = 256
"""Files of a folder that are asked for their messages: those that were written last."""

MAX_RUNS = 100_000
"""Runs that are remembered of each folder."""

LOCK_SECONDS = 5.0


def new_name() -> str:
    """Return a name that no other file has; the names of later files come after it."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%S.%f}-{secrets.token_hex(4)}"


def metadata(runs: Sequence[MessageRange], replaces: Sequence[str] = ()) -> dict[bytes, bytes]:
    """Return what a file's metadata says of its messages."""
    said = {MESSAGES: msgspec.json.encode(runs)} if runs else {}
    return said | ({REPLACES: msgspec.json.encode(replaces)} if replaces else {})


def read_metadata(path: Path) -> tuple[list[MessageRange], list[str]]:
    """Return messages and names of replaced files; none of what is no file of ours."""
    try:
        said = pq.read_metadata(path).metadata or {}
        runs = msgspec.json.decode(said.get(MESSAGES, b"[]"), type=list[MessageRange])
        return runs, msgspec.json.decode(said.get(REPLACES, b"[]"), type=list[str])
    except (OSError, pa.ArrowException, msgspec.DecodeError):  # removed, or somebody else's
        return [], []


def joined(runs: Iterable[MessageRange]) -> list[MessageRange]:
    """Join runs that follow one another."""
    found: list[MessageRange] = []
    for run in sorted(runs):
        before = found[-1] if found else None
        if before and (before.overlaps(run) or _follows(before, run)):
            found[-1] = MessageRange(
                run.consumer,
                before.first,
                max(before.last, run.last),
                min(before.since, run.since),
                max(before.until, run.until),
            )
        else:
            found.append(run)
    return found


def _follows(before: MessageRange, run: MessageRange) -> bool:
    return before.consumer == run.consumer and run.first == before.last + 1


def parquet_files(folder: Path) -> list[str]:
    """Return the names of a folder's finished files, the latest one last."""
    try:
        names = os.listdir(folder)  # noqa: PTH208 - each write looks twice: paths take far longer
    except FileNotFoundError:
        return []
    return sorted(name for name in names if name.endswith(".parquet") and name[0] != ".")


class StoredMessages:
    """Which messages the latest files of a folder have, those of other bridges included."""

    def __init__(self, folder: Path) -> None:
        """Begin without having looked."""
        self.folder = folder
        self._seen: set[str] = set()
        self._runs: list[MessageRange] = []

    def look(self) -> list[MessageRange]:
        """Look for files that came since the last time; return the messages of all."""
        names = parquet_files(self.folder)
        new = [name for name in names if name not in self._seen]
        for name in new[-LATEST:]:
            runs, replaced = read_metadata(self.folder / name)
            remove(self.folder, replaced)
            self._runs += runs
        if new:
            self._seen = set(names)
            self._runs = joined(self._runs)[-MAX_RUNS:]
        return self._runs

    def add(self, name: str, runs: Sequence[MessageRange]) -> None:
        """Note a file that is ours."""
        self._seen.add(name)
        self._runs = joined([*self._runs, *runs])[-MAX_RUNS:]


def remove(folder: Path, names: Sequence[str]) -> None:
    """Remove files whose rows another one has now: their remover may have been killed."""
    for name in names:
        if name == Path(name).name and name.endswith(".parquet"):
            with contextlib.suppress(FileNotFoundError):
                (folder / name).unlink()


@contextlib.contextmanager
def locked(folder: Path, seconds: float = LOCK_SECONDS) -> Iterator[None]:
    """Hold a folder's lock, where its file system has locks.

    Raises
    ------
    UnavailableError
        if somebody else holds it for so long.

    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        deadline = time.monotonic() + seconds
        while not _is_locked(descriptor):
            if time.monotonic() >= deadline:
                raise UnavailableError(f"{folder}: another bridge holds the lock")
            time.sleep(0.01)
        yield
    finally:
        os.close(descriptor)


def _is_locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        # NFS locks no folders: there two bridges of one durable name may, after one stood still,
        # both write what was delivered again.
        return error.errno not in (errno.EWOULDBLOCK, errno.EINTR)
    return True
