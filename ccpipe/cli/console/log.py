"""The log of a command, on stderr."""

import logging
import os
from contextvars import ContextVar
from typing import Any

from ccpipe.errors import ConfigError
from ccpipe.terminal import Progress, printable

LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")

subject: ContextVar[str] = ContextVar("subject", default="")
"""What log lines are about, before their texts, such as one of several recipes."""


def start_logging(level: str | None = None) -> None:
    """Log to stderr; `level` overrides that of the environment."""
    level = level or os.environ.get("CCPIPE_LOGLEVEL", "INFO")
    if level.upper() not in LEVELS:
        known = ", ".join(LEVELS).lower()
        raise ConfigError(f"CCPIPE_LOGLEVEL: not a level: {level!r} (expected {known})")
    handler = _LogHandler()
    handler.setFormatter(PrintableFormatter("%(asctime)s %(levelname)-7s %(message)s"))
    logging.basicConfig(level=level.upper(), handlers=[handler])


class _LogHandler(logging.StreamHandler[Any]):
    """Logs to stderr, where it erases a line of progress."""

    def emit(self, record: logging.LogRecord) -> None:
        Progress.clear()
        super().emit(record)


class PrintableFormatter(logging.Formatter):
    """Escapes unprintable characters in log lines: subjects and errors are from other programs."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        if name := subject.get():
            record.message = f"{name}: {record.message}"
        return super().formatMessage(record)

    def format(self, record: logging.LogRecord) -> str:
        return "\n".join(map(printable, super().format(record).split("\n")))
