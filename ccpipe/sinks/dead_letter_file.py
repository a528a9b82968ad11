"""Dead letters in a file, for use without a broker."""

import asyncio
import logging
import math
import time
from collections.abc import Sequence
from pathlib import Path

from ccpipe.formats import dead_letters
from ccpipe.pipeline import DeadLetter, DeadLetterSink
from ccpipe.sinks.disk import AppendFile, disk_errors

log = logging.getLogger(__name__)

MODE = 0o600
"""Readable by the owner only: dead letters contain arbitrary input, such as job commands."""
NODE_BYTES = 64 * 2**20
"""Maximum size of the file on a node, which otherwise could fill the disk."""


class DeadLetterFile(DeadLetterSink):
    """Appends the original bytes of each dead letter, after a comment that describes it.

    The file is line protocol; ``ccpipe dead-letters`` lists, shows and replays its dead letters.
    Several processes may append to it.
    """

    def __init__(self, path: Path, *, max_bytes: float = math.inf) -> None:
        """Write to the file at `path`, which is created with the first dead letter.

        Once it has reached `max_bytes`, dead letters are dropped, which is logged.
        """
        self.path = path
        self.max_bytes = max_bytes
        self._file = AppendFile(path, mode=MODE)

    async def write(self, letters: Sequence[DeadLetter]) -> None:
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
        with disk_errors(self.path):
            await asyncio.to_thread(self._append, text)

    def _append(self, text: bytes) -> None:
        try:
            self._file.open()
            found = self.path.stat()
            if found.st_mode & 0o077:  # created by an earlier version
                self.path.chmod(MODE)
            if found.st_size < self.max_bytes:
                self._file.append(text)
            else:
                log.warning(
                    "%s is full (%d bytes): dead letters are dropped", self.path, found.st_size
                )
        finally:
            self._file.close()
