"""What can still be read of a damaged spool.

SQLite finds pages that are not its own, but no changed bytes within a message. A message's id is
the hash of its subject and payload: only those that it still fits are read.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ccpipe.bus.nats.outgoing import Outgoing

if TYPE_CHECKING:
    import sqlite3

MAX_NUMBERS = 1_000_000
"""How many messages are looked for, the latest: a spool of the default size has fewer."""

Row = tuple[Any, ...]
"""Number, time, whether it is an event, size, id, subject and payload."""


def is_damage(error: "sqlite3.Error") -> bool:
    """Say whether an error means that the file does not hold what was written."""
    import sqlite3

    if isinstance(error, sqlite3.OperationalError):  # a full disk, a lock, no UTF-8
        return "decode to UTF-8" in str(error)
    return isinstance(error, sqlite3.DatabaseError)


def is_whole(message: Outgoing) -> bool:
    """Say whether a message still fits its id."""
    return Outgoing.of(message.subject, message.payload).id == message.id


def set_aside(path: Path) -> Path:
    """Rename the file and its log, over those of an earlier damage; return its new path."""
    aside = path.with_name(f"{path.name}.damaged")
    for suffix in ("", "-wal"):
        new = aside.with_name(aside.name + suffix)
        new.unlink(missing_ok=True)
        with contextlib.suppress(FileNotFoundError):
            path.with_name(path.name + suffix).rename(new)
    path.with_name(f"{path.name}-shm").unlink(missing_ok=True)
    return aside


def read_damaged(path: Path) -> Iterator[Row | None]:
    """Yield the messages of a damaged file in their order; None for each number without one."""
    import sqlite3

    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as file:
        with contextlib.suppress(sqlite3.Error):
            file.execute("PRAGMA locking_mode = EXCLUSIVE")
        last = _number(file, "SELECT seq FROM sqlite_sequence WHERE name = 'message'")
        first = _number(file, "SELECT min(number) FROM message")
        for number in range(max(first, last - MAX_NUMBERS + 1, 1), last + 1):
            try:
                row: Row | None = file.execute(
                    "SELECT number, time, is_event, size, id, subject, payload FROM message "
                    "WHERE number = ?",
                    (number,),
                ).fetchone()
            except sqlite3.Error:
                row = None
            yield row if row is not None and _is_message(row) else None


def _number(file: "sqlite3.Connection", query: str) -> int:
    import sqlite3

    try:
        ((number,),) = file.execute(query)
    except (sqlite3.Error, ValueError):
        return 0
    return number if isinstance(number, int) else 0


def _is_message(row: Row) -> bool:
    *numbers, id_, subject, payload = row
    return (
        all(isinstance(each, int) for each in numbers)
        and isinstance(subject, str)
        and isinstance(payload, bytes)
        and is_whole(Outgoing(subject, payload, id_))
    )
