"""Parquet files: complete, each row once, few and large."""

from ccpipe.errors import MissingExtra

try:
    import pyarrow as pa  # noqa: F401
except ImportError:
    raise MissingExtra("pyarrow", "parquet") from None

from ccpipe.sinks.parquet.sink import ParquetSink
from ccpipe.sinks.parquet.table import NULL, PATH_COLUMNS, SCHEMA

__all__ = ["NULL", "PATH_COLUMNS", "SCHEMA", "ParquetSink"]
