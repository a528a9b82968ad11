"""A Delta table: rows of all clusters, on a local path or on S3-compatible storage."""

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, Self
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ccpipe.config import Duration
from ccpipe.errors import ConfigError, CreateError, RejectedError, UnavailableError
from ccpipe.formats.delta import (
    ColumnProperties,
    CommitFailedError,
    DeltaAddress,
    DeltaTable,
    TableNotFoundError,
    WriterProperties,
    write_deltalake,
)
from ccpipe.formats.lineprotocol import Lines
from ccpipe.formats.lineprotocol.arrow import MICROSECONDS, to_microseconds
from ccpipe.pipeline import Limits, Sink
from ccpipe.records import MessageRange, Provenance
from ccpipe.sinks.delta.maintenance import TableMaintenance, TablePartition
from ccpipe.sinks.delta.messages import CommittedMessages
from ccpipe.sinks.disk import check_directory

UINT = pa.decimal128(20, 0)
"""Delta has no unsigned integers."""

SCHEMA = pa.schema(
    [
        pa.field("date", pa.date32()),
        *(MICROSECONDS.field(name) for name in MICROSECONDS.names if name != "uint"),
        pa.field("uint", UINT),
    ]
)
"""One row for each field of each line; ``date`` is the day of ``time`` in UTC."""

PARTITIONS = ["cluster", "date"]

TRIES = 20
"""Immediate retries of a write after commits of other bridges."""

GROUP_ROWS = 150_000
"""Maximum rows of a row group: the memory that a reader or writer needs."""

MAX_NAME = 255
"""Maximum length of the name of a partition's directory on Linux, in bytes."""

MIN_VACUUM = 3600.0
"""Minimum age in seconds of a file that is deleted: younger ones may be of a running write."""


