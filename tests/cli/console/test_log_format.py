"""How log lines look on stderr."""

import logging

from hypothesis import given
from hypothesis import strategies as st

from ccpipe.cli.console.log_format import PrintableFormatter


@given(st.text())
def test_no_message_controls_the_terminal(text: str) -> None:
    """Whatever a subject or an error holds: the log shows it escaped, line by line."""
    record = logging.LogRecord("x", logging.INFO, "f", 1, "got %s", (text,), None)
    shown = PrintableFormatter("%(message)s").format(record)
    assert all(line.isprintable() for line in shown.split("\n"))
