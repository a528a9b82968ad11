"""How log lines look on stderr."""

import logging

from ccpipe.terminal import printable


class PrintableFormatter(logging.Formatter):
    """Log lines in which what is not printable is escaped: subjects and errors come from others."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the lines of a record."""
        return "\n".join(map(printable, super().format(record).split("\n")))
