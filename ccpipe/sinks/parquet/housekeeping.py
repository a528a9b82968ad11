"""What happens to files later: small ones are joined to larger ones, old days are removed."""

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
from ccpipe.pipeline import MessageRange
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
from ccpipe.sinks.parquet.schema import SCHEMA
from ccpipe.sinks.parquet.writer import GROUP_BYTES, GROUP_ROWS, write_groups

log = logging.getLogger(__name__)

JOINED = 32
"""Files of about one size that are joined. So each row is written again only a few times."""

_BITS = JOINED.bit_length() - 1

LARGE = 64 * 2**20
"""Bytes from which a file is joined no more."""

MANY_ROWS = 100_000
BUSY_SECONDS = 5.0
"""A batch of so many rows, so soon after the last one, says that more are waiting."""

LEFTOVER_AGE = 600.0
"""Seconds after which an unfinished file has no writer any more.

Other bridges may be writing to the same folder, on other machines too. Should this take the file
of a very slow one, its write fails and is tried again: nothing is lost.
"""

RECENT_SECONDS = 7 * 86_400.0
"""For how long a joined file is looked at for files that it replaces and that are still there."""

RETENTION_SECONDS = 3600.0
"""How often days are looked for that are too old."""


def clean_up(folder: Path) -> None:
    """Remove what killed writers left: unfinished files, and those whose rows another one has."""
    for leftover in folder.glob("cluster=*/date=*/.*.tmp"):
        with contextlib.suppress(OSError):
            if time.time() - leftover.stat().st_mtime > LEFTOVER_AGE:
                leftover.unlink()
    for file in folder.glob(f"cluster=*/date=*/*{JOINED_SUFFIX}"):
        with contextlib.suppress(OSError):
            if time.time() - file.stat().st_mtime < RECENT_SECONDS:
                remove(file.parent, read_metadata(file)[1])


class Housekeeping:
    """Works beside the writes of one sink, in one thread at a time."""

    def __init__(self, folder: Path, compression: str, retention: float, *, compact: bool) -> None:
        """Look after the files below `folder`; keep days for `retention` seconds, 0 is for ever."""
        self.folder = folder
        self.compression = compression
        self.retention = retention
        self.compact = compact
        self._written: set[Path] = set()
        self._stopped = threading.Event()
        self._task: asyncio.Task[None] | None = None
        self._next = 0.0
        self._last = 0.0  # when something was written

    def look_after(self, folders: Iterable[Path], rows: int) -> None:
        """Note that folders were written to, so many rows; begin to work where there is time."""
        self._written.update(folders)
        last, self._last = self._last, time.monotonic()
        if rows >= MANY_ROWS and self._last - last < BUSY_SECONDS:
            return  # the bridge catches up: that comes first
        if self._task is None or self._task.done():
            work, self._written = self._written, set()
            self._task = asyncio.create_task(self._work(work), name="ccpipe-housekeeping")

    async def close(self) -> None:
        """Let go of what is not finished."""
        self._stopped.set()
        if self._task is not None:
            await asyncio.wait([self._task])

    async def _work(self, folders: Iterable[Path]) -> None:
        try:
            await asyncio.to_thread(self._work_in_thread, folders)
        except (OSError, UnavailableError, pa.ArrowException) as error:
            log.warning("small files are not joined for now: %s", error)

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
    """Join some small files of a folder to one; false where there are too few.

    The new file gets its name before the others go. Its metadata names them, so that they go
    later where this process is killed in between.
    """
    if len(parquet_files(folder)) < JOINED:
        return False
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(locked(folder, 0))
        except UnavailableError:  # another bridge is at it
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
            with locked(root):  # nobody looks for messages between the two
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
    """Return enough files whose sizes are about the same, the oldest ones; none where there are."""
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
    """Return whether a file has the columns of today."""
    schema = pq.read_schema(path)
    return bool(schema.remove_metadata().equals(SCHEMA))


def _row_groups(
    folder: Path, names: Sequence[str], stopped: threading.Event | None
) -> Iterator[pa.Table]:
    """Yield the rows of files in large row groups."""
    held: list[pa.Table] = []
    for name in names:
        with pq.ParquetFile(folder / name) as file:
            for group in range(file.num_row_groups):
                if stopped is not None and stopped.is_set():
                    raise _StoppedError
                held.append(file.read_row_group(group).cast(SCHEMA))
                rows, size = sum(map(len, held)), sum(table.nbytes for table in held)
                if rows >= GROUP_ROWS or size >= GROUP_BYTES:
                    yield pa.concat_tables(held).unify_dictionaries().combine_chunks()
                    held = []
    if held:
        yield pa.concat_tables(held).unify_dictionaries().combine_chunks()


def remove_old(root: Path, retention: float) -> None:
    """Remove the folders of days that are older than the retention."""
    oldest = f"date={datetime.now(UTC).date() - timedelta(seconds=retention):%Y-%m-%d}"
    for folder in root.glob("cluster=*/date=[0-9]*"):
        if folder.name < oldest:
            shutil.rmtree(folder, ignore_errors=True)
            log.info("removed %s, which is older than the retention", folder)
