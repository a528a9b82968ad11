"""Parsing and checking of option values; without cyclopts."""

from ccpipe.config import Duration, Interval, to_struct
from ccpipe.errors import ConfigError, UsageError

MAX_PORT = 65535


def seconds(
    text: str | None, flag: str, kind: type[Duration | Interval] = Duration
) -> float | None:
    """Parse a duration such as ``30s`` or ``5m`` from a flag; raises UsageError."""
    if text is None:
        return None
    try:
        return float(to_struct(text, kind, flag))
    except ConfigError as error:
        raise UsageError(str(error)) from None


def check_port(port: int | None, flag: str) -> None:
    """Raise UsageError for an invalid port."""
    if port is not None and not 1 <= port <= MAX_PORT:
        raise UsageError(f"{flag} {port}: not a port (1 to {MAX_PORT})")
