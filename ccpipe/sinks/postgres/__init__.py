"""PostgreSQL: rows once, by binary COPY."""

from ccpipe.sinks.postgres.lines import PostgresSink
from ccpipe.sinks.postgres.sonar import PostgresSonarSink

__all__ = ["PostgresSink", "PostgresSonarSink"]
