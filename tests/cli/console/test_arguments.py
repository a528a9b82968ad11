"""Values of options."""

import pytest

from ccpipe.cli.console.arguments import check_port, seconds
from ccpipe.config import Interval
from ccpipe.errors import UsageError


def test_durations_are_read_from_flags() -> None:
    """With a unit or in seconds; an error names the flag."""
    assert (seconds("5m", "--for"), seconds("1.5", "--for"), seconds(None, "--for")) == (
        300,
        1.5,
        None,
    )
    with pytest.raises(UsageError, match=r"^--for: not a duration: 'soon' \(expected e.g."):
        seconds("soon", "--for")
    with pytest.raises(UsageError, match=r"^--interval: not an interval: 0.0"):
        seconds("0", "--interval", Interval)


def test_ports_are_checked() -> None:
    """Before anything listens; no port is fine."""
    check_port(None, "--port")
    check_port(65535, "--port")
    for port in (-1, 0, 65536):
        with pytest.raises(UsageError, match=rf"^--port {port}: not a port"):
            check_port(port, "--port")
