"""Parquet, one directory for each cluster and day: a store for DuckDB, pandas, polars and Spark.

::

    <dir>/cluster=<name>/date=<YYYY-MM-DD>/<time>-<random>.parquet

Readers need the types of ``PATH_COLUMNS``: inferred, a cluster called ``007`` is the number 7.
"""

import asyncio
import contextlib
import threading
from array import array
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self
from urllib.parse import quote

import numpy as np
import pyarrow as pa

from ccpipe.config import Duration
from ccpipe.errors import ConfigError, RejectedError, UnavailableError
from ccpipe.formats.lineprotocol import Lines
from ccpipe.formats.lineprotocol.arrow import SeriesOfRows, series_of, to_microseconds
from ccpipe.formats.lineprotocol.decoder import rows_before
from ccpipe.formats.lineprotocol.precision import NO_TIME
from ccpipe.pipeline import Limits, Sink
from ccpipe.records import MessageRange, Provenance
from ccpipe.sinks.disk import check_directory, disk_errors, make_directory, sync_directory
from ccpipe.sinks.parquet.files import (
    SCHEMA,
    Housekeeping,
    StoredMessages,
    clean_up,
    locked,
    metadata,
    new_name,
    write_file,
)

PATH_COLUMNS = pa.schema([("cluster", pa.string()), ("date", pa.date32())])
"""Columns from the path: the cluster and the day in UTC."""

NULL = "__HIVE_DEFAULT_PARTITION__"
"""Directory name for a missing tag ``cluster`` or timestamp."""

MAX_NAME = 255
"""Maximum length of a directory's name on Linux, in bytes."""

DAY = 86_400 * 10**9

DAYS = 2**18
"""More days than 64-bit times have, from ``NO_DAY`` on."""
NO_DAY = -(2**17)
"""In place of the day of a line without a time."""

DIRECTORIES = 64
"""Number of directories whose messages are remembered: the last ones written to."""


class DayRows(NamedTuple):
    """The rows of one cluster and day."""

    path: str
    table: pa.Table
    rows: "array[int] | None"
    """Row indices in the batch, in ascending order; None for all rows."""


class ParquetSink(Sink[Lines]):
    """Writes each batch as one file per cluster and day; several bridges may share a directory.

    A file gets its final name when it is complete and synced to disk, and only then does
    ``write()`` return. Its metadata lists the messages whose rows it contains, so that redelivered
    messages are not written again, even after a crash between the files of a batch. Small files
    are merged later: see ``Housekeeping``.
    """

    takes = Lines

    limits = Limits(
        max_records=150_000,
        max_bytes=16 * 2**20,
        max_wait=60.0,
        max_memory=24 * 2**20,
        write_timeout=0.0,
    )

    def __init__(
        self,
        *,
        dir: str,  # noqa: A002 - the key in recipes
        compression: Literal["zstd", "snappy", "gzip", "lz4", "none"] = "zstd",
        retention: Duration = Duration(0),
        compact: bool = True,
    ) -> None:
        """Choose directory and compression.

        Parameters
        ----------
        dir
            The root directory of the files; created if missing.
        compression
            Compression of the files' columns.
        retention
            How long to keep each day; 0 keeps them forever.
        compact
            Merge small files of a directory into larger ones, 32 at a time.

        Raises
        ------
        ConfigError
            if pyarrow was built without that compression.

        """
        if compression != "none" and not pa.Codec.is_available(compression):
            raise ConfigError(f"compression: this pyarrow was built without {compression}")
        self.directory = Path(dir).expanduser()
        self.compression = compression
        self._stored: OrderedDict[Path, StoredMessages] = OrderedDict()
        self._busy = threading.Lock()  # the thread of a cancelled write() may still run
        self._housekeeping = Housekeeping(
            self.directory, compression, float(retention), compact=compact
        )

    async def check(self) -> None:
        check_directory(self.directory)

    async def __aenter__(self) -> Self:
        with disk_errors(self.directory, opening=True):
            await asyncio.to_thread(self._prepare)
        return self

    async def __aexit__(self, *exit_: object) -> None:
        """Wait for a running compaction; no other file stays open between writes."""
        await self._housekeeping.close()

    async def write(self, records: Lines) -> None:
        """Write the records of messages that no file contains yet, as complete files."""
        known = records.provenance
        ids = known if known and known.has_ids else None
        try:
            directories = await asyncio.to_thread(self._write_files, records, ids)
        except OSError as error:
            place = error.filename or self.directory
            raise UnavailableError(f"{place}: {error.strerror or error}") from None
        self._housekeeping.maintain(directories, len(records))

    def _prepare(self) -> None:
        make_directory(self.directory)
        clean_up(self.directory)

    def _write_files(self, lines: Lines, ids: Provenance | None) -> set[Path]:
        """Write all files under temporary names, then rename; return their directories."""
        with self._busy, contextlib.ExitStack() as undo:
            files = [self._prepared(part, ids, undo) for part in by_day(lines)]
            with locked(self.directory):
                for place, file in enumerate(files):
                    # Another bridge may have written the same messages concurrently.
                    stored = self._messages(file.directory).refreshed() if ids else ()
                    if any(old.overlaps(run) for old in stored for run in file.runs):
                        files[place] = self._prepared(file.part, ids, undo)
                written = [file for file in files if file.path is not None]
                self._rename(written, undo, keep=ids is not None)
            undo.pop_all()
        for file in written:
            self._messages(file.directory).add(f"{file.name}.parquet", file.runs)
        return {file.directory for file in written}

    def _prepared(
        self, part: DayRows, ids: Provenance | None, undo: contextlib.ExitStack
    ) -> "_File":
        """Write a part's rows that are not stored yet to a file that readers ignore."""
        directory, name, table = self.directory / part.path, new_name(), part.table
        make_directory(directory)
        runs: list[MessageRange] = []
        if ids is not None:
            keep, runs = _of_part(ids, part).unstored(self._messages(directory).refreshed())
            if keep is not None:
                table = table.filter(pa.array(map(bool, keep), pa.bool_()))
            if not len(table):
                return _File(part, directory, name, None, [])
        # DuckDB's *.parquet also matches names that begin with a dot.
        path = directory / f".{name}.tmp"
        undo.callback(_remove, path)
        write_file(path, table, self.compression, metadata(runs))
        return _File(part, directory, name, path, runs)

    def _rename(self, files: Sequence["_File"], undo: contextlib.ExitStack, *, keep: bool) -> None:
        """Rename files to their final names, durably.

        On failure they are removed again, unless their messages are known: then renamed files
        stay, as another bridge may have seen them.
        """
        for file in files:
            assert file.path is not None
            final = file.directory / f"{file.name}.parquet"
            if not keep:
                undo.callback(_remove, final)
            file.path.rename(final)
        for directory in {file.directory for file in files}:
            sync_directory(directory)

    def _messages(self, directory: Path) -> StoredMessages:
        """Return the known messages of a directory; the least recent directories are dropped."""
        known = self._stored.setdefault(directory, StoredMessages(directory))
        self._stored.move_to_end(directory)
        if len(self._stored) > DIRECTORIES:
            self._stored.popitem(last=False)
        return known


