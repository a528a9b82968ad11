"""Writing tables to complete files."""

import inspect
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ccpipe.sinks.parquet.schema import SCHEMA

GROUP_ROWS = 150_000
GROUP_BYTES = 16 * 2**20
"""Maximum rows and bytes of a row group: the memory that a reader or writer needs."""

_PAGE_ROWS = 20 * 1024

_OPTIONS: dict[str, Any] = {
    # A dictionary of doubles would be built, grow too large, and be discarded.
    "use_dictionary": [
        field.name for field in SCHEMA if pa.types.is_dictionary(field.type) or field.name == "ns"
    ],
    # Readers skip row groups by these columns; all nodes and metrics are in each.
    "write_statistics": ["time"],
    # 20 000 doubles, which zstd compresses best; the other columns need few bytes per row.
    "data_page_size": 8 * _PAGE_ROWS,
    "write_batch_size": _PAGE_ROWS,
}
if "max_rows_per_page" in inspect.signature(pq.ParquetWriter).parameters:
    # Newer versions end a page after 20 000 rows, and each page costs a compressor.
    _OPTIONS["max_rows_per_page"] = GROUP_ROWS


def write_file(
    path: Path, table: pa.Table, compression: str, metadata: Mapping[bytes, bytes]
) -> None:
    write_groups(path, _groups(table), compression, metadata)


def write_groups(
    path: Path, tables: Iterable[pa.Table], compression: str, metadata: Mapping[bytes, bytes]
) -> None:
    """Write a new file of a row group for each table, and sync it to the disk."""
    schema = SCHEMA.with_metadata(metadata)
    with path.open("xb") as file:
        with pq.ParquetWriter(file, schema, compression=compression, **_OPTIONS) as writer:
            for table in tables:
                writer.write_table(table, row_group_size=max(1, len(table)))
        file.flush()
        os.fsync(file.fileno())


def _groups(table: pa.Table) -> Iterable[pa.Table]:
    rows = min(GROUP_ROWS, max(1, len(table) * GROUP_BYTES // max(1, table.nbytes)))
    for start in range(0, len(table), rows):
        yield table.slice(start, rows)
