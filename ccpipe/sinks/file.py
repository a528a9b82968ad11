"""Appends to a file: line protocol, JSON lines or CSV; rotation, and retention of closed files."""

import asyncio
import gzip
import logging
import os
import re
import shutil
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, NamedTuple, Self

from ccpipe.config import Duration, Interval, Size
from ccpipe.errors import ConfigError
from ccpipe.formats import lineprotocol, rows
from ccpipe.formats.lineprotocol import Lines, Precision
from ccpipe.pipeline import Limits, Sink, wait_for_event
from ccpipe.process.background import background
from ccpipe.sinks.disk import AppendFile, check_directory, disk_errors, sync_directory

log = logging.getLogger(__name__)

RETENTION_SECONDS = 3600.0

STAMP = "%Y%m%dT%H%M%SZ"
_BLOCK = 2**20


class FileSink(Sink[Lines]):
    """Appends to a file, and to a new one after a rotation. A file has one writer."""

    takes = Lines

    limits = Limits(write_timeout=0.0)

    def __init__(
        self,
        *,
        path: str,
        format: Literal["line", "json", "csv"] = "line",  # noqa: A002 - the key in recipes
        precision: Precision | Literal["auto"] = "auto",
        fsync: Literal["always", "interval", "never"] = "always",
        fsync_interval: Interval = Interval(1),  # noqa: B008 - immutable
        rotate_size: Size = Size(0),
        rotate_interval: Duration = Duration(0),
        compression: Literal["none", "gzip"] = "none",
        max_files: int = 0,
        retention: Duration = Duration(0),
    ) -> None:
        """Choose file and format.

        Parameters
        ----------
        path
            The file; missing directories are created.
        format
            ``line`` for line protocol, ``json`` for one JSON object per line, ``csv`` for one row
            per record.
        precision
            The unit of the timestamps in line protocol; ``auto`` is lossless.
        fsync
            When writes are synced to disk: ``always`` before they are acknowledged, once per
            ``interval``, or ``never``, which leaves it to the kernel.
        fsync_interval
            Time between two syncs with ``fsync = "interval"``: the maximum loss in a power failure.
        rotate_size
            Rotate the file before it exceeds this size; 0 disables this.
        rotate_interval
            Rotate the file at the first write of a new period, in UTC: ``1h``, ``1d``; 0 disables
            this.
        compression
            Compression of closed files.
        max_files
            Number of closed files to keep; 0 keeps all.
        retention
            How long to keep closed files after their last write; 0 keeps them forever.

        Raises
        ------
        ConfigError
            if `max_files` is negative.

        """
        if max_files < 0:
            raise ConfigError(f"max_files is {max_files}: must not be negative")
        self.path = Path(path).expanduser()
        self.format = format
        self.precision = precision
        self.fsync = fsync
        self.fsync_interval = float(fsync_interval)
        self.compression = compression
        self.max_files = max_files
        self.retention = float(retention)
        self._rotation = Rotation(self.path, size=rotate_size, every=float(rotate_interval))
        is_rows = format != "line"
        quote = b'"' if format == "csv" else b""
        self._file = RowFile(self.path, quote=quote) if is_rows else AppendFile(self.path)
        self._busy = threading.Lock()  # the thread of a cancelled write may still run
        self._rotated = asyncio.Event()
        self._stopped = threading.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def check(self) -> None:
        check_directory(self.path.parent)

    async def __aenter__(self) -> Self:
        with disk_errors(self.path, opening=True):
            await asyncio.to_thread(self._file.open)
        if self.fsync == "interval":
            self._tasks.append(background(self._keep_syncing(), "ccpipe-fsync"))
        if self.compression != "none" or self.max_files or self.retention:
            housekeeping = self._keep_closed_files()
            self._tasks.append(background(housekeeping, "ccpipe-closed-files"))
        return self

    async def __aexit__(self, *exit_: object) -> None:
        """Close the file; unfinished compression resumes at the next start."""
        self._stopped.set()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        with self._busy:
            try:
                if self.fsync == "interval":
                    self._sync()
            finally:
                self._file.close()

    async def write(self, records: Lines) -> None:
        """Append all records, or none."""
        payload = self._encode(records)
        with disk_errors(self.path):
            if await asyncio.to_thread(self._append, payload):
                self._rotated.set()

    def _append(self, payload: bytes) -> bool:
        """Append to the file, or to a new one if a rotation is due; return whether it rotated."""
        with self._busy:
            file = self.path.stat() if self.path.exists() else None
            is_due = file is not None and self._rotation.is_due(file, len(payload))
            if file is not None and is_due:
                if self.fsync == "interval":
                    self._file.sync()  # later the lock may belong to another process
                self._rotation.rotate(file)
            if self.format == "csv" and (file is None or is_due or not file.st_size):
                payload = rows.CSV_HEADER + payload
            self._file.append(payload, sync=self.fsync == "always")
            return is_due

    def _encode(self, records: Lines) -> bytes:
        """Return the bytes to append: the received bytes, if they are valid in the file."""
        if self.format == "json":
            return rows.encode_json(records)
        if self.format == "csv":
            return rows.encode_csv(records)
        if self.precision in ("auto", records.precision):
            verbatim = records.passthrough()
            if verbatim is not None:
                return verbatim
        return lineprotocol.encode(records, precision=self.precision)

    async def _keep_syncing(self) -> None:
        while True:
            await asyncio.sleep(self.fsync_interval)
            await asyncio.to_thread(self._sync)

    def _sync(self) -> None:
        try:
            self._file.sync()
        except OSError as error:
            reason = os.strerror(error.errno or 0)
            log.error("%s: written data may be lost: %s", self.path, reason)  # noqa: TRY400

    async def _keep_closed_files(self) -> None:
        """Compress and remove closed files: at the start, after each rotation and every hour."""
        while True:
            self._rotated.clear()
            try:
                await asyncio.to_thread(self._maintain_closed_files)
            except OSError as error:
                log.warning("%s: closed files: %s; retrying", self.path, error.strerror)
            except Exception:
                log.exception("%s: closed files; retrying", self.path)
            await wait_for_event(self._rotated, RETENTION_SECONDS)

    def _maintain_closed_files(self) -> None:
        self._rotation.remove_old(keep=self.max_files, retention=self.retention)
        if self.compression == "gzip":
            self._rotation.compress(self._stopped)


