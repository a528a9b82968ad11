"""State of translators that survives their process: tables in a SQLite file.

The tables are kept in memory. ``commit()`` writes all changes since the last one, in one
transaction. Without a path nothing is written.
"""

import contextlib
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from ccpipe.config import make_directory_of
from ccpipe.errors import ConfigError, UnavailableError

if TYPE_CHECKING:
    import sqlite3  # 2 MB that a process without a file does not need

K = TypeVar("K")
V = TypeVar("V")

VERSION = 2
"""Version of the file's layout; a file of another version is rejected."""


class StateTable(Generic[K, V]):
    """A mapping of at most `maximum` keys, ordered by when each was last put."""

    def __init__(
        self,
        maximum: int,
        *,
        is_persistent: bool,
        decode_key: Callable[[bytes], K],
        encode: Callable[[V], bytes],
        decode: Callable[[bytes], V],
    ) -> None:
        """Start empty; changes are recorded only if `is_persistent`."""
        self.maximum = maximum
        self._decode_key, self._encode, self._decode = decode_key, encode, decode
        self._rows: OrderedDict[K, V] = OrderedDict()
        self._is_persistent = is_persistent
        self._changed: dict[K, None] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, key: object) -> bool:
        return key in self._rows

    def __iter__(self) -> Iterator[K]:
        """Yield the keys, least recently put first."""
        return iter(self._rows)

    def get(self, key: K) -> V | None:
        return self._rows.get(key)

    def items(self) -> Iterator[tuple[K, V]]:
        """Yield keys and values, least recently put first."""
        return iter(self._rows.items())

    def put(self, key: K, value: V) -> None:
        """Set the value of a key; beyond the maximum, remove the keys least recently put."""
        self._rows[key] = value
        self._rows.move_to_end(key)
        self._note(key)
        while len(self._rows) > self.maximum:
            self.pop(next(iter(self._rows)))

    def pop(self, key: K) -> V | None:
        """Remove a key and return its value, or None."""
        if key not in self._rows:
            return None
        self._note(key)
        return self._rows.pop(key)

    def _note(self, key: K) -> None:
        if self._is_persistent:
            self._changed.pop(key, None)  # move it behind earlier changes
            self._changed[key] = None

    @property
    def has_changes(self) -> bool:
        return bool(self._changed)

    def changes(self) -> Iterator[tuple[bytes, bytes | None]]:
        """Yield changed keys in order, with their values; None for a removed key."""
        for key in self._changed:
            value = self._rows.get(key)
            yield msgspec.json.encode(key), None if value is None else self._encode(value)

    def clear_changes(self) -> None:
        """Forget recorded changes: they have been written."""
        self._changed.clear()

    def load(self, rows: Iterable[tuple[bytes, bytes]]) -> None:
        """Add the rows of the file."""
        self._rows.update((self._decode_key(key), self._decode(value)) for key, value in rows)


class StateStore:
    """The tables of one file, used by one process at a time; it must be on a local disk."""

    def __init__(self, path: str = "") -> None:
        """Keep state only in memory without a path; ``open()`` opens the file."""
        self.path = Path(path).expanduser() if path else None
        self._tables: dict[str, StateTable[Any, Any]] = {}
        self._file: sqlite3.Connection | None = None

    @property
    def is_persistent(self) -> bool:
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
        """Create a table, before the file is opened.

        Parameters
        ----------
        name
            Its name in the file.
        key, value
            Their types, as msgspec reads them. No value may be None.
        maximum
            Number of keys; beyond, those put least recently are removed.
        encode, decode
            How a value is written and read, where not by msgspec.

        """
        table = StateTable(
            maximum,
            is_persistent=self.is_persistent,
            decode_key=msgspec.json.Decoder(key).decode,
            encode=encode,
            decode=decode or msgspec.msgpack.Decoder(value).decode,
        )
        self._tables[name] = table
        return table

    def open(self) -> None:
        """Read the file, once.

        Raises
        ------
        ConfigError
            if the file cannot be read, is not a state file, or is already in use.
        CreateError
            if its directory is missing and cannot be created, or is not writable.

        """
        if self.path is None or self._file is not None:
            return
        import sqlite3

        make_directory_of("state_file", self.path)
        try:
            self._file = self._connect(self.path)
            for name, table in self._tables.items():
                rows = self._file.execute(
                    "SELECT key, value FROM state WHERE name = ? ORDER BY rowid", (name,)
                )
                table.load(rows)
        except (sqlite3.Error, msgspec.MsgspecError, UnicodeError) as error:
            raise ConfigError(f"state_file: {self.path}: {error}") from None

    def close(self) -> None:
        """Close the file, so that another process can open it."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _connect(self, path: Path) -> "sqlite3.Connection":
        import sqlite3

        # the garbage collector may close it in any thread
        file = sqlite3.connect(path, isolation_level=None, timeout=0, check_same_thread=False)
        weakref.finalize(self, file.close)
        try:
            file.execute("PRAGMA locking_mode = EXCLUSIVE")
            file.execute("PRAGMA journal_mode = WAL")
            ((version,),) = file.execute("PRAGMA user_version")
            if version not in (0, VERSION):
                raise ConfigError(f"state_file: {path} is of version {version}, not {VERSION}")
            file.execute(
                "CREATE TABLE IF NOT EXISTS state "
                "(name TEXT, key BLOB, value BLOB, UNIQUE (name, key))"
            )
            file.execute(f"PRAGMA user_version = {VERSION}")
        except sqlite3.OperationalError as error:
            if "locked" in str(error):
                raise ConfigError(f"state_file: {path} is already in use") from None
            raise
        return file

    def commit(self, *, is_durable: bool) -> None:
        """Write the changes.

        Unless `is_durable`, they survive the process but perhaps not a power failure, until a
        later change is written durably.

        Raises
        ------
        UnavailableError
            if the disk fails or is full.

        """
        changed = {name: table for name, table in self._tables.items() if table.has_changes}
        if self._file is None or not changed:
            return
        import sqlite3

        try:
            self._file.execute(f"PRAGMA synchronous = {'FULL' if is_durable else 'NORMAL'}")
            self._file.execute("BEGIN IMMEDIATE")
            for name, table in changed.items():
                changes = [(name, *change) for change in table.changes()]
                self._file.executemany(
                    "DELETE FROM state WHERE name = ? AND key = ?",
                    [row[:2] for row in changes],
                )
                self._file.executemany(
                    "INSERT INTO state VALUES (?, ?, ?)",
                    [row for row in changes if row[2] is not None],
                )
            self._file.execute("COMMIT")
        except sqlite3.Error as error:
            with contextlib.suppress(sqlite3.Error):
                self._file.execute("ROLLBACK")
            raise UnavailableError(f"state_file: {self.path}: {error}") from None
        for table in changed.values():
            table.clear_changes()
