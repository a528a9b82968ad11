"""Follows one growing file through all kinds of rotation by polling, without inotify.

A file is recognized by its inode, and by a hash of its beginning after it was compressed, copied or
restored. Its id is a hash of its first record and survives all of that. Rotated files (renamed,
compressed, dated or copied) are found by name in the same directory; unread ones are read, oldest
first.
"""

import hashlib
import logging
import os
import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

import msgspec

from ccpipe.formats.files import COMPRESSED, UNREADABLE, ReadableStream, open_file, read_full

log = logging.getLogger(__name__)

HEAD = 4096
"""Bytes at the start of a file that are hashed."""
MAX_LINE_SIZE = 16 * 2**20
"""Maximum line length in bytes; a longer one is returned in pieces."""


class FilePosition(msgspec.Struct, frozen=True):
    """Position in one file."""

    file: str
    """Id of the file; empty if it was never read."""
    device: int
    inode: int
    head_size: int
    """Size of the beginning hashed in `head`; less than ``HEAD`` if the file is short."""
    head: str
    offset: int = 0
    """Bytes read, after decompression."""
    line: int = 1
    """Number of the next line."""


class FileProgress(msgspec.Struct, frozen=True):
    """How far a path was read: the content of a checkpoint."""

    position: FilePosition | None = None
    """The file being read; None before the first one and between two."""
    done: tuple[FilePosition, ...] = ()
    """Rotated files that were read, as long as they exist."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Whole lines of a file; only the last one of a rotated file may lack its line end."""

    payload: bytes
    file: str
    offset: int
    line: int
    progress: FileProgress
    """Progress to commit once this chunk is stored."""


class MovedError(Exception):
    """Files were renamed during the scan: scan again later."""


@dataclass(frozen=True, slots=True)
class _File:
    """A file on disk."""

    path: Path
    status: os.stat_result
    head: bytes
    """Its beginning, decompressed: up to ``HEAD`` + 1 bytes."""

    @property
    def is_compressed(self) -> bool:
        return self.path.suffix in COMPRESSED

    def has_inode(self, position: FilePosition) -> bool:
        return (self.status.st_dev, self.status.st_ino) == (position.device, position.inode)

    def begins_like(self, position: FilePosition) -> bool:
        head = self.head[: position.head_size]
        return len(head) == position.head_size and _hash(head) == position.head

    def is_any_of(self, done: Iterable[FilePosition]) -> bool:
        """Return whether it is one of the files already read, under any name."""
        return any(
            self.begins_like(position)
            and (
                self.has_inode(position) or position.head_size == HEAD or self._is_as_long(position)
            )
            for position in done
        )

    def _is_as_long(self, position: FilePosition) -> bool:
        return len(self.head) == position.head_size

    def position(self, file: str = "") -> FilePosition:
        head = self.head[:HEAD]
        return FilePosition(file, self.status.st_dev, self.status.st_ino, len(head), _hash(head))


