"""PostgreSQL: rows once, by binary COPY."""

from ccpipe.sinks.postgres.lines import PostgresSink

__all__ = ["PostgresSink"]
