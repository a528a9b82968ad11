"""A Delta table, on a local path or on S3-compatible storage."""

import os

# As for Parquet files: Arrow's own pool keeps memory, and NumPy would start unused threads.
os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from ccpipe.sinks.delta.sink import DeltaSink

__all__ = ["DeltaSink"]
