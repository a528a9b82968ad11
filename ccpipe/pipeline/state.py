"""What a translator must not forget when its process is killed: mappings in a SQLite file.

They live in memory. ``commit()`` writes what has changed since, as one transaction; what was not
committed never was. Without a path nothing is written, and the mappings work all the same.
"""

import contextlib
import sqlite3
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec

from ccpipe.errors import ConfigError, UnavailableError

K = TypeVar("K")
V = TypeVar("V")

VERSION = 1
"""Of what the file holds; another one is refused."""


class StateTable(Generic[K, V]):
    """One mapping, in the order in which its keys were last put, and no longer than `most`."""

    def __init__(self, maximum: int, *, is_persistent: bool) -> None:
        """Begin empty; `is_kept` where changes are to be written."""
        self.maximum = maximum
        self._held: OrderedDict[K, V] = OrderedDict()
        self._is_kept = is_persistent
        self._changed: dict[K, None] = {}

    def __len__(self) -> int:
        """Count the keys."""
        return len(self._held)

    def __contains__(self, key: object) -> bool:
        """Say whether there is such a key."""
        return key in self._held

    def __iter__(self) -> Iterator[K]:
        """Yield the keys, that of the longest ago first."""
        return iter(self._held)

    def get(self, key: K) -> V | None:
        """Return the value of a key; None where there is none."""
        return self._held.get(key)

    def items(self) -> Iterator[tuple[K, V]]:
        """Yield keys and values, those of the longest ago first."""
        return iter(self._held.items())

    def put(self, key: K, value: V) -> None:
        """Set a key's value, and forget those of the longest ago where there are too many."""
        self._held[key] = value
        self._held.move_to_end(key)
        self._note(key)
        while len(self._held) > self.maximum:
            self.pop(next(iter(self._held)))

    def pop(self, key: K) -> V | None:
        """Forget a key and return its value; None where there is none."""
        if key not in self._held:
            return None
        self._note(key)
        return self._held.pop(key)

    def _note(self, key: K) -> None:
        if self._is_kept:
            self._changed.pop(key, None)  # its place is behind those that changed before
            self._changed[key] = None

    def take_changes(self) -> Iterator[tuple[K, V | None]]:
        """Yield keys that changed, in order, with their values; None where one is gone."""
        for key in self._changed:
            yield key, self._held.get(key)
        self._changed.clear()

    def load(self, rows: Iterator[tuple[K, V]]) -> None:
        """Take what was kept."""
        self._held.update(rows)


class StateStore:
    """The shelves of one file. Only one process at a time may use it; keep it on a local disk."""

    def __init__(self, path: str = "") -> None:
        """Keep nothing where there is no path. The file is opened with ``open()``."""
        self.path = Path(path) if path else None
        self._tables: dict[str, _Kept] = {}
        self._file: sqlite3.Connection | None = None

    @property
    def is_persistent(self) -> bool:
        """Whether there is a file."""
        return self.path is not None

    def table(
        self,
        name: str,
        key: type[K],
        value: type[V],
        *,
        maximum: int,
        encode: Callable[[V], bytes] = msgspec.msgpack.encode,
        decode: Callable[[bytes], V] | None = None,
    ) -> StateTable[K, V]:
        """Make a shelf, before the file is opened.

        Parameters
        ----------
        name
            What it is called in the file.
        key, value
            Their types, as msgspec knows them. No value may be None.
        most
            Keys that are held at most.
        encode, decode
            How a value is written, where msgspec alone does not do.

        """
        table: StateTable[K, V] = StateTable(maximum, is_persistent=self.is_persistent)
        reader = decode or msgspec.msgpack.Decoder(value).decode
        self._tables[name] = _Kept(table, msgspec.json.Decoder(key).decode, encode, reader)
        return table

    def open(self) -> None:
        """Read what was kept.

        Raises
        ------
        ConfigError
            where the file cannot be used, holds something else, or another process uses it.

        """
        if self.path is None or self._file is not None:
            return
        try:
            self._file = self._connect(self.path)
            for name, kept in self._tables.items():
                rows = self._file.execute(
                    "SELECT key, value FROM kept WHERE shelf = ? ORDER BY rowid", (name,)
                )
                kept.table.load((kept.key(key), kept.decode(value)) for key, value in rows)
        except (sqlite3.Error, msgspec.MsgspecError, UnicodeError) as error:
            raise ConfigError(f"state: {self.path}: {error}") from None

    def _connect(self, path: Path) -> sqlite3.Connection:
        file = sqlite3.connect(path, isolation_level=None, timeout=0)
        weakref.finalize(self, file.close)
        try:
            file.execute("PRAGMA locking_mode = EXCLUSIVE")
            file.execute("PRAGMA journal_mode = WAL")
            ((version,),) = file.execute("PRAGMA user_version")
            if version not in (0, VERSION):
                raise ConfigError(f"state: {path} is of version {version}, not {VERSION}")
            file.execute(
                "CREATE TABLE IF NOT EXISTS kept "
                "(shelf TEXT, key BLOB, value BLOB, UNIQUE (shelf, key))"
            )
            file.execute(f"PRAGMA user_version = {VERSION}")
        except sqlite3.OperationalError as error:
            if "locked" in str(error):
                raise ConfigError(f"state: another process uses {path}") from None
            raise
        return file

    def commit(self, *, is_durable: bool) -> None:
        """Write what has changed.

        Where it need not be durable, it outlives the process, but perhaps not the machine: it
        does once a later change is.

        Raises
        ------
        UnavailableError
            where the disk does not take it.

        """
        if self._file is None:
            return
        try:
            self._file.execute(f"PRAGMA synchronous = {'FULL' if is_durable else 'NORMAL'}")
            self._file.execute("BEGIN IMMEDIATE")
            for name, kept in self._tables.items():
                changes = [(kept.row(name, key, value)) for key, value in kept.table.take_changes()]
                self._file.executemany(
                    "DELETE FROM kept WHERE shelf = ? AND key = ?",
                    [row[:2] for row in changes],
                )
                self._file.executemany(
                    "INSERT INTO kept VALUES (?, ?, ?)",
                    [row for row in changes if row[2] is not None],
                )
            self._file.execute("COMMIT")
        except sqlite3.Error as error:
            with contextlib.suppress(sqlite3.Error):
                self._file.execute("ROLLBACK")
            raise UnavailableError(f"state: {self.path}: {error}") from None


class _Kept(msgspec.Struct, frozen=True):
    """A shelf, and how its keys and values are written."""

    table: StateTable[Any, Any]
    key: Callable[[bytes], Any]
    encode: Callable[[Any], bytes]
    decode: Callable[[bytes], Any]

    def row(self, name: str, key: Any, value: Any) -> tuple[str, bytes, bytes | None]:
        return name, msgspec.json.encode(key), None if value is None else self.encode(value)
