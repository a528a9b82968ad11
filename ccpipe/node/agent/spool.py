"""The spool: messages that the broker could not accept, on disk, in order and within bounds.

Every append makes a file, or several where metrics and events alternate. A file's name has its
number and what was written to it: ``000000000012-3-1500.metrics`` is the twelfth, with 3 messages
of 1500 lines. If the content is damaged, the name still gives the number of lost lines. A file is
removed once its messages are published, which needs no disk space. It consists of frames, each a
message with a checksum: after a damaged frame, reading continues at the next one.

Beyond the spool's size or age metrics are dropped, the oldest first; events never are. Dropped and
lost messages are counted. A message keeps its id, so that the broker detects duplicates.
"""

import contextlib
import fcntl
import itertools
import logging
import math
import os
import re
import struct
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path

import msgspec
import xxhash

from ccpipe.bus.nats.publisher import Outgoing
from ccpipe.errors import UnavailableError
from ccpipe.sinks.disk import make_directory

log = logging.getLogger(__name__)

BLOCK = 4096  # disk space is allocated in blocks of this many bytes
RETRY_SECONDS = 30.0
"""Time until reading or deleting a file is retried after an error."""
DAMAGED = "damaged"  # name of the latest damaged file, kept for inspection

_NAME = re.compile(r"([0-9]{12,18})-([1-9][0-9]{0,5})-([0-9]{1,12})\.(metrics|events)")


@dataclass(frozen=True, slots=True)
class Dropped:
    """Messages that will not be published, and their lines."""

    messages: int = 0
    lines: int = 0

    def __add__(self, other: "Dropped") -> "Dropped":
        return Dropped(self.messages + other.messages, self.lines + other.lines)

    def __sub__(self, other: "Dropped") -> "Dropped":
        return Dropped(self.messages - other.messages, self.lines - other.lines)


@dataclass(slots=True, eq=False)
class SpoolFile:
    """A file of the spool; metrics and events are in different files."""

    number: int
    messages: int
    lines: int
    is_event: bool
    size: int  # the disk space that it takes, in bytes
    since: float = field(default_factory=time.monotonic)  # when it was written, or found
    done: set[int] = field(default_factory=set)
    """Indices of messages that were published, dropped or lost."""
    is_damaged: bool = False
    retry_at: float = 0.0  # monotonic time; the file is skipped until then

    @property
    def name(self) -> str:
        kind = "events" if self.is_event else "metrics"
        return f"{self.number:012}-{self.messages}-{self.lines}.{kind}"

    @property
    def left(self) -> set[int]:
        """Indices of messages that are still to be published."""
        return set(range(self.messages)) - self.done


def spool_files(directory: Path) -> Iterator[SpoolFile]:
    """Yield the files of a spool, in any order; raises OSError."""
    for entry in os.scandir(directory):
        if found := _NAME.fullmatch(entry.name):
            number, messages, lines = map(int, found.groups()[:3])
            size = _allocated(entry.stat().st_size)
            yield SpoolFile(number, messages, lines, found[4] == "events", size)


@dataclass(frozen=True, slots=True)
class Spooled:
    """A message in the spool."""

    file: SpoolFile
    index: int
    message: Outgoing


