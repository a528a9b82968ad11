"""A Delta table, on a local path or on S3-compatible storage."""

import os

from ccpipe.errors import MissingExtra

# As for Parquet files: Arrow's own pool keeps memory, and NumPy would start unused threads.
os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

try:
    import deltalake  # noqa: F401
    import numpy as np  # noqa: F401
    import pyarrow as pa  # noqa: F401
except ImportError as missing:
    raise MissingExtra(missing.name or "deltalake", "delta") from None

from ccpipe.sinks.delta.sink import DeltaSink

__all__ = ["DeltaSink"]
