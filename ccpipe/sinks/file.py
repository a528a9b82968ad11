"""Appends to a file: line protocol or JSON lines, on the disk before ``write()`` returns."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, Self

from ccpipe.errors import DeniedError, UnavailableError
from ccpipe.formats import jsonlines, lineprotocol
from ccpipe.formats.lineprotocol import Lines, Precision
from ccpipe.formats.lineprotocol.messages import Messages
from ccpipe.message import Message
from ccpipe.pipeline import Limits, Sink
from ccpipe.sinks.append_file import AppendFile
from ccpipe.sinks.disk import check_folder


class FileSink(Sink):
    """Appends to a file, and to a new one after a rotation. A file has one writer."""

    takes = Messages

    limits = Limits(timeout=0.0)

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
        self._file = AppendFile(self.path)

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
            await asyncio.to_thread(self._file.open)
        except PermissionError as error:
            raise DeniedError(f"{self.path}: {error.strerror}") from None
        except OSError as error:
            raise UnavailableError(f"{self.path}: {error.strerror}") from None
        return self

    async def __aexit__(self, *exit_: object) -> None:
        """Close the file."""
        self._file.close()

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
            await asyncio.to_thread(self._file.append, self._encode(records))
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
