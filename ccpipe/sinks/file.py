"""Appends to a file: line protocol or JSON lines, on the disk before ``write()`` returns."""

import asyncio
import contextlib
import logging
import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, Self

from ccpipe.errors import DeniedError, UnavailableError
from ccpipe.formats import jsonlines, lineprotocol
from ccpipe.formats.lineprotocol import Lines, Precision
from ccpipe.formats.lineprotocol.messages import Messages
from ccpipe.message import Message
from ccpipe.pipeline import Limits, Sink
from ccpipe.sinks.disk import check_folder, make_folder, sync_folder

log = logging.getLogger(__name__)

TORN = b" torn\n"
"""Ends a line that a crash cut off, and makes it invalid.

A line end alone would not: half of ``value=123 1740027951`` is a valid line, but a wrong one.
"""


class FileSink(Sink):
    """Appends to a file, and to a new one after a rotation. A file has one writer."""

    takes = Messages

    limits = Limits()

    def __init__(
        self,
        *,
        path: str,
        format: Literal["line", "json"] = "line",  # noqa: A002 - the word of the recipe
        precision: Precision | Literal["auto"] = "auto",
    ) -> None:
        """Choose file and format.

        Parameters
        ----------
        path
            The file; missing folders are created.
        format
            ``line`` for line protocol, ``json`` for one JSON object a line.
        precision
            The unit of the timestamps in line protocol; ``auto`` loses nothing.

        """
        self.path = Path(path).expanduser()
        self.format = format
        self.precision = precision
        self._file: int | None = None
        self._busy = threading.Lock()  # the thread of a cancelled write() may still run

    async def check(self) -> None:
        """Check whether the file can be written, for ``ccpipe validate``; change nothing.

        Raises
        ------
        ConfigError, DeniedError
            where it cannot be written.

        """
        check_folder(self.path.parent)

    async def __aenter__(self) -> Self:
        """Open the file; raises DeniedError or UnavailableError."""
        try:
            await asyncio.to_thread(self._open)
        except PermissionError as error:
            raise DeniedError(f"{self.path}: {error.strerror}") from None
        except OSError as error:
            raise UnavailableError(f"{self.path}: {error.strerror}") from None
        return self

    async def __aexit__(self, *exit_: object) -> None:
        """Close the file."""
        with self._busy:
            self._close()

    async def write(self, records: Sequence[Message]) -> None:
        """Append the records and sync them to the disk: all of them, or none.

        Raises
        ------
        UnavailableError
            where the disk is full or broken.
        EncodeError
            where the format cannot carry a record.

        """
        try:
            await asyncio.to_thread(self._append, self._encode(records))
        except OSError as error:
            raise UnavailableError(f"{self.path}: {error.strerror}") from None

    def _encode(self, records: Sequence[Message]) -> bytes:
        """Return the bytes to append: those that were received, if they are valid in the file."""
        if self.format == "json":
            return jsonlines.encode(records)
        if isinstance(records, Lines) and self.precision in ("auto", records.precision):
            verbatim = records.passthrough()
            if verbatim is not None:
                return verbatim
        return lineprotocol.encode(records, precision=self.precision)

    def _append(self, payload: bytes) -> None:
        with self._busy:
            file = self._current()
            size = os.fstat(file).st_size
            try:
                rest = memoryview(payload)
                while rest:
                    rest = rest[os.write(file, rest) :]
                os.fsync(file)
            except OSError:
                # Half a batch must be removed, for it will be written again.
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
        file = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self._file = file
        size = os.fstat(file).st_size
        if size and os.pread(file, 1, size - 1) != b"\n":
            log.warning("%s ended in the middle of a line, which is now marked as torn", self.path)
            os.write(file, TORN)
        sync_folder(self.path.parent)
        return file

    def _close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None
