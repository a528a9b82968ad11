"""Parquet files below a folder, laid out as Hive does, for DuckDB, pandas, polars and Spark.

::

    <dir>/cluster=<name>/date=<YYYY-MM-DD>/<time>-<random>.parquet

The columns are those of ``ccpipe.formats.lineprotocol.arrow.SCHEMA`` without ``cluster``, which
the path says once for all rows. To read them::

    SELECT * FROM read_parquet('<dir>/**/*.parquet', hive_partitioning = true,
                               hive_types = {'cluster': VARCHAR})

    pyarrow.dataset.dataset(
        "<dir>", partitioning=pyarrow.dataset.partitioning(PATH_COLUMNS, flavor="hive")
    )

Both also guess the types of path columns by themselves (``partitioning="hive"``); naming them
keeps a cluster called ``007`` from being read as the number 7.
"""

import asyncio
import contextlib
import os
import secrets
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, Self
from urllib.parse import quote

from ccpipe.errors import ConfigError, DeniedError, MissingExtra, RejectedError, UnavailableError
from ccpipe.formats.lineprotocol import to_lines
from ccpipe.formats.lineprotocol.arrow import to_arrow
from ccpipe.formats.lineprotocol.messages import Messages
from ccpipe.message import Message
from ccpipe.pipeline import Limits, Sink
from ccpipe.sinks.disk import check_folder, make_folder, sync_folder

try:
    import pyarrow as pa
    import pyarrow.parquet as pq
except ImportError:
    raise MissingExtra("pyarrow", "parquet") from None

PATH_COLUMNS = pa.schema([("cluster", pa.string()), ("date", pa.date32())])
"""What the path says: the cluster and the day in UTC."""

NULL = "__HIVE_DEFAULT_PARTITION__"
"""In a path, what a row does not have: a tag ``cluster`` or a time."""

MAX_NAME = 255
"""Bytes that Linux's file systems allow for the name of a folder."""

LEFTOVER_AGE = 600.0
"""Seconds after which an unfinished file has no writer any more.

Other bridges may be writing to the same folder, on other machines too. Should this take the file
of a very slow one, its write fails and is tried again: nothing is lost.
"""


class ParquetSink(Sink):
    """Writes each batch as one file per cluster and day; several bridges may share a folder.

    A file appears under its name when it is complete and safe on the disk, and only then does
    ``write()`` return. So the limits of the batch decide how large files become and how long rows
    wait. A crash between the files of one batch leaves those that are finished, and the batch is
    handed over again: rows may come twice, never less than once.
    """

    takes = Messages

    limits = Limits(lines=500_000, bytes=64 * 2**20, age=60.0, memory=192 * 2**20, timeout=0.0)

    def __init__(
        self,
        *,
        dir: str,  # noqa: A002 - the word of the recipe
        compression: Literal["zstd", "snappy", "gzip", "lz4", "none"] = "zstd",
    ) -> None:
        """Choose folder and compression.

        Parameters
        ----------
        dir
            The folder below which files go; it is made where it is missing.
        compression
            How the files' columns are compressed.

        Raises
        ------
        ConfigError
            where pyarrow was built without that compression.

        """
        if compression != "none" and not pa.Codec.is_available(compression):
            raise ConfigError(f"compression: this pyarrow was built without {compression}")
        self.folder = Path(dir).expanduser()
        self.compression = compression

    async def check(self) -> None:
        """Check that the folder is writable, without writing.

        Raises
        ------
        ConfigError, DeniedError
            where it cannot.

        """
        check_folder(self.folder)

    async def __aenter__(self) -> Self:
        """Create the folder and remove unfinished files of killed writers.

        Raises
        ------
        DeniedError, UnavailableError
            where that cannot be.

        """
        try:
            await asyncio.to_thread(self._prepare)
        except PermissionError as error:
            raise DeniedError(f"{error.filename or self.folder}: {error.strerror}") from None
        except OSError as error:
            raise UnavailableError(f"{error.filename or self.folder}: {error.strerror}") from None
        return self

    async def __aexit__(self, *exit_: object) -> None:
        """Do nothing: no file stays open between writes."""

    async def write(self, records: Sequence[Message]) -> None:
        """Write the records as complete files.

        Raises
        ------
        UnavailableError
            where the disk is full or fails; no file of this batch stays then.
        RejectedError
            where a cluster's name is too long for a folder.
        EncodeError
            where a message could not be written as a line either.

        """
        try:
            await asyncio.to_thread(self._write, records)
        except OSError as error:
            place = error.filename or self.folder
            raise UnavailableError(f"{place}: {error.strerror or error}") from None

    def _prepare(self) -> None:
        make_folder(self.folder)
        for leftover in self.folder.glob("cluster=*/date=*/.*.tmp"):
            with contextlib.suppress(OSError):
                if time.time() - leftover.stat().st_mtime > LEFTOVER_AGE:
                    leftover.unlink()

    def _write(self, records: Sequence[Message]) -> None:
        """Write all files under temporary names, then rename, so that a failure leaves none."""
        parts = list(partitions(to_arrow(to_lines(records))))
        folders = set()
        with contextlib.ExitStack() as undo:
            files = []
            for path, rows in parts:
                folder = self.folder / path
                make_folder(folder)
                folders.add(folder)
                name = f"{datetime.now(UTC):%Y%m%dT%H%M%S.%f}-{secrets.token_hex(4)}"
                final = folder / f"{name}.parquet"
                # No reader takes it: DuckDB's *.parquet matches names that begin with a dot too.
                aside = folder / f".{name}.tmp"
                undo.callback(_remove, aside)
                self._write_file(aside, rows)
                files.append((aside, final))
            for aside, final in files:
                undo.callback(_remove, final)
                aside.rename(final)
            for folder in folders:
                sync_folder(folder)
            undo.pop_all()

    def _write_file(self, path: Path, table: pa.Table) -> None:
        with path.open("xb") as file:
            pq.write_table(table, file, compression=self.compression)
            file.flush()
            os.fsync(file.fileno())


def partitions(table: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    """Split a table of ``SCHEMA`` by cluster and day; yield the folder's path with its rows.

    Raises
    ------
    RejectedError
        naming the rows whose cluster's name is too long for a folder.

    """
    keys = pa.table(
        {
            "cluster": table["cluster"].cast(pa.string()),
            "date": table["time"].cast(pa.date32()),
            "row": pa.array(range(len(table)), pa.int64()),
        }
    )
    groups = keys.group_by(["cluster", "date"]).aggregate([("row", "list")])
    rest = table.drop_columns(["cluster"])
    for group in range(len(groups)):
        cluster, date = groups["cluster"][group].as_py(), groups["date"][group].as_py()
        rows = groups["row_list"][group].values
        folder = "cluster=" + (NULL if cluster is None else quote(cluster, safe=""))
        if len(folder) > MAX_NAME:
            raise RejectedError("the cluster's name is too long for a folder", rows.to_pylist())
        yield f"{folder}/date={date or NULL}", _own_dictionaries(rest.take(rows))


def _own_dictionaries(table: pa.Table) -> pa.Table:
    """Drop unused values from the dictionaries, such as names of other clusters' nodes."""
    for place, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type):
            texts = table.column(place).cast(field.type.value_type)
            table = table.set_column(place, field, texts.dictionary_encode())
    return table


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()
