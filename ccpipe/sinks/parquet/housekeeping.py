"""Compaction of small files, and removal of old days."""

import asyncio
import contextlib
import logging
import shutil
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from ccpipe.errors import UnavailableError
from ccpipe.pipeline import wait_for_event
from ccpipe.process.background import background
from ccpipe.records import MessageRange
from ccpipe.sinks.disk import sync_folder
from ccpipe.sinks.parquet.files import (
    JOINED_SUFFIX,
    joined,
    locked,
    metadata,
    new_name,
    parquet_files,
    read_metadata,
    remove,
)
from ccpipe.sinks.parquet.table import GROUP_BYTES, GROUP_ROWS, SCHEMA, write_groups

log = logging.getLogger(__name__)

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

Other bridges may be writing to the same folder, on other machines too. If a file of a very slow
one is removed, its write fails and is retried: nothing is lost.
"""

RECENT_SECONDS = 7 * 86_400.0
"""How long a merged file is checked for replaced files that still exist."""

RETENTION_SECONDS = 3600.0


def clean_up(folder: Path) -> None:
    """Remove leftovers of killed writers: unfinished files, and replaced ones."""
    for leftover in folder.glob("cluster=*/date=*/.*.tmp"):
        with contextlib.suppress(OSError):
            if time.time() - leftover.stat().st_mtime > LEFTOVER_AGE:
                leftover.unlink()
    for file in folder.glob(f"cluster=*/date=*/*{JOINED_SUFFIX}"):
        with contextlib.suppress(OSError):
            if time.time() - file.stat().st_mtime < RECENT_SECONDS:
                remove(file.parent, read_metadata(file)[1])


class Housekeeping:
    """Runs beside the writes of one sink, in one thread at a time."""

    def __init__(self, folder: Path, compression: str, retention: float, *, compact: bool) -> None:
        """Maintain the files below `folder`; keep days for `retention` seconds, 0 is forever."""
        self.folder = folder
        self.compression = compression
        self.retention = retention
        self.compact = compact
        self._written: set[Path] = set()
        self._stopped = threading.Event()
        self._task: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()
        self._next = 0.0
        self._busy_until = 0.0

    def look_after(self, folders: Iterable[Path], rows: int) -> None:
        """Report folders that were written to, with the number of rows; work starts when idle."""
        self._written.update(folders)
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
        folders, self._written = self._written, set()
        try:
            await asyncio.to_thread(self._work_in_thread, folders)
        except (OSError, UnavailableError, pa.ArrowException) as error:
            log.warning("small files are not compacted for now: %s", error)
        except Exception:  # writing goes on
            log.exception("small files are not compacted for now")

    def _work_in_thread(self, folders: Iterable[Path]) -> None:
        if self.compact:
            for folder in folders:
                while not self._stopped.is_set() and join_files(
                    self.folder, folder, self.compression, self._stopped
                ):
                    pass
        if self.retention and time.monotonic() >= self._next:
            self._next = time.monotonic() + RETENTION_SECONDS
            remove_old(self.folder, self.retention)


def join_files(
    root: Path, folder: Path, compression: str, stopped: threading.Event | None = None
) -> bool:
    """Merge small files of a folder into one; false if there are too few.

    The new file gets its name before the others are removed. Its metadata names them, so that they
    are removed later if this process is killed in between.
    """
    if len(parquet_files(folder)) < JOINED:
        return False
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(locked(folder, 0))
        except UnavailableError:  # another bridge is compacting it
            return False
        names = _of_one_size(folder)
        if not names:
            return False
        name = new_name()
        path, runs = folder / f".{name}.tmp", list[MessageRange]()
        for each in names:
            runs += read_metadata(folder / each)[0]
        try:
            said = metadata(joined(runs), names)
            write_groups(path, _row_groups(folder, names, stopped), compression, said)
            with locked(root):  # message ids between the two are not needed
                path.rename(folder / f"{name}{JOINED_SUFFIX}")
                sync_folder(folder)
                remove(folder, names)
        except _StoppedError:
            return False
        finally:
            path.unlink(missing_ok=True)
    return True


class _StoppedError(Exception):
    pass


def _of_one_size(folder: Path) -> list[str]:
    """Return enough files of similar size, the oldest ones; empty if there are not enough."""
    classes: dict[int, list[str]] = {}
    for name in parquet_files(folder):
        size = (folder / name).stat().st_size
        if size < LARGE:
            classes.setdefault(size.bit_length() // _BITS, []).append(name)
    for _, names in sorted(classes.items()):
        if len(names) >= JOINED:
            chosen = [name for name in names if _is_ours(folder / name)][:JOINED]
            if len(chosen) == JOINED:
                return chosen
    return []


def _is_ours(path: Path) -> bool:
    schema = pq.read_schema(path)
    return bool(schema.remove_metadata().equals(SCHEMA))


def _row_groups(
    folder: Path, names: Sequence[str], stopped: threading.Event | None
) -> Iterator[pa.Table]:
    held: list[pa.Table] = []
    for name in names:
        with pq.ParquetFile(folder / name) as file:
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
    for folder in root.glob("cluster=*/date=[0-9]*"):
        if folder.name < oldest:
            shutil.rmtree(folder, ignore_errors=True)
            log.info("removed %s, which is older than the retention", folder)