class _File(NamedTuple):
    """A written file before it is renamed; without a path if no rows were new."""

    part: DayRows
    directory: Path
    name: str
    path: Path | None
    runs: list[MessageRange]


def _of_part(ids: Provenance, part: DayRows) -> Provenance:
    if part.rows is None:
        return ids
    ends = rows_before(part.rows, ids.ends)
    return replace(ids, ends=ends)


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()


# lines as tables


def by_day(lines: Lines) -> Iterator[DayRows]:
    """Split lines into tables by cluster and day."""
    if not len(lines):
        return
    series = series_of(lines)
    times = np.asarray(lines.times)
    clusters = series.columns["cluster"].combine_chunks().fill_null("").dictionary_encode()
    first, last = _days(np.array([times.min(), times.max()])).tolist()
    if len(clusters.dictionary) == 1 and first == last:
        path = _path(clusters.dictionary[0].as_py(), first, range(len(lines)))
        yield DayRows(path, _table(lines, series), None)
        return
    days = _days(times)
    numbers = clusters.indices.to_numpy()[series.rows].astype(np.int64)
    groups = pa.array(numbers * DAYS + (days - NO_DAY)).dictionary_encode()
    for group, key in enumerate(groups.dictionary.to_pylist()):
        number, day = divmod(key, DAYS)
        rows = np.flatnonzero(groups.indices.to_numpy() == group)
        path = _path(clusters.dictionary[number].as_py(), day + NO_DAY, rows)
        part = lines.take((groups.indices.to_numpy() == group).tobytes())
        yield DayRows(path, _table(part, series_of(part)), array("q", rows.tobytes()))


def _days(times: "np.ndarray[Any, Any]") -> "np.ndarray[Any, Any]":
    return np.where(times == NO_TIME, NO_DAY, times // DAY)


def _path(cluster: str, day: int, rows: Iterable[int]) -> str:
    directory = "cluster=" + (quote(cluster, safe="") or NULL)
    if len(directory) > MAX_NAME:
        raise RejectedError("the cluster's name is too long for a directory", list(map(int, rows)))
    if day == NO_DAY:
        return f"{directory}/date={NULL}"
    return f"{directory}/date={datetime(1970, 1, 1, tzinfo=UTC) + timedelta(day):%Y-%m-%d}"


def _table(lines: Lines, series: SeriesOfRows) -> pa.Table:
    return to_microseconds(lines, series).select(SCHEMA.names)