class Follower:
    """Reads one path; each ``step`` continues after the last one. It blocks: use a thread."""

    def __init__(
        self, path: Path, progress: FileProgress, *, grace: float, block: int = 2**18
    ) -> None:
        """Continue from a checkpoint.

        A rotated file is left after `grace` seconds without a write, because a writer may still
        have it open; a vanished one is looked for as long. `block` is how many bytes are read at
        once.
        """
        self.path = path
        self.progress = progress
        self.grace = grace
        self.block = block
        self._handle: BinaryIO | None = None
        self._is_compressed = False
        self._missing_since: float | None = None
        self._is_sibling = _siblings_of(path.name)
        self._last_read = time.monotonic()
        self._heads: dict[tuple[int, int, int, int], bytes] = {}

    def step(self) -> Chunk | None:
        """Return the next lines, or None."""
        try:
            while self._handle is not None or self._open():
                if chunk := self._read():
                    self._missing_since = None
                    self._last_read = time.monotonic()
                    return chunk
                if self._handle is not None and not self._may_leave():
                    return None
                if self._handle is not None:  # otherwise it was truncated: look for its copy
                    if chunk := self._read(rest=True):
                        return chunk
                    self._finish()
        except (MovedError, FileNotFoundError):
            pass
        except UNREADABLE as error:
            self.close()
            self._give_up_after_grace(f"cannot be read: {error}")
        return None

    def skip_rotated(self) -> None:
        """Mark the rotated files that exist now as read."""
        done = tuple(file.position() for file in self._scan())
        self.progress = msgspec.structs.replace(self.progress, done=done)

    def skip_all(self) -> None:
        """Mark the rotated files and the current content as read."""
        self.skip_rotated()
        if self._open():
            while self._read():
                pass

    def close(self) -> None:
        if self._handle is not None:
            self._handle.close()
            self._handle = None

    # Reading

    def _read(self, *, rest: bool = False) -> Chunk | None:
        """Return whole lines; with `rest` also a last one without a line end."""
        position, handle = self._at()
        handle.seek(position.offset)
        stream = cast("ReadableStream", handle)
        payload = read_full(stream, self.block)  # also data before a damaged part
        while payload and b"\n" not in payload and len(payload) < MAX_LINE_SIZE:
            if not (more := read_full(stream, self.block)):
                break
            payload += more
        end = payload.rfind(b"\n") + 1
        if not end and (rest or len(payload) >= MAX_LINE_SIZE):
            end = len(payload)
        if not end:
            return None
        if not self._is_same():  # truncated and rewritten beyond our position
            self.close()
            return None
        return self._advance(payload[:end])

    def _advance(self, payload: bytes) -> Chunk:
        before, handle = self._at()
        after = msgspec.structs.replace(
            before, offset=before.offset + len(payload), line=before.line + payload.count(b"\n")
        )
        if before.head_size < (size := min(HEAD, after.offset)):
            handle.seek(0)
            head = handle.read(size)
            after = msgspec.structs.replace(after, head_size=len(head), head=_hash(head))
        self.progress = msgspec.structs.replace(self.progress, position=after)
        return Chunk(payload, before.file, before.offset, before.line, self.progress)

    def _is_same(self) -> bool:
        """Return whether the open file still begins as before; a compressed one cannot change."""
        position, handle = self._at()
        if self._is_compressed:
            return True
        handle.seek(0)
        return _hash(handle.read(position.head_size)) == position.head

    def _at(self) -> tuple[FilePosition, BinaryIO]:
        assert self.progress.position is not None
        assert self._handle is not None
        return self.progress.position, self._handle

    # Leaving a file

    def _may_leave(self) -> bool:
        """Return whether the open file, read to its end, is rotated and quiet.

        If it was truncated instead, it is closed: its old content is looked for in a copy.
        """
        position, handle = self._at()
        if self._is_compressed:
            return True
        status = os.fstat(handle.fileno())
        try:
            current = self.path.stat()
        except FileNotFoundError:
            current = None
        is_current = current and (current.st_dev, current.st_ino) == (status.st_dev, status.st_ino)
        is_shorter = is_current and status.st_size < position.offset
        if is_shorter or not self._is_same():
            self.close()
            return True
        if is_current:
            return False
        quiet = max(time.time() - status.st_mtime, time.monotonic() - self._last_read)
        return quiet >= self.grace

    def _finish(self) -> None:
        """Mark the file as read, forget deleted ones, and continue with the next."""
        self.close()
        self._missing_since = None
        if (position := self.progress.position) is None:
            return
        there = self._scan()
        done = [old for old in self.progress.done if any(f.is_any_of([old]) for f in there)]
        self.progress = FileProgress(None, (*done, position))

    def _give_up_after_grace(self, why: str) -> None:
        """Continue without the file if it was not found within the grace period."""
        now = time.monotonic()
        self._missing_since = self._missing_since or now
        position = self.progress.position
        if now - self._missing_since < self.grace:
            return
        self._missing_since = None
        if position is not None:
            log.error(
                "%s: the file read up to byte %d was deleted or %s: the rest of it is lost",
                self.path, position.offset, why,
            )  # fmt: skip
            self.progress = FileProgress(None, (*self.progress.done, position))

    # Finding files

    def _open(self) -> bool:
        """Open the file at our position, or the oldest one that was never read."""
        if self.progress.position is not None:
            file = self._find(self.progress.position)
            if file is None:
                self._give_up_after_grace("cannot be found")
                return False
        else:
            file = self._next()
            if file is None:
                return False
        self._handle, self._is_compressed = open_file(file.path), file.is_compressed
        return self._starts(file)

    def _starts(self, file: _File) -> bool:
        """Check that the opened file is the one that was found; give a new file its id."""
        assert self._handle is not None
        head = self._handle.read(HEAD + 1)
        if not head.startswith(file.head):  # another file has its name now
            self.close()
            return False
        self._last_read = time.monotonic()
        if self.progress.position is None:
            self._handle.seek(0)
            record = _first_record(self._handle.read(_RECORD), _RECORD)
            if not record:  # it is incomplete
                self.close()
                return False
            ids = {position.file for position in self.progress.done}
            name = _hash(record)
            repeats = sum(name == known.partition("-")[0] for known in ids)
            start = file.position(f"{name}-{repeats + 1}" if repeats else name)
            self.progress = msgspec.structs.replace(self.progress, position=start)
        else:
            device, inode = file.status.st_dev, file.status.st_ino
            here = msgspec.structs.replace(self.progress.position, device=device, inode=inode)
            self.progress = msgspec.structs.replace(self.progress, position=here)
        return True

    def _find(self, position: FilePosition) -> _File | None:
        """Find the file that was being read, under any name."""
        current = self._read_head(self.path)
        fits = (
            current and current.begins_like(position) and current.status.st_size >= position.offset
        )
        if current and fits and current.has_inode(position):
            return current
        same = [f for f in self._scan() if f.begins_like(position) and not self._was_read(f)]
        same.sort(key=lambda file: (not file.has_inode(position), file.is_compressed))
        return same[0] if same else current if fits else None

    def _next(self) -> _File | None:
        """Find the oldest file that was never read, else the current one."""
        current = self._read_head(self.path)
        for file in self._scan():
            is_copy = current is not None and current.head.startswith(file.head)
            if not is_copy and not self._was_read(file) and _first_record(file.head):
                return file
        return current if current and _first_record(current.head) else None

    def _was_read(self, file: _File) -> bool:
        return file.is_any_of(self.progress.done)

    def _scan(self) -> list[_File]:
        """Return the rotated files, oldest first.

        Raises MovedError if they were renamed meanwhile, so that one may be missing.
        """
        before = self._listing()
        files = [file for name in before if (file := self._read_head(self.path.parent / name))]
        if self._listing() != before:
            raise MovedError
        return sorted(files, key=lambda file: file.status.st_mtime_ns)

    def _listing(self) -> dict[str, int]:
        try:
            with os.scandir(self.path.parent) as entries:
                return {e.name: e.inode() for e in entries if self._is_sibling(e.name)}
        except FileNotFoundError:
            return {}

    def _read_head(self, path: Path) -> _File | None:
        """Read a file's beginning; None if it is missing or cannot be decompressed (yet)."""
        try:
            with open_file(path) as handle:
                status = os.fstat(handle.fileno())
                key = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
                if key not in self._heads:
                    self._heads[key] = handle.read(HEAD + 1)
                    while len(self._heads) > _MAX_HEADS:
                        del self._heads[next(iter(self._heads))]
                return _File(path, status, self._heads[key])
        except UNREADABLE:
            return None