class Spool:
    """Messages in a directory; methods block, and may be called from any thread."""

    def __init__(self, path: Path, *, size: int, age: float) -> None:
        """Take at most `size` bytes of disk space, and keep metrics for at most `age` seconds.

        Age is measured by the monotonic clock, so that no jump of the wall clock drops anything;
        messages of an earlier process count from when they are found.
        """
        self.path = path
        self.size = size
        self.age = age
        self.messages = 0
        self.bytes = 0  # the disk space that they take, in bytes
        self.dropped = Dropped()  # metrics that were dropped since the start
        self.lost = Dropped()  # messages lost in damaged files since the start
        self._files: list[SpoolFile] = []  # oldest first
        self._next = 1
        self._directory: int | None = None  # locked as long as it is open
        self._is_open = False
        self._busy = threading.Lock()

    def open(self) -> None:
        """Make the directory and find its files; if it cannot be used, ``append`` tries again."""
        with self._locked():
            self._is_open = True
            self._attach()

    def close(self) -> None:
        with self._busy:
            self._is_open = False
            self._detach()

    @property
    def is_waiting(self) -> bool:
        now = time.monotonic()
        return any(file.retry_at <= now for file in tuple(self._files))

    def append(self, messages: Sequence[tuple[Outgoing, bool]]) -> None:
        """Add messages, each with whether it is an event, durably and atomically."""
        with self._locked():
            self._attach()
            assert self._directory is not None
            begin = len(self._files)
            try:
                for is_event, group in itertools.groupby(messages, key=itemgetter(1)):
                    self._create([message for message, _ in group], is_event)
                os.fsync(self._directory)
            except (OSError, UnavailableError):
                for file in self._files[begin:]:
                    self._finish(file, file.left)
                raise
            for file in [file for file in self._files if not file.is_event]:
                if self.bytes > self.size:
                    self._drop(file)

    def oldest(self, count: int) -> list[Spooled]:
        """Return the oldest messages, at most `count`.

        Messages lost in a damaged file are logged and counted. A file that cannot be read is
        retried later.
        """
        found: list[Spooled] = []
        now = time.monotonic()
        with self._busy:
            for file in [file for file in self._files if file.retry_at <= now]:
                if file.left:
                    found += self._read(file)
                else:
                    self._delete(file)  # an earlier attempt failed
                if len(found) >= count:
                    break
        return found[:count]

    def remove(self, spooled: Sequence[Spooled]) -> None:
        with self._busy:
            for each in spooled:
                self._finish(each.file, {each.index})

    def defer(self, spooled: Sequence[Spooled]) -> None:
        for each in spooled:
            each.file.retry_at = time.monotonic() + RETRY_SECONDS

    def drop_old(self) -> None:
        before = time.monotonic() - self.age
        with self._busy:
            for file in [file for file in self._files if not file.is_event]:
                if file.since < before:
                    self._drop(file)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        with self._busy:
            try:
                yield
            except OSError as error:
                raise UnavailableError(f"spool: {self.path}: {error.strerror}") from None

    def _attach(self) -> None:
        """Lock the directory and find its files, again if another disk was mounted there."""
        if not self._is_open:
            raise UnavailableError(f"spool: {self.path} is closed")
        if self._directory is None:
            make_directory(self.path)
        elif self._is_attached():
            return
        self._detach()
        self._directory = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(self._directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._detach()
            raise UnavailableError(f"spool: {self.path}: another process uses it") from None
        except OSError:
            pass  # a file system without locks
        known = {file.name for file in self._files}
        for file in spool_files(self.path):
            if file.name not in known:
                self._add(file)
        self._files.sort(key=lambda file: file.number)

    def _is_attached(self) -> bool:
        assert self._directory is not None
        return os.path.samestat(self.path.stat(), os.fstat(self._directory))

    def _detach(self) -> None:
        if self._directory is not None:
            os.close(self._directory)
            self._directory = None

    def _add(self, file: SpoolFile) -> None:
        self._files.append(file)
        self._next = max(self._next, file.number + 1)
        self.messages += file.messages
        self.bytes += file.size

    def _create(self, messages: Sequence[Outgoing], is_event: bool) -> None:
        number = self._next
        self._next += 1
        content = encode_frames(number, messages)
        lines = sum(map(_lines, messages))
        file = SpoolFile(number, len(messages), lines, is_event, _allocated(len(content)))
        events = sum(each.size for each in self._files if each.is_event)
        if is_event and events + file.size > self.size:
            raise UnavailableError(f"spool: {self.path}: full of events ({self.size} bytes)")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with os.fdopen(os.open(self.path / file.name, flags, 0o600), "wb") as opened:
            self._add(file)
            opened.write(content)
            opened.flush()
            os.fsync(opened.fileno())

    def _read(self, file: SpoolFile) -> list[Spooled]:
        content, reason = b"", "was deleted by another program"
        try:
            with (self.path / file.name).open("rb") as opened:
                content = opened.read(file.size)
                reason = f"is damaged or was not written completely, and kept as {DAMAGED}"
        except OSError as error:
            if not self._is_deleted(error):
                self._retry(file, "read", error)
                return []
        found = dict(decode_frames(file.number, content))
        if lost := file.left - found.keys():
            lines = max(len(lost), file.lines - sum(map(_lines, found.values())))
            log.error(
                "the spool's file %s %s: %d of its %d messages are lost, %d lines",
                self.path / file.name, reason, len(lost), file.messages, lines,
            )  # fmt: skip
            self.lost += Dropped(len(lost), lines)
            file.is_damaged = True
        left = file.left & found.keys()
        self._finish(file, lost)
        return [Spooled(file, index, found[index]) for index in sorted(left)]

    def _is_deleted(self, error: OSError) -> bool:
        with contextlib.suppress(OSError):
            return isinstance(error, FileNotFoundError) and self._is_attached()
        return False

    def _retry(self, file: SpoolFile, attempt: str, error: OSError) -> None:
        file.retry_at = time.monotonic() + RETRY_SECONDS
        path = self.path / file.name
        log.warning("spool: %s cannot be %s now: %s", path, attempt, error.strerror)

    def _drop(self, file: SpoolFile) -> None:
        left = len(file.left)
        self.dropped += Dropped(left, math.ceil(file.lines * left / file.messages))
        self._finish(file, file.left)

    def _finish(self, file: SpoolFile, indices: set[int]) -> None:
        """Note that messages are published, dropped or lost; delete a file with nothing left."""
        new = indices & file.left
        file.done |= new
        self.messages -= len(new)
        if new and not file.left:
            self._delete(file)

    def _delete(self, file: SpoolFile) -> None:
        path = self.path / file.name
        try:
            if file.is_damaged:
                path.replace(self.path / DAMAGED)
            else:
                path.unlink()
        except FileNotFoundError:
            pass
        except OSError as error:
            self._retry(file, "deleted", error)
            return
        self._files.remove(file)
        self.bytes -= file.size


def _allocated(size: int) -> int:
    return math.ceil(size / BLOCK) * BLOCK


def _lines(message: Outgoing) -> int:
    return message.payload.count(b"\n") or 1


MAGIC = b"\xffccp"
"""Starts a frame. No payload contains it, since its first byte does not occur in UTF-8."""

_HEADER = struct.Struct("<4sQII")  # MAGIC, checksum, index of the message, size of the body
_decode = msgspec.msgpack.Decoder(tuple[str, bytes, str, dict[str, str]]).decode


def encode_frames(number: int, messages: Sequence[Outgoing]) -> bytes:
    parts: list[bytes] = []
    for index, (subject, payload, id_, headers) in enumerate(messages):
        body = msgspec.msgpack.encode((subject, payload, id_, dict(headers)))
        parts += [_HEADER.pack(MAGIC, _checksum(number, index, body), index, len(body)), body]
    return b"".join(parts)


def decode_frames(number: int, content: bytes) -> Iterator[tuple[int, Outgoing]]:
    """Yield the messages whose frames are undamaged, with their indices."""
    view = memoryview(content)
    begin = content.find(MAGIC)
    while 0 <= begin <= len(content) - _HEADER.size:
        _, checksum, index, size = _HEADER.unpack_from(content, begin)
        end = begin + 1
        body = view[begin + _HEADER.size :][:size]
        if len(body) == size and _checksum(number, index, body) == checksum:
            try:
                message = Outgoing(*_decode(body))
            except (msgspec.DecodeError, UnicodeDecodeError):
                pass
            else:
                yield index, message
                end = begin + _HEADER.size + size
        begin = content.find(MAGIC, end)


def _checksum(number: int, index: int, body: bytes | memoryview) -> int:
    """Return the checksum of a body at its position: a block of another file does not match."""
    return xxhash.xxh3_64_intdigest(body, seed=(number << 32 | index) % 2**64)


def move_database(path: Path, spool: Spool) -> None:
    """Move the messages of a spool in SQLite, as publishers had it first, to an open spool.

    Raises UnavailableError if the file cannot be read, or the messages cannot be stored; they then
    stay in the file.
    """
    if not path.is_file():
        return
    import sqlite3

    try:
        with contextlib.closing(sqlite3.connect(path)) as file:
            rows = file.execute(
                "SELECT subject, payload, id, is_event FROM message ORDER BY number"
            )
            while batch := rows.fetchmany(100):
                spool.append([(Outgoing(*row[:3]), bool(row[3])) for row in batch])
        path.unlink()
    except (sqlite3.Error, OSError) as error:
        raise UnavailableError(f"spool: {path}: {error}") from None
    log.info("moved the messages of %s to the spool %s", path, spool.path)