class RowFile(AppendFile):
    """Removes a row torn by a crash, as readers of JSON and CSV stop at an invalid row."""

    def __init__(self, path: Path, *, quote: bytes = b"") -> None:
        """Append to the file at `path`; a line end between two `quote` bytes is part of a row."""
        super().__init__(path)
        self.quote = quote
        self._checked = -1  # inode of the file that was checked

    def repair(self, file: int) -> None:
        """Truncate the file after its last complete row; called with the file locked."""
        status = os.fstat(file)
        is_checked, self._checked = status.st_ino == self._checked, status.st_ino
        is_ended = not status.st_size or os.pread(file, 1, status.st_size - 1) == b"\n"
        if is_ended and (is_checked or not self.quote):
            return
        size = self._whole(file)
        if size < status.st_size:
            torn = status.st_size - size
            log.warning("%s: removed %d bytes of a row cut off", self.path, torn)
            os.ftruncate(file, size)

    def _whole(self, file: int) -> int:
        """Return the size of the file without an incomplete last row."""
        size = place = quotes = 0
        with os.fdopen(os.dup(file), "rb") as reader:
            reader.seek(0)
            while piece := reader.readline(_BLOCK):
                place += len(piece)
                quotes += piece.count(self.quote) if self.quote else 0
                if piece.endswith(b"\n") and quotes % 2 == 0:
                    size = place
        return size


class Closed(NamedTuple):
    """A closed file; sorts by age."""

    stamp: str
    """The time of its last write, in UTC."""
    number: int
    """Distinguishes files of the same second."""
    path: Path

    @property
    def time(self) -> float:
        return datetime.strptime(self.stamp, STAMP).replace(tzinfo=UTC).timestamp()


class Rotation:
    """The closed files next to the current one: ``<stem>-<time of the last write><suffix>``."""

    def __init__(self, path: Path, *, size: int, every: float) -> None:
        """Close the file at `path` before it exceeds `size` bytes, and at the end of each period.

        Periods of `every` seconds are counted from the epoch, so that days end at midnight UTC. 0
        disables each limit.
        """
        self.path = path
        self.size = size
        self.every = every
        self._name = re.compile(
            rf"{re.escape(path.stem)}-(\d{{8}}T\d{{6}}Z)(?:_(\d+))?{re.escape(path.suffix)}(\.gz)?"
        )

    def is_due(self, file: os.stat_result, adding: int) -> bool:
        if not file.st_size:
            return False
        if self.size and file.st_size + adding > self.size:
            return True
        return bool(self.every) and file.st_mtime // self.every < time.time() // self.every

    def rotate(self, file: os.stat_result) -> None:
        """Rename the file to a closed one, durably; raises OSError."""
        stamp = f"{datetime.fromtimestamp(file.st_mtime, UTC):{STAMP}}"
        same = [closed.number for closed in self.closed() if closed.stamp == stamp]
        number = f"_{max(same) + 1:03}" if same else ""
        name = f"{self.path.stem}-{stamp}{number}{self.path.suffix}"
        self.path.rename(self.path.with_name(name))
        sync_directory(self.path.parent)

    def closed(self) -> list[Closed]:
        """Return the closed files, the oldest first; raises OSError.

        A file and its compressed copy (during compression, or after a kill in that time) count as
        one file, listed as uncompressed.
        """
        found: dict[tuple[str, int], Closed] = {}
        for path in self.path.parent.iterdir():
            if name := self._name.fullmatch(path.name):
                file = Closed(name[1], int(name[2] or 0), path)
                if not name[3] or file[:2] not in found:
                    found[file[:2]] = file
        return sorted(found.values())

    def remove_old(self, *, keep: int, retention: float) -> None:
        """Remove all but the last `keep`, and those older than a number of seconds; 0 keeps all."""
        closed = self.closed()
        excess = max(0, len(closed) - keep) if keep else 0
        oldest = time.time() - retention if retention else float("-inf")
        for place, file in enumerate(closed):
            if place < excess or file.time < oldest:
                for path in (file.path, _compressed(file.path)):
                    path.unlink(missing_ok=True)

    def compress(self, stopped: threading.Event) -> None:
        """Compress closed files that are not compressed yet; abandon one if `stopped` is set."""
        for file in self.closed():
            if file.path.suffix != ".gz" and not stopped.is_set():
                _compress(file.path, stopped)


def _compressed(path: Path) -> Path:
    return path.with_name(f"{path.name}.gz")


def _compress(path: Path, stopped: threading.Event) -> None:
    draft = path.with_name(f".{path.name}.gz.tmp")
    try:
        with path.open("rb") as source, draft.open("wb") as target:
            with gzip.open(target, "wb", 6) as packed:
                while (block := source.read(_BLOCK)) and not stopped.is_set():
                    packed.write(block)
            os.fsync(target.fileno())
        if not block:
            shutil.copystat(path, draft)
            draft.rename(_compressed(path))
            sync_directory(path.parent)
            path.unlink()
    finally:
        draft.unlink(missing_ok=True)