_MAX_HEADS = 10_000  # file beginnings kept
_RECORD = 2**20  # bytes in which a file's first record must end


def _siblings_of(name: str) -> Callable[[str], bool]:
    """Return a test for names of rotated files: a number or a date after the name.

    With a suffix such as ``.jsonl`` they may also be before it, and a file without that suffix is
    not a rotated file of a path with it, nor the other way round.
    """
    stem, ending = Path(name).stem, Path(name).suffix
    packed = f"(?:{'|'.join(map(re.escape, COMPRESSED))})?"
    patterns = [rf"{re.escape(name)}[._-][0-9][^/]*"]
    if ending:
        patterns.append(rf"{re.escape(stem)}[._-][0-9][^/]*{re.escape(ending)}{packed}")
    mine = re.compile("|".join(patterns))
    foreign = re.compile(rf".*\.jsonl{packed}") if ending != ".jsonl" else None
    return lambda other: bool(mine.fullmatch(other)) and not (foreign and foreign.fullmatch(other))


def _first_record(head: bytes, room: int = HEAD) -> bytes:
    """Return the first complete record line, or one longer than `room`; else nothing."""
    lines = head.split(b"\n")
    whole = lines[:-1] if len(head) < room else lines
    return next((line for line in whole if len(line) > 1 and not line.startswith(b"#")), b"")


def _hash(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=8).hexdigest()
