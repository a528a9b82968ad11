"""A short set of faults, one round each: no line is lost."""

from pathlib import Path

import pytest

from tests.chaos.faults import FAULTS, LINES, is_possible

SHORT = (
    "SIGKILL of the bridge",
    "SIGKILL of a bridge from one stream into another",
    "SIGKILL of the broker",
    "the same lines published twice, every tenth broken",
    "messages repeated and swapped to and from the broker, into Parquet files",
    "a websocket with TLS that is cut, and whose handshakes then fail",
    "an HTTP store that fails, hangs, closes and shows a login page",
    "a full disk under the store (tmpfs)",
    "clocks of nodes that jump by a year, with a time window before the store",
)
"""Those that take a few seconds; `make chaos` has them all, several rounds each."""


@pytest.mark.parametrize("name", SHORT)
async def test_fault_loses_no_line(name: str, tmp_path: Path) -> None:
    """Published lines are stored, dead letters with a reason, or dropped by a limit and counted."""
    if reason := is_possible(name):
        pytest.skip(reason)
    account = await FAULTS[name](tmp_path, 1)
    assert account.published == LINES
    assert account.lost == 0, account
    if "broken" in name:
        assert account.dead == LINES // 10
        assert account.duplicated == 0
    elif "clocks" in name:
        assert account.dead == 2 * LINES // 3
    else:
        assert account.dead == 0
    if "Parquet" in name or "into another" in name:
        assert account.duplicated == 0
