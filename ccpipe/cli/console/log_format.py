"""The log of a command, on stderr."""

import logging
import os

from ccpipe.errors import ConfigError
from ccpipe.terminal import printable

LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
"""Values of ``CCPIPE_LOGLEVEL``."""


def start_logging() -> None:
    """Log to stderr at the level of ``CCPIPE_LOGLEVEL``; raises ConfigError."""
    level = os.environ.get("CCPIPE_LOGLEVEL", "INFO")
    if level.upper() not in LEVELS:
        known = ", ".join(LEVELS).lower()
        raise ConfigError(f"CCPIPE_LOGLEVEL: not a level: {level!r} (expected {known})")
    handler = logging.StreamHandler()
    handler.setFormatter(PrintableFormatter("%(asctime)s %(levelname)-7s %(message)s"))
    logging.basicConfig(level=level.upper(), handlers=[handler])


class PrintableFormatter(logging.Formatter):
    """Escapes what is not printable in log lines: subjects and errors come from other programs."""

    def format(self, record: logging.LogRecord) -> str:
        return "\n".join(map(printable, super().format(record).split("\n")))
