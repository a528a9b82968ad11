"""Parquet files: complete, without duplicate rows, few and large."""

import os

from ccpipe.errors import MissingExtra

# Arrow's own memory pool keeps some 50 MB unused; ``pyarrow.set_memory_pool`` would be too late
# for the writer. NumPy, which pyarrow loads, would start threads that are never used.
os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

try:
    import pyarrow as pa  # noqa: F401
except ImportError:
    raise MissingExtra("pyarrow", "parquet") from None

from ccpipe.sinks.parquet.sink import NULL, PATH_COLUMNS, ParquetSink

__all__ = ["NULL", "PATH_COLUMNS", "ParquetSink"]
