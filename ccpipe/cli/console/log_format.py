"""Format of log lines on stderr."""

import logging

from ccpipe.terminal import printable


class PrintableFormatter(logging.Formatter):
    """Escapes what is not printable in log lines: subjects and errors come from other programs."""

    def format(self, record: logging.LogRecord) -> str:
        """Format a record."""
        return "\n".join(map(printable, super().format(record).split("\n")))
