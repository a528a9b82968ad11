"""``ccpipe.cli.tail.view`` and ``stats``: samples, limits and counts that own up."""

import io
import itertools
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.cli.tail import view
from ccpipe.cli.tail.view import RateLimiter, TailView, sample
from ccpipe.formats.lineprotocol import decode, to_lines
from ccpipe.message import Message

LINES = decode(b"".join(b"m%d,cluster=c%d value=%d 1740027951\n" % (i, i % 3, i) for i in range(9)))


@given(st.integers(0, 200), st.integers(0, 200))
def test_a_sample_is_spread_over_the_whole_payload(size: int, count: int) -> None:
    """As many rows as asked for, in order, none twice, no gap twice as wide as another."""
    lines = decode(b"".join(b"m value=%d 1740027951\n" % i for i in range(size)))
    rows = [int(message.value) for message in sample(lines, count)]
    assert len(rows) == min(size, count)
    gaps = {later - earlier for earlier, later in itertools.pairwise(rows)}
    assert all(gap > 0 for gap in gaps)
    assert max(gaps, default=1) - min(gaps, default=1) <= 1
    if rows:
        assert rows[0] == 0
        assert size - rows[-1] <= -(-size // count)


def test_a_rate_limit_is_so_much_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was not used does not pile up; nothing is allowed twice."""
    now = 100.0
    monkeypatch.setattr(view, "time", SimpleNamespace(monotonic=lambda: now))
    limiter = RateLimiter(10)
    assert [limiter.take(7), limiter.take(7), limiter.take(7)] == [7, 3, 0]
    now += 0.5
    assert limiter.take(99) == 5
    now += 60
    assert limiter.take(99) == 10
    assert RateLimiter(0).take(10**9) == 10**9


def test_what_the_limit_leaves_out_is_counted() -> None:
    """Nobody takes a sample for the whole."""
    stream = io.BytesIO()
    shown = TailView(stream.write, "line", limit=4)
    shown.show(LINES)
    assert (shown.shown, shown.left_out) == (4, 5)
    assert len(decode(stream.getvalue())) == 4


def test_it_is_full_after_so_many_lines_and_writes_no_more() -> None:
    """--count is exact, whatever the size of payloads."""
    stream = io.BytesIO()
    shown = TailView(stream.write, "csv", count=12)
    fullness = []
    for _ in range(2):
        shown.show(LINES)
        fullness.append(shown.is_full)
    assert fullness == [False, True]
    assert len(stream.getvalue().splitlines()) == 1 + 12


def test_a_message_that_the_format_cannot_carry_costs_that_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It is told and counted; the others are shown."""
    stream = io.BytesIO()
    shown = TailView(stream.write, "json")
    good = Message("m", {}, 1.0, 10**18)
    far = Message("m", {}, 1.0, 5)
    lines = to_lines([good, far, good])
    code = len(lines.table)
    lines.table.series[code] = lines.table.series[lines.series[0]]._replace(name="\ud800")
    lines.series[1] = code
    shown.show(lines)
    del lines.table.series[code]  # the table is everybody's
    assert (shown.shown, shown.refused) == (2, 1)
    assert len(stream.getvalue().splitlines()) == 2
    assert capsys.readouterr().err.count("\n") == 1
