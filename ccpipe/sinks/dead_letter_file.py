"""Dead letters in a file, where there is no broker."""

import asyncio
import logging
import math
import time
from collections.abc import Sequence
from pathlib import Path

from ccpipe.errors import UnavailableError
from ccpipe.formats import dead_letters
from ccpipe.pipeline import DeadLetter, DeadLetterSink
from ccpipe.sinks.append_file import AppendFile

log = logging.getLogger(__name__)

MODE = 0o600
"""Only the owner reads the file: letters hold whatever was sent, commands of jobs for example."""
NODE_BYTES = 64 * 2**20
"""Bytes of a file on a node at most: one that may not publish would fill its disk."""


class DeadLetterFile(DeadLetterSink):
    """Appends each letter as a comment that describes it and the original bytes.

    The file is line protocol; ``ccpipe dead`` lists, shows and replays what it holds. Several
    processes may append to it.
    """

    def __init__(self, path: Path, *, max_bytes: float = math.inf) -> None:
        """Write to the file at `path`, which is created with the first letter.

        Letters that come when it has `max_bytes` are dropped, which is logged.
        """
        self.path = path
        self.max_bytes = max_bytes
        self._file = AppendFile(path, mode=MODE)

    async def write(self, letters: Sequence[DeadLetter]) -> None:
        """Append the letters and wait until they are on disk; see ``DeadLetterSink.write``."""
        now = time.time_ns()
        text = b"".join(
            dead_letters.encode(
                letter.original,
                letter.reason,
                time=now,
                origin=letter.origin,
                line=letter.line,
                offset=letter.offset,
            )
            for letter in letters
        )
        try:
            await asyncio.to_thread(self._append, text)
        except OSError as error:
            raise UnavailableError(f"{self.path}: {error.strerror}") from None

    def _append(self, text: bytes) -> None:
        try:
            self._file.open()
            found = self.path.stat()
            if found.st_mode & 0o077:  # made by an earlier version
                self.path.chmod(MODE)
            if found.st_size < self.max_bytes:
                self._file.append(text)
            else:
                log.warning(
                    "%s is full (%d bytes): dead letters are dropped", self.path, found.st_size
                )
        finally:
            self._file.close()
