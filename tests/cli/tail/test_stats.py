"""Statistics of ``ccpipe tail``: bounded, and rates of the last interval."""

from types import SimpleNamespace

import pytest

from ccpipe.cli.tail import stats
from ccpipe.cli.tail.stats import OTHERS, Stats
from ccpipe.formats.lineprotocol import decode

LINES = decode(b"".join(b"m%d,cluster=c%d value=%d 1740027951\n" % (i, i % 3, i) for i in range(9)))


def test_stats_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the limit, new names are counted together."""
    monkeypatch.setattr(stats, "MAX_GROUPS", 4)
    monkeypatch.setattr(stats, "MAX_NODES", 2)
    counted = Stats()
    counted.add("s", LINES)
    assert counted.groups["name"] == {"m0": 1, "m1": 1, "m2": 1, "m3": 1, OTHERS: 5}
    assert len(counted.nodes) == 2


def test_report_fits_available_rows() -> None:
    """The last row has the number of rows left out."""
    counted = Stats()
    counted.add("s", LINES)
    whole = counted.report()
    assert len(whole) == 1 + 1 + 1 + 3 + 9
    assert counted.report(rows=5) == [*whole[:1], *counted.report()[1:4], "… and 11 more"]


def test_rates_are_measured_since_last_report(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not averages since the start."""
    now = 100.0
    monkeypatch.setattr(stats, "time", SimpleNamespace(monotonic=lambda: now))
    counted = Stats()
    counted.add("s", LINES)
    now += 2
    assert counted.report()[1].split()[2:] == ["9", "4.5"]
    now += 1
    assert counted.report()[1].split()[2:] == ["9", "0.0"]
