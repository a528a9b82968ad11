"""A file that must contain complete rows only: JSON lines and CSV."""

import logging
import os
from pathlib import Path

from ccpipe.sinks.append_file import AppendFile

log = logging.getLogger(__name__)

_PIECE = 2**20


class RowFile(AppendFile):
    """Removes a row torn by a crash, as readers of JSON and CSV stop at an invalid row."""

    def __init__(self, path: Path, *, quote: bytes = b"") -> None:
        """Append to the file at `path`; a line end between two `quote` bytes is part of a row."""
        super().__init__(path)
        self.quote = quote
        self._checked = -1  # inode of the file that was checked

    def mend(self, file: int) -> None:
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
            while piece := reader.readline(_PIECE):
                place += len(piece)
                quotes += piece.count(self.quote) if self.quote else 0
                if piece.endswith(b"\n") and quotes % 2 == 0:
                    size = place
        return size
