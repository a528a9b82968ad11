"""The files on disk: how they are written, named, locked, compacted and removed.

The metadata of a file lists the messages whose rows it contains.
"""

import asyncio
import contextlib
import errno
import fcntl
import inspect
import logging
import os
import secrets
import shutil
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from ccpipe.errors import UnavailableError
from ccpipe.formats.lineprotocol import arrow
from ccpipe.pipeline import wait_for_event
from ccpipe.process.background import background
from ccpipe.records import MessageRange, merged_ranges
from ccpipe.sinks.disk import sync_directory

log = logging.getLogger(__name__)

SCHEMA = arrow.MICROSECONDS.remove(arrow.MICROSECONDS.get_field_index("cluster"))
"""The cluster is in the path."""

GROUP_ROWS = 150_000
GROUP_BYTES = 16 * 2**20
"""Maximum rows and bytes of a row group: the memory that a reader or writer needs."""

_PAGE_ROWS = 20 * 1024

_OPTIONS: dict[str, Any] = {
    # A dictionary of doubles would be built, grow too large, and be discarded.
    "use_dictionary": [
        field.name for field in SCHEMA if pa.types.is_dictionary(field.type) or field.name == "ns"
    ],
    # Readers skip row groups by these columns; all nodes and metrics are in each.
    "write_statistics": ["time"],
    # 20 000 doubles, which zstd compresses best; the other columns need few bytes per row.
    "data_page_size": 8 * _PAGE_ROWS,
    "write_batch_size": _PAGE_ROWS,
}
if "max_rows_per_page" in inspect.signature(pq.ParquetWriter).parameters:
    # Newer versions end a page after 20 000 rows, and each page costs a compressor.
    _OPTIONS["max_rows_per_page"] = GROUP_ROWS


def write_file(
    path: Path, table: pa.Table, compression: str, metadata: Mapping[bytes, bytes]
) -> None:
    write_groups(path, _groups(table), compression, metadata)


def write_groups(
    path: Path, tables: Iterable[pa.Table], compression: str, metadata: Mapping[bytes, bytes]
) -> None:
    """Write a new file of a row group for each table, and sync it to the disk."""
    schema = SCHEMA.with_metadata(metadata)
    with path.open("xb") as file:
        with pq.ParquetWriter(file, schema, compression=compression, **_OPTIONS) as writer:
            for table in tables:
                writer.write_table(table, row_group_size=max(1, len(table)))
        file.flush()
        os.fsync(file.fileno())


