"""Files of one folder: names, message ids in their metadata, and locks."""

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
from ccpipe.records import MessageRange

MESSAGES = b"ccpipe.messages"
"""Metadata key of the messages whose rows of its cluster and day the file contains, as runs."""

REPLACES = b"ccpipe.replaces"
"""Metadata key of the names of the files whose rows this file now contains."""

JOINED_SUFFIX = "-joined.parquet"

LATEST = 256
"""Number of most recent files of a folder whose messages are read."""

MAX_RUNS = 100_000

LOCK_SECONDS = 5.0


def new_name() -> str:
    """Return a unique file name; later names sort after it."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%S.%f}-{secrets.token_hex(4)}"


def metadata(runs: Sequence[MessageRange], replaces: Sequence[str] = ()) -> dict[bytes, bytes]:
    said = {MESSAGES: msgspec.json.encode(runs)} if runs else {}
    return said | ({REPLACES: msgspec.json.encode(replaces)} if replaces else {})


def read_metadata(path: Path) -> tuple[list[MessageRange], list[str]]:
    """Return messages and names of replaced files; none for a foreign file."""
    try:
        said = pq.read_metadata(path).metadata or {}
        runs = msgspec.json.decode(said.get(MESSAGES, b"[]"), type=list[MessageRange])
        return runs, msgspec.json.decode(said.get(REPLACES, b"[]"), type=list[str])
    except (OSError, pa.ArrowException, msgspec.DecodeError):  # removed, or not ours
        return [], []


def joined(runs: Iterable[MessageRange]) -> list[MessageRange]:
    """Merge runs that follow each other."""
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
    """Return the names of a folder's finished files, the latest last."""
    try:
        names = os.listdir(folder)  # noqa: PTH208 - twice per write; Path is far slower
    except FileNotFoundError:
        return []
    return sorted(name for name in names if name.endswith(".parquet") and name[0] != ".")


class StoredMessages:
    """The messages stored in the latest files of a folder, including those of other bridges."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._seen: set[str] = set()
        self._runs: list[MessageRange] = []

    def look(self) -> list[MessageRange]:
        """Read files added since the last call; return the messages of all."""
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
        self._seen.add(name)
        self._runs = joined([*self._runs, *runs])[-MAX_RUNS:]


def remove(folder: Path, names: Sequence[str]) -> None:
    """Remove files whose rows another file now contains: their remover may have been killed."""
    for name in names:
        if name == Path(name).name and name.endswith(".parquet"):
            with contextlib.suppress(FileNotFoundError):
                (folder / name).unlink()


@contextlib.contextmanager
def locked(folder: Path, seconds: float = LOCK_SECONDS) -> Iterator[None]:
    """Hold a folder's lock, if its file system supports locks; raises UnavailableError."""
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
        # NFS does not lock folders: there two bridges of one durable name may, if one stalled,
        # both write redelivered messages.
        return error.errno not in (errno.EWOULDBLOCK, errno.EINTR)
    return True
