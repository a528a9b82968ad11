"""The spool: messages that the broker could not accept, in order, in a bounded SQLite file.

Metrics are dropped, the oldest first, when the file is full or they are too old; events never are.
Dropped metrics are counted. A message keeps its id, so that the broker detects one that it had
stored after all. The file exists only while it is needed: most publishers never lose their broker,
and SQLite would take a twentieth of their memory.
"""

import contextlib
import logging
import os
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ccpipe.bus.nats.outgoing import Outgoing
from ccpipe.errors import ConfigError, UnavailableError
from ccpipe.node.agent.damaged_spool import is_damage, is_whole, read_damaged, set_aside

if TYPE_CHECKING:
    import sqlite3

log = logging.getLogger(__name__)

VERSION = 1
"""Version of the file's layout."""

OVERHEAD = 200
"""Approximate overhead per message in the file, in bytes."""

_TABLE = """
CREATE TABLE IF NOT EXISTS message (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    time INTEGER NOT NULL,
    is_event INTEGER NOT NULL,
    size INTEGER NOT NULL,
    id TEXT NOT NULL,
    subject TEXT NOT NULL,
    payload BLOB NOT NULL
)
"""

_INSERT = (
    "INSERT INTO message (time, is_event, size, id, subject, payload) VALUES (?, ?, ?, ?, ?, ?)"
)
_RECOVER = (
    "INSERT INTO message (number, time, is_event, size, id, subject, payload) "
    "VALUES (?, ?, ?, ?, ?, ?, ?)"
)
"""With its number, which may be that of a message that is being published."""


@dataclass(frozen=True, slots=True)
class Spooled:
    """A message in the spool."""

    number: int
    """Its position in the order."""
    message: Outgoing

    @property
    def is_whole(self) -> bool:
        """Whether it is what was added: SQLite does not notice bytes that changed on the disk."""
        return is_whole(self.message)


@dataclass(frozen=True, slots=True)
class Dropped:
    """Metrics that were dropped."""

    messages: int = 0
    lines: int = 0

    def __add__(self, other: "Dropped") -> "Dropped":
        return Dropped(self.messages + other.messages, self.lines + other.lines)


