"""Dead letters in a file, where there is no broker."""

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path

from ccpipe.errors import UnavailableError
from ccpipe.pipeline import DeadLetter, DeadLetterSink
from ccpipe.sinks.disk import make_folder, sync_folder


class DeadLetterFile(DeadLetterSink):
    """Appends each letter as a comment with its reason and the original line.

    The file is line protocol: once corrected, it can be read by ``ccpipe convert``.
    """

    def __init__(self, path: Path) -> None:
        """Write to the file at `path`, which is created with the first letter."""
        self.path = path

    async def write(self, letters: Sequence[DeadLetter]) -> None:
        """Append the letters and wait until they are on disk; see ``DeadLetterSink.write``."""
        text = b"".join(
            b"# %b: %b\n%b\n"
            % (letter.origin.encode(), " ".join(letter.reason.split()).encode(), letter.original)
            for letter in letters
        )
        try:
            await asyncio.to_thread(self._append, text)
        except OSError as error:
            raise UnavailableError(f"{self.path}: {error.strerror}") from None

    def _append(self, text: bytes) -> None:
        make_folder(self.path.parent)
        is_new = not self.path.exists()
        with self.path.open("ab") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        if is_new:
            sync_folder(self.path.parent)
