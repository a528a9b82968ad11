"""A file that grows: line protocol or JSON lines, safe on the disk before ``write()`` returns."""

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
"""Ends a line that a crash cut off, so that it cannot pass for a whole one.

A bare line end would not do: half of ``value=123 1740027951`` is a line too, but a wrong one.
"""


class FileSink(Sink):
    """Appends to a file, and follows when it is rotated away. One writer to one file."""

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
            The file; folders that are missing are made.
        format
            ``line`` for line protocol, ``json`` for one JSON object a line.
        precision
            The unit of the timestamps in line protocol; ``auto`` loses nothing.

        """
        self.path = Path(path).expanduser()
        self.format = format
        self.precision = precision
        self._file: int | None = None
        self._busy = threading.Lock()  # a cancelled write() goes on in its thread for a moment

    async def check(self) -> None:
        """Say whether the file can be written to, for ``ccpipe validate``; touch nothing.

        Raises
        ------
        ConfigError, DeniedError
            where it cannot.

        """
        check_folder(self.path.parent)

    async def __aenter__(self) -> Self:
        """Open the file; raises DeniedError or UnavailableError where that cannot be."""
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
        """Append the records and bring them to the disk: all of them, or none.

        Raises
        ------
        UnavailableError
            where the disk is full or fails.
        EncodeError
            as the format does.

        """
        try:
            await asyncio.to_thread(self._append, self._spell(records))
        except OSError as error:
            raise UnavailableError(f"{self.path}: {error.strerror}") from None

    def _spell(self, records: Sequence[Message]) -> bytes:
        """Return the bytes to append: those that the records came as, where they can stand."""
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
                # Half a batch must not stay: it will be written again.
                with contextlib.suppress(OSError):
                    os.ftruncate(file, size)
                self._close()
                raise

    def _current(self) -> int:
        """Return the file that stands under our path now, which a rotation may have changed."""
        if self._file is not None:
            ours = os.fstat(self._file)
            with contextlib.suppress(FileNotFoundError):
                there = self.path.stat()
                if (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino):
                    return self._file
        return self._open()

    def _open(self) -> int:
        self._close()
        make_folder(self.path.parent)
        file = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self._file = file
        size = os.fstat(file).st_size
        if size and os.pread(file, 1, size - 1) != b"\n":
            log.warning("%s ended in the middle of a line; it is marked as torn", self.path)
            os.write(file, TORN)
        sync_folder(self.path.parent)
        return file

    def _close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None
