"""``time_window``: late, early and absurd records become dead letters, the others pass."""

import time

import pytest

from ccpipe.config import Duration
from ccpipe.errors import ConfigError
from ccpipe.formats.lineprotocol import Lines, decode, to_lines
from ccpipe.pipeline import run
from ccpipe.translate.rules.time_window import TimeWindow
from tests.pipeline.parts import ListDeadLetterSink, ListSink, ListSource, values

NOW = 1_740_000_000 * 10**9
HOUR = 3600 * 10**9


@pytest.fixture(autouse=True)
def _clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: NOW)


def lines(*times: int) -> Lines:
    text = "".join(f"m,hostname=n1 value={i} {at}\n" for i, at in enumerate(times))
    return decode(text.encode(), precision="ns")


def test_window_rejects_records_outside_with_reason() -> None:
    """The edges belong to the window."""
    window = TimeWindow(max_age=Duration(3600), max_future=Duration(60))
    ahead = 60 * 10**9
    given = lines(NOW, NOW - HOUR, NOW - HOUR - 1, NOW + ahead, NOW + ahead + 1, 1_740_000_000, 5)
    kept = window.feed(given)
    assert values(kept) == [0, 1, 3]
    assert [(bad.original, bad.reason.partition(":")[0]) for bad in kept.rejected] == [
        (given.original(2), "late"),
        (given.original(4), "early"),
        (given.original(5), "absurd time 1970-01-01T00"),
        (given.original(6), "absurd time 1970-01-01T00"),
    ]


def test_window_keeps_records_inside_unchanged() -> None:
    """The same columns go on, with their bytes."""
    records = lines(NOW, NOW + 1)
    assert TimeWindow(max_age=Duration(1)).feed(records) is records


def test_window_keeps_lines_without_time() -> None:
    """The store assigns the time."""
    window = TimeWindow(max_age=Duration(1), max_future=Duration(1))
    records = decode(b"m,hostname=n1 value=1\nm,hostname=n1 value=2 5\n")
    assert values(window.feed(records)) == [1]
    assert values(window.feed(to_lines(records))) == [1]


def test_window_rejects_times_at_limits_of_64_bits() -> None:
    window = TimeWindow(max_future=Duration(60))
    kept = window.feed(lines(2**63 - 1, -(2**63) + 2))
    assert len(kept) == 0
    (early, absurd) = kept.rejected
    assert early.reason.startswith("early: 2262-")
    assert absurd.reason.startswith("absurd time 1677-")


async def test_window_in_pipe_writes_dead_letters() -> None:
    """They contain line and reason; the batch is acknowledged."""
    source, sink, kept = ListSource([lines(NOW, 5)]), ListSink(), ListDeadLetterSink()
    await run(source, sink, translators=[TimeWindow(max_age=Duration(60))], dead_letter_sink=kept)
    assert values(sink.written) == [0]
    (letter,) = kept.letters
    assert letter.original.startswith(b"m,hostname=n1 value=1")
    assert letter.reason.startswith("absurd time")
    assert source.acked == [0]


def test_window_requires_a_limit() -> None:
    """It would do nothing."""
    with pytest.raises(ConfigError, match="set max_age or max_future"):
        TimeWindow()
