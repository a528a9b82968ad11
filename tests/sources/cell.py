"""A directory in which a file grows and is rotated."""

import gzip
import os
import shutil
from pathlib import Path

HEADER = b"# Version: 8.1.9\n# \n"


class Cell:
    """A directory in which a qmaster writes and a cron job rotates."""

    def __init__(self, directory: Path, *, header: bytes = HEADER) -> None:
        self.directory = directory
        self.path = directory / "accounting"
        self.header = header
        self.written: list[bytes] = []
        self.partial = b""
        self.rotations = 0

    def append(self, count: int = 1, *, size: int = 0) -> None:
        for _ in range(count):
            line = b"%d:%s" % (len(self.written), b"x" * size)
            self._write(line[len(self.partial) :] + b"\n")
            self.partial = b""
            self.written.append(line)

    def append_half(self) -> None:
        if not self.partial:
            self.partial = b"%d" % len(self.written)
            self._write(self.partial)

    def _write(self, text: bytes) -> None:
        empty = not self.path.exists() or not self.path.stat().st_size
        with self.path.open("ab") as file:
            file.write(self.header * empty + text)

    def rotate(self, how: str) -> None:
        if self.partial or not self.path.exists():
            return
        self.rotations += 1
        if how == "date":
            self.path.rename(self.directory / f"accounting-202611{self.rotations:04}")
            return
        for old in sorted(self.directory.glob("accounting.*"), key=self._number, reverse=True):
            packed = ".gz" * (old.suffix == ".gz")
            old.rename(self.directory / f"accounting.{self._number(old) + 1}{packed}")
        newest = self.directory / "accounting.0"
        if how == "copytruncate":
            shutil.copyfile(self.path, newest)
            os.truncate(self.path, 0)
            return
        self.path.rename(newest)
        if how == "gzip":
            self.pack(newest)

    def pack(self, path: Path) -> None:
        packed = path.with_name(f"{path.name}.gz")
        with path.open("rb") as source, gzip.open(packed, "wb") as target:
            shutil.copyfileobj(source, target)
        shutil.copystat(path, packed)
        path.unlink()

    @staticmethod
    def _number(path: Path) -> int:
        return int(path.name.split(".")[1])


ROTATIONS = ["rename", "gzip", "copytruncate", "date"]