def _groups(table: pa.Table) -> Iterable[pa.Table]:
    rows = min(GROUP_ROWS, max(1, len(table) * GROUP_BYTES // max(1, table.nbytes)))
    for start in range(0, len(table), rows):
        yield table.slice(start, rows)


# names, messages, locks

MESSAGES = b"ccpipe.messages"
"""Metadata key of the messages whose rows of its cluster and day the file contains, as runs."""

REPLACES = b"ccpipe.replaces"
"""Metadata key of the names of the files whose rows this file now contains."""

JOINED_SUFFIX = "-joined.parquet"

LATEST = 256
"""Number of most recent files of a directory whose messages are read."""

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


def parquet_files(directory: Path) -> list[str]:
    """Return the names of a directory's finished files, the latest last."""
    try:
        names = os.listdir(directory)  # noqa: PTH208 - twice per write; Path is far slower
    except FileNotFoundError:
        return []
    return sorted(name for name in names if name.endswith(".parquet") and name[0] != ".")


class StoredMessages:
    """The messages stored in the latest files of a directory, including other bridges'."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._seen: set[str] = set()
        self._runs: list[MessageRange] = []

    def refreshed(self) -> list[MessageRange]:
        """Read files added since the last call; return the messages of all."""
        names = parquet_files(self.directory)
        new = [name for name in names if name not in self._seen]
        for name in new[-LATEST:]:
            runs, replaced = read_metadata(self.directory / name)
            remove(self.directory, replaced)
            self._runs += runs
        if new:
            self._seen = set(names)
            self._runs = merged_ranges(self._runs)[-MAX_RUNS:]
        return self._runs

    def add(self, name: str, runs: Sequence[MessageRange]) -> None:
        self._seen.add(name)
        self._runs = merged_ranges([*self._runs, *runs])[-MAX_RUNS:]


def remove(directory: Path, names: Sequence[str]) -> None:
    """Remove files whose rows another file now contains: their remover may have been killed."""
    for name in names:
        if name == Path(name).name and name.endswith(".parquet"):
            with contextlib.suppress(FileNotFoundError):
                (directory / name).unlink()


@contextlib.contextmanager
def locked(directory: Path, seconds: float = LOCK_SECONDS) -> Iterator[None]:
    """Hold a directory's lock, if its file system supports locks; raises UnavailableError."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        deadline = time.monotonic() + seconds
        while not _is_locked(descriptor):
            if time.monotonic() >= deadline:
                raise UnavailableError(f"{directory}: another bridge holds the lock")
            time.sleep(0.01)
        yield
    finally:
        os.close(descriptor)


def _is_locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        # NFS does not lock directories: there two bridges of one durable name may, if one stalled,
        # both write redelivered messages.
        return error.errno not in (errno.EWOULDBLOCK, errno.EINTR)
    return True


# compaction and retention

JOINED = 32
"""Files of similar size merged at once, so that each row is rewritten only a few times."""

_BITS = JOINED.bit_length() - 1

LARGE = 64 * 2**20
"""Size in bytes from which a file is no longer merged."""

MANY_ROWS = 50_000
BUSY_SECONDS = 5.0
"""No compaction for some time after a batch of many rows: more are probably waiting."""

LEFTOVER_AGE = 600.0
"""Age in seconds at which an unfinished file counts as abandoned.

Other bridges may be writing to the same directory, on other machines too. If a file of a very slow
one is removed, its write fails and is retried: nothing is lost.
"""

RECENT_SECONDS = 7 * 86_400.0
"""How long a merged file is checked for replaced files that still exist."""

RETENTION_SECONDS = 3600.0


def clean_up(directory: Path) -> None:
    """Remove leftovers of killed writers: unfinished files, and replaced ones."""
    for leftover in directory.glob("cluster=*/date=*/.*.tmp"):
        with contextlib.suppress(OSError):
            if time.time() - leftover.stat().st_mtime > LEFTOVER_AGE:
                leftover.unlink()
    for file in directory.glob(f"cluster=*/date=*/*{JOINED_SUFFIX}"):
        with contextlib.suppress(OSError):
            if time.time() - file.stat().st_mtime < RECENT_SECONDS:
                remove(file.parent, read_metadata(file)[1])


class Housekeeping:
    """Runs concurrently with the writes of one sink, in one thread at a time."""

    def __init__(
        self, directory: Path, compression: str, retention: float, *, compact: bool
    ) -> None:
        """Maintain the files below `directory`; keep days for `retention` seconds, 0 is forever."""
        self.directory = directory
        self.compression = compression
        self.retention = retention
        self.compact = compact
        self._written: set[Path] = set()
        self._stopped = threading.Event()
        self._task: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()
        self._next = 0.0
        self._busy_until = 0.0

    def maintain(self, directories: Iterable[Path], rows: int) -> None:
        """Report written directories, with the number of rows; work starts when idle."""
        self._written.update(directories)
        if rows >= MANY_ROWS:
            self._busy_until = time.monotonic() + BUSY_SECONDS
        if self._task is None or self._task.done():
            self._task = background(self._work(), "ccpipe-housekeeping")

    async def close(self) -> None:
        self._stopped.set()
        self._closing.set()
        if self._task is not None:
            await asyncio.wait([self._task])

    async def _work(self) -> None:
        while (seconds := self._busy_until - time.monotonic()) > 0:
            await wait_for_event(self._closing, seconds)
            if self._closing.is_set():
                return
        directories, self._written = self._written, set()
        try:
            await asyncio.to_thread(self._work_in_thread, directories)
        except (OSError, UnavailableError, pa.ArrowException) as error:
            log.warning("small files are not compacted for now: %s", error)
        except Exception:  # writing goes on
            log.exception("small files are not compacted for now")

    def _work_in_thread(self, directories: Iterable[Path]) -> None:
        if self.compact:
            for directory in directories:
                while not self._stopped.is_set() and join_files(
                    self.directory, directory, self.compression, self._stopped
                ):
                    pass
        if self.retention and time.monotonic() >= self._next:
            self._next = time.monotonic() + RETENTION_SECONDS
            remove_old(self.directory, self.retention)


def join_files(
    root: Path, directory: Path, compression: str, stopped: threading.Event | None = None
) -> bool:
    """Merge small files of a directory into one; false if there are too few.

    The new file gets its name before the others are removed. Its metadata names them, so that they
    are removed later if this process is killed in between.
    """
    if len(parquet_files(directory)) < JOINED:
        return False
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(locked(directory, 0))
        except UnavailableError:  # another bridge is compacting it
            return False
        names = _of_one_size(directory)
        if not names:
            return False
        name = new_name()
        path, runs = directory / f".{name}.tmp", list[MessageRange]()
        for each in names:
            runs += read_metadata(directory / each)[0]
        try:
            said = metadata(merged_ranges(runs), names)
            write_groups(path, _row_groups(directory, names, stopped), compression, said)
            with locked(root):  # message ids between the two are not needed
                path.rename(directory / f"{name}{JOINED_SUFFIX}")
                sync_directory(directory)
                remove(directory, names)
        except _StoppedError:
            return False
        finally:
            path.unlink(missing_ok=True)
    return True


class _StoppedError(Exception):
    pass


def _of_one_size(directory: Path) -> list[str]:
    """Return enough files of similar size, the oldest ones; empty if there are not enough."""
    classes: dict[int, list[str]] = {}
    for name in parquet_files(directory):
        size = (directory / name).stat().st_size
        if size < LARGE:
            classes.setdefault(size.bit_length() // _BITS, []).append(name)
    for _, names in sorted(classes.items()):
        if len(names) >= JOINED:
            chosen = [name for name in names if _is_ours(directory / name)][:JOINED]
            if len(chosen) == JOINED:
                return chosen
    return []


def _is_ours(path: Path) -> bool:
    schema = pq.read_schema(path)
    return bool(schema.remove_metadata().equals(SCHEMA))


def _row_groups(
    directory: Path, names: Sequence[str], stopped: threading.Event | None
) -> Iterator[pa.Table]:
    held: list[pa.Table] = []
    for name in names:
        with pq.ParquetFile(directory / name) as file:
            for group in range(file.num_row_groups):
                if stopped is not None and stopped.is_set():
                    raise _StoppedError
                found = file.read_row_group(group, use_threads=False)
                more = [*held, pa.Table.from_arrays(found.columns, schema=SCHEMA)]
                rows, size = sum(map(len, more)), sum(table.nbytes for table in more)
                if held and (rows > GROUP_ROWS or size > GROUP_BYTES):
                    yield _as_one(held)
                    more = more[-1:]
                held = more
    if held:
        yield _as_one(held)


def _as_one(tables: Sequence[pa.Table]) -> pa.Table:
    if len(tables) == 1:
        return tables[0]
    return pa.concat_tables(tables).unify_dictionaries().combine_chunks()


def remove_old(root: Path, retention: float) -> None:
    oldest = f"date={datetime.now(UTC).date() - timedelta(seconds=retention):%Y-%m-%d}"
    for directory in root.glob("cluster=*/date=[0-9]*"):
        if directory.name < oldest:
            shutil.rmtree(directory, ignore_errors=True)
            log.info("removed %s, which is older than the retention", directory)
