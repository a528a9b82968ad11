"""When a file is rotated, how closed files are named, and which are kept."""

import gzip
import os
import re
import shutil
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from ccpipe.sinks.disk import sync_folder

STAMP = "%Y%m%dT%H%M%SZ"
_BLOCK = 2**20


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
    """The files beside the one that is written: ``<stem>-<time of the last write><suffix>``."""

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
        """Rename the file to that of a closed one, durably; raises OSError."""
        stamp = f"{datetime.fromtimestamp(file.st_mtime, UTC):{STAMP}}"
        same = [closed.number for closed in self.closed() if closed.stamp == stamp]
        number = f"_{max(same) + 1:03}" if same else ""
        name = f"{self.path.stem}-{stamp}{number}{self.path.suffix}"
        self.path.rename(self.path.with_name(name))
        sync_folder(self.path.parent)

    def closed(self) -> list[Closed]:
        """Return the closed files, the oldest first; raises OSError.

        While a file is compressed, and after a kill in that time, its compressed copy lies beside
        it: the two are one file, given uncompressed.
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
            sync_folder(path.parent)
            path.unlink()
    finally:
        draft.unlink(missing_ok=True)
