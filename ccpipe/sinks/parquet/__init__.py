"""Parquet files: complete, each row once, few and large."""

from ccpipe.errors import MissingExtra

try:
    import pyarrow as pa  # noqa: F401
except ImportError:
    raise MissingExtra("pyarrow", "parquet") from None

from ccpipe.sinks.parquet.schema import NULL, PATH_COLUMNS, SCHEMA
from ccpipe.sinks.parquet.sink import ParquetSink

__all__ = ["NULL", "PATH_COLUMNS", "SCHEMA", "ParquetSink"]