class Spool:
    """Messages on disk; methods block, and may be called from any thread."""

    def __init__(self, path: Path, *, size: int, age: float) -> None:
        """Hold at most `size` bytes, and metrics for at most `age` seconds."""
        self.path = path
        self.size = size
        self.age = age
        self.messages = 0
        """Number of messages."""
        self.bytes = 0
        """Their approximate size, in bytes."""
        self._file: sqlite3.Connection | None = None
        self._is_open = False
        self._busy = threading.Lock()

    def open(self) -> None:
        """Open the file if it exists; ``append`` creates it.

        A damaged file is renamed and kept; messages that are still readable stay in the spool.

        Raises
        ------
        ConfigError
            if it cannot be used, or another process uses it.

        """
        folder = self.path.parent
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"spool: {self.path}: {error}") from None
        if self.path.exists():
            self._open_file()
        elif not os.access(folder, os.W_OK | os.X_OK):
            raise ConfigError(f"spool: {self.path}: the folder cannot be written")
        self._is_open = True

    def _open_file(self) -> None:
        import sqlite3

        try:
            try:
                self._connect()
            except sqlite3.Error as error:
                if not is_damage(error):
                    raise
                self._replace_damaged(error)
        except (OSError, sqlite3.Error) as error:
            self._close_file()
            reason = "another process uses it" if "locked" in str(error) else error
            raise ConfigError(f"spool: {self.path}: {reason}") from None

    def _recover(self, error: "sqlite3.Error") -> None:
        """Begin anew while open; where that fails, the next transaction tries again."""
        import sqlite3

        try:
            self._replace_damaged(error)
        except (OSError, sqlite3.Error) as failure:
            log.warning("the spool %s cannot be made again: %s", self.path, failure)
            self._close_file()

    def _replace_damaged(self, error: "sqlite3.Error") -> None:
        """Set the file aside and begin a new one with what can be read of it."""
        self._close_file()
        aside = set_aside(self.path)
        self._connect()
        assert self._file is not None
        found = lost = 0
        self._file.execute("BEGIN IMMEDIATE")
        for row in read_damaged(aside):
            if row is None:
                lost += 1
            else:
                found += 1
                self._file.execute(_RECOVER, row)
        self._file.execute("COMMIT")
        self._count()
        log.error(
            "the spool %s is damaged (%s): %d messages were recovered, %s; it is kept as %s",
            self.path, error, found,
            f"at most {lost} were lost" if found else "the others could not be read", aside,
        )  # fmt: skip

    def _connect(self) -> None:
        import sqlite3

        os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        self._file = sqlite3.connect(
            self.path, isolation_level=None, timeout=0, check_same_thread=False
        )
        self._file.execute("PRAGMA locking_mode = EXCLUSIVE")
        self._file.execute("PRAGMA auto_vacuum = INCREMENTAL")
        self._file.execute("PRAGMA journal_mode = WAL")
        self._file.execute("PRAGMA synchronous = FULL")
        self._file.execute("PRAGMA journal_size_limit = 1000000")
        ((version,),) = self._file.execute("PRAGMA user_version")
        if version not in (0, VERSION):
            raise ConfigError(f"spool: {self.path} is of version {version}, not {VERSION}")
        self._file.execute(_TABLE)
        self._file.execute(f"PRAGMA user_version = {VERSION}")
        self._count()

    def _count(self) -> None:
        assert self._file is not None
        ((self.messages, self.bytes),) = self._file.execute(
            "SELECT count(*), coalesce(sum(size), 0) FROM message"
        )

    def close(self) -> None:
        """Close the file; an empty one is removed."""
        with self._busy:
            self._is_open = False
            if self._file is not None:
                self._close_file()
                if not self.messages:
                    with contextlib.suppress(OSError):
                        self.path.unlink()

    def _close_file(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def append(self, messages: Sequence[tuple[Outgoing, bool]]) -> Dropped:
        """Add messages, each with whether it is an event, durably.

        Returns what was dropped to make room.

        Raises
        ------
        UnavailableError
            if the disk fails or is full, or events alone fill the spool: nothing was added.

        """
        now = time.time_ns()
        rows = [
            (now, event, _size(message), message.id, message.subject, message.payload)
            for message, event in messages
        ]
        with self._transaction() as file:
            file.executemany(_INSERT, rows)
            self.messages += len(rows)
            self.bytes += sum(row[2] for row in rows)
            dropped = self._drop_old(file, now) + self._drop_beyond_size(file)
            if self.bytes > self.size and any(row[1] for row in rows):
                raise UnavailableError(f"spool: {self.path}: events fill it, {self.size} bytes")
        return dropped

    def drop_old(self) -> Dropped:
        """Remove metrics that are too old; raises UnavailableError."""
        with self._transaction() as file:
            return self._drop_old(file, time.time_ns())

    def oldest(self, count: int) -> list[Spooled]:
        """Return the oldest messages, at most `count`; raises UnavailableError."""
        with self._transaction() as file:
            rows = file.execute(
                "SELECT number, subject, payload, id FROM message ORDER BY number LIMIT ?", (count,)
            )
            return [Spooled(number, Outgoing(*rest)) for number, *rest in rows]

    def remove(self, spooled: Sequence[Spooled]) -> None:
        """Remove messages that were published; raises UnavailableError."""
        with self._transaction() as file:
            self._delete(file, [each.number for each in spooled])
        if not self.messages:
            self._shrink()

    def _shrink(self) -> None:
        import sqlite3

        with self._busy, contextlib.suppress(sqlite3.Error):
            if self._file is not None:
                # execute() would free a single page only.
                self._file.executescript("PRAGMA incremental_vacuum")

    def _drop_old(self, file: "sqlite3.Connection", now: int) -> Dropped:
        before = now - int(self.age * 1e9)
        found = file.execute(
            "SELECT number, payload FROM message WHERE NOT is_event AND time < ?", (before,)
        )
        return self._drop(file, [(number, _lines(payload)) for number, payload in found])

    def _drop_beyond_size(self, file: "sqlite3.Connection") -> Dropped:
        excess = self.bytes - self.size
        if excess <= 0:
            return Dropped()
        found: list[tuple[int, int]] = []
        rows = file.execute(
            "SELECT number, payload, size FROM message WHERE NOT is_event ORDER BY number"
        )
        for number, payload, size in rows:
            if excess <= 0:
                break
            found.append((number, _lines(payload)))
            excess -= size
        rows.close()
        return self._drop(file, found)

    def _drop(self, file: "sqlite3.Connection", found: Sequence[tuple[int, int]]) -> Dropped:
        self._delete(file, [number for number, _ in found])
        return Dropped(len(found), sum(lines for _, lines in found))

    def _delete(self, file: "sqlite3.Connection", numbers: Sequence[int]) -> None:
        for number in numbers:
            rows = file.execute("DELETE FROM message WHERE number = ? RETURNING size", (number,))
            for (size,) in rows.fetchall():
                self.messages -= 1
                self.bytes -= size

    @contextlib.contextmanager
    def _transaction(self) -> "Iterator[sqlite3.Connection]":
        """Run a transaction, which is rolled back on failure."""
        import sqlite3

        with self._busy:
            if not self._is_open:
                raise UnavailableError(f"spool: {self.path} is closed")
            if self._file is None:
                try:
                    self._open_file()
                except ConfigError as error:
                    raise UnavailableError(str(error)) from None
            assert self._file is not None
            before = self.messages, self.bytes
            try:
                self._file.execute("BEGIN IMMEDIATE")
                yield self._file
                self._file.execute("COMMIT")
            except BaseException as error:
                self.messages, self.bytes = before
                with contextlib.suppress(sqlite3.Error):
                    self._file.execute("ROLLBACK")
                if isinstance(error, sqlite3.Error):
                    if is_damage(error):
                        self._recover(error)
                    raise UnavailableError(f"spool: {self.path}: {error}") from None
                raise


def _size(message: Outgoing) -> int:
    return OVERHEAD + len(message.subject) + len(message.payload) + len(message.id)


def _lines(payload: bytes) -> int:
    return payload.count(b"\n") or 1
