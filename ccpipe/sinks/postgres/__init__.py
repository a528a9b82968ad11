"""PostgreSQL: each row once, by binary COPY."""

import os

from ccpipe.errors import MissingExtra

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # NumPy would start threads that are never used

try:
    import asyncpg  # noqa: F401 - needed by the modules below
    import numpy as np  # noqa: F401
except ImportError as error:
    raise MissingExtra(str(error.name), "postgres") from None

from ccpipe.sinks.postgres.lines import PostgresSink
from ccpipe.sinks.postgres.sonar import PostgresSonarSink

__all__ = ["PostgresSink", "PostgresSonarSink"]
