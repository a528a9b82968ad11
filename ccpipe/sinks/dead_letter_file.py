"""Dead letters in a file, where there is no broker."""

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path

from ccpipe.errors import UnavailableError
from ccpipe.formats import dead_letters
from ccpipe.pipeline import DeadLetter, DeadLetterSink
from ccpipe.sinks.append_file import AppendFile

MODE = 0o600
"""Only the owner reads the file: letters hold whatever was sent, commands of jobs for example."""


class DeadLetterFile(DeadLetterSink):
    """Appends each letter as a comment that describes it and the original bytes.

    The file is line protocol; ``ccpipe dead`` lists, shows and replays what it holds. Several
    processes may append to it.
    """

    def __init__(self, path: Path) -> None:
        """Write to the file at `path`, which is created with the first letter."""
        self.path = path
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
            if self.path.stat().st_mode & 0o077:  # made by an earlier version
                self.path.chmod(MODE)
            self._file.append(text)
        finally:
            self._file.close()
