"""Appends to a file: line protocol, JSON lines or CSV."""

import asyncio
import logging
import os
import threading
from pathlib import Path
from typing import Literal, Self

from ccpipe.config import Duration, Interval, Size
from ccpipe.errors import ConfigError, DeniedError, UnavailableError
from ccpipe.formats import csvlines, jsonlines, lineprotocol
from ccpipe.formats.lineprotocol import Lines, Precision
from ccpipe.pipeline import Limits, Sink
from ccpipe.process.background import background
from ccpipe.sinks.append_file import AppendFile
from ccpipe.sinks.disk import check_folder
from ccpipe.sinks.file.rotation import Rotation
from ccpipe.sinks.file.rows import RowFile

log = logging.getLogger(__name__)

RETENTION_SECONDS = 3600.0
"""Interval at which closed files are checked for age."""


class FileSink(Sink[Lines]):
    """Appends to a file, and to a new one after a rotation. A file has one writer."""

    takes = Lines

    limits = Limits(timeout=0.0)

    def __init__(
        self,
        *,
        path: str,
        format: Literal["line", "json", "csv"] = "line",  # noqa: A002 - the key in recipes
        precision: Precision | Literal["auto"] = "auto",
        fsync: Literal["always", "interval", "never"] = "always",
        fsync_interval: Interval = Interval(1),  # noqa: B008 - immutable
        rotate_size: Size = Size(0),
        rotate_every: Duration = Duration(0),
        compress: bool = False,
        keep: int = 0,
        retention: Duration = Duration(0),
    ) -> None:
        """Choose file and format.

        Parameters
        ----------
        path
            The file; missing folders are created.
        format
            ``line`` for line protocol, ``json`` for one JSON object per line, ``csv`` for one row
            per record.
        precision
            The unit of the timestamps in line protocol; ``auto`` is lossless.
        fsync
            When writes are synced to disk: ``always`` before they are acknowledged, once per
            ``interval``, or ``never``, which leaves it to the kernel.
        fsync_interval
            Time between two syncs with ``fsync = "interval"``: the maximum loss in a power cut.
        rotate_size
            Rotate the file before it exceeds this size; 0 disables this.
        rotate_every
            Rotate the file at the first write of a new period, in UTC: ``1h``, ``1d``; 0 disables
            this.
        compress
            Compress closed files with gzip.
        keep
            Number of closed files to keep; 0 keeps all.
        retention
            How long to keep closed files after their last write; 0 keeps them forever.

        Raises
        ------
        ConfigError
            if `keep` is negative.

        """
        if keep < 0:
            raise ConfigError(f"keep is {keep}: must not be negative")
        self.path = Path(path).expanduser()
        self.format = format
        self.precision = precision
        self.fsync = fsync
        self.fsync_interval = float(fsync_interval)
        self.compress = compress
        self.keep = keep
        self.retention = float(retention)
        self._rotation = Rotation(self.path, size=rotate_size, every=float(rotate_every))
        self._file = self._made()
        self._busy = threading.Lock()  # the thread of a cancelled write may still run
        self._rotated = asyncio.Event()
        self._stopped = threading.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def _made(self) -> AppendFile:
        if self.format == "line":
            return AppendFile(self.path)
        return RowFile(self.path, quote=b'"' if self.format == "csv" else b"")

    async def check(self) -> None:
        check_folder(self.path.parent)

    async def __aenter__(self) -> Self:
        try:
            await asyncio.to_thread(self._file.open)
        except PermissionError as error:
            raise DeniedError(f"{self.path}: {error.strerror}") from None
        except OSError as error:
            raise UnavailableError(f"{self.path}: {error.strerror}") from None
        if self.fsync == "interval":
            self._tasks.append(background(self._keep_syncing(), "ccpipe-fsync"))
        if self.compress or self.keep or self.retention:
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
        """Append the records: all of them, or none."""
        try:
            is_rotated = await asyncio.to_thread(self._append, self._encode(records))
        except OSError as error:
            raise UnavailableError(f"{self.path}: {error.strerror}") from None
        if is_rotated:
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
                payload = csvlines.HEADER + payload
            self._file.append(payload, sync=self.fsync == "always")
            return is_due

    def _encode(self, records: Lines) -> bytes:
        """Return the bytes to append: the received bytes, if they are valid in the file."""
        if self.format == "json":
            return jsonlines.encode(records)
        if self.format == "csv":
            return csvlines.encode(records)
        if isinstance(records, Lines) and self.precision in ("auto", records.precision):
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
            log.error("%s: what was written may be lost: %s", self.path, reason)  # noqa: TRY400

    async def _keep_closed_files(self) -> None:
        """Compress and remove closed files: at the start, after each rotation and every hour."""
        while True:
            self._rotated.clear()
            try:
                await asyncio.to_thread(self._look_after_closed_files)
            except OSError as error:
                log.warning("%s: closed files: %s; retrying", self.path, error.strerror)
            except Exception:
                log.exception("%s: closed files; retrying", self.path)
            try:
                async with asyncio.timeout(RETENTION_SECONDS):
                    await self._rotated.wait()
            except TimeoutError:
                pass

    def _look_after_closed_files(self) -> None:
        self._rotation.remove_old(keep=self.keep, retention=self.retention)
        if self.compress:
            self._rotation.compress(self._stopped)