class DeltaSink(Sink[Lines]):
    """Writes each batch as one commit; several bridges may write to one table.

    A commit has the ranges of the messages that it stores: see ``CommittedMessages``. A file is
    uploaded by one request, so that a killed bridge leaves nothing behind but files that are not of
    the table, which are deleted later: see ``TableMaintenance``.
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
        url: str,
        endpoint: str = "",
        region: str = "",
        access_key: str = "",
        secret_key_file: str = "",
        compression: Literal["zstd", "snappy", "gzip", "none"] = "zstd",
        retention: Duration = Duration(0),
        compact: bool = True,
        vacuum: Duration = Duration(7 * 86_400),
    ) -> None:
        """Configure address, credentials and maintenance.

        Parameters
        ----------
        url
            The table's directory, or ``s3://bucket/prefix``; created if missing, except a bucket.
        endpoint
            The address of S3-compatible storage, ``http://`` or ``https://``; AWS by default.
        region
            The region of the bucket; by default that of the environment, or ``us-east-1`` with an
            `endpoint`.
        access_key, secret_key_file
            Access key and file containing its secret key; by default the keys are found as AWS' own
            programs find them.
        compression
            Compression of the files' columns.
        retention
            How long to keep each day; 0 keeps them forever.
        compact
            Merge small files of a cluster and day into larger ones, when there are 32 new ones.
        vacuum
            The age at which files that are no longer of the table are deleted, at least an hour; 0
            keeps them forever. Readers may use a file for as long after it was merged into another.

        Raises
        ------
        ConfigError
            if the address is invalid, or an option contradicts another.

        """
        self.address = DeltaAddress(
            url,
            endpoint=endpoint,
            region=region,
            access_key=access_key,
            secret_key_file=secret_key_file,
        )
        if 0 < vacuum < MIN_VACUUM:
            raise ConfigError("vacuum: must be 0 or at least 1h")
        self.properties = writer_properties(compression)
        self._table: DeltaTable | None = None
        self._stored: CommittedMessages | None = None
        self._busy = threading.Lock()  # the thread of a cancelled write() may still run
        self._maintenance = TableMaintenance(
            self.address,
            self.properties,
            compact=compact,
            retention=float(retention),
            vacuum=float(vacuum),
        )

    async def check(self) -> None:
        """Check that the table, or the place for it, can be read; a directory must be writable."""
        if self.address.is_local:
            check_directory(Path(self.address.uri))
        try:
            table = await asyncio.to_thread(self.address.open)
        except TableNotFoundError:
            return
        self._check_columns(table)

    async def __aenter__(self) -> Self:
        """Create the table; raises as ``check()``, but not if the storage is unavailable."""
        try:
            if self.address.is_local:
                check_directory(Path(self.address.uri))
            await asyncio.to_thread(self._current)
        except UnavailableError as error:
            if self.address.is_local:
                raise CreateError(str(error)) from None
        return self

    async def __aexit__(self, *exit_: object) -> None:
        """Wait for running maintenance."""
        await self._maintenance.close()
        self._table = self._stored = None

    async def write(self, records: Lines) -> None:
        """Commit the rows of messages that the table does not have yet."""
        if len(records):
            self._maintenance.start(await asyncio.to_thread(self._write, records))

    def _write(self, lines: Lines) -> list[TablePartition]:
        """Store lines; return the partitions to compact."""
        ids = lines.provenance if lines.provenance and lines.provenance.has_ids else None
        rows = to_table(lines)
        with self._busy:
            for _ in range(TRIES):
                table = self._current()
                with contextlib.suppress(CommitFailedError), self.address.errors():
                    if not self._is_committed(table, rows, ids):
                        return []
                    return self._maintenance.crowded(table, partitions(rows))
        raise UnavailableError(f"{self.address.shown}: other bridges commit all the time")

    def _is_committed(self, table: DeltaTable, rows: pa.Table, ids: Provenance | None) -> bool:
        """Commit rows that are not stored, based on the table as it was read; false if all are."""
        assert self._stored is not None
        ranges: list[MessageRange] = []
        if ids is not None:
            keep, ranges = ids.unstored(self._stored.overlapping(table, ids.runs()))
            if keep is not None:
                rows = rows.filter(pa.array(map(bool, keep), pa.bool_()))
            if not len(rows):
                return False
        write_deltalake(
            table,
            rows,
            mode="append",
            writer_properties=self.properties,
            commit_properties=self._stored.commit_properties(table, ranges),
        )
        return True

    def _current(self) -> DeltaTable:
        """Return the table as it is now; creates it if it is missing."""
        with self.address.errors():
            try:
                if self._table is None:
                    self._table = self._opened()
                    self._stored = CommittedMessages(self.address.files())
                else:
                    self._table.update_incremental()
            except BaseException:
                self._table = None
                raise
            return self._table

    def _opened(self) -> DeltaTable:
        try:
            table = self.address.open()
        except TableNotFoundError:
            with contextlib.suppress(CommitFailedError):  # another bridge was faster
                self.address.create(SCHEMA, PARTITIONS)
            table = self.address.open()
        self._check_columns(table)
        return table

    def _check_columns(self, table: DeltaTable) -> None:
        columns = {field.name for field in table.schema().fields}
        if columns != set(SCHEMA.names) or table.metadata().partition_columns != PARTITIONS:
            raise ConfigError(f"url: {self.address.shown} is a table with other columns")


def writer_properties(compression: str) -> WriterProperties:
    """Return how columns are encoded: as Parquet files of the sink ``parquet``."""
    return WriterProperties(
        compression={"none": "UNCOMPRESSED"}.get(compression, compression.upper()),  # type: ignore[arg-type]
        compression_level=1 if compression == "zstd" else None,
        max_row_group_size=GROUP_ROWS,
        default_column_properties=ColumnProperties(statistics_enabled="NONE"),
        column_properties={
            "time": ColumnProperties(dictionary_enabled=False, statistics_enabled="CHUNK"),
            # A dictionary of doubles would be built, grow too large, and be discarded.
            "value": ColumnProperties(dictionary_enabled=False, statistics_enabled="NONE"),
        },
    )


def to_table(lines: Lines) -> pa.Table:
    """Return the rows of lines; raises RejectedError for a cluster whose name is too long."""
    table = to_microseconds(lines)
    clusters = table["cluster"].combine_chunks()
    names = clusters.dictionary.to_pylist()
    if any(bad := [len("cluster=" + quote(name, safe="")) > MAX_NAME for name in names]):
        codes = clusters.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        rows = np.flatnonzero(np.array([*bad, False])[codes])
        raise RejectedError("the cluster's name is too long for a directory", rows.tolist())
    columns = {name: table[name] for name in table.column_names}
    columns["date"] = table["time"].cast(pa.date32())
    columns["uint"] = table["uint"].cast(UINT)
    # The library partitions by plain columns only, and takes an empty text as null.
    plain = clusters.cast(pa.string())
    columns["cluster"] = pc.if_else(pc.equal(plain, ""), None, plain)
    return pa.table({name: columns[name] for name in SCHEMA.names})


def partitions(rows: pa.Table) -> Iterator[TablePartition]:
    """Yield the partitions of rows."""
    found = rows.select(PARTITIONS).group_by(PARTITIONS).aggregate([])
    for row in found.to_pylist():
        yield TablePartition(row["cluster"], row["date"])
