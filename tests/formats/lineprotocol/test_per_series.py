"""Decisions by series are remembered, within bounds."""

from collections.abc import Mapping

import pytest

from ccpipe.formats.lineprotocol import Lines, SeriesTable, per_series, to_lines
from ccpipe.formats.lineprotocol.per_series import PerSeries
from ccpipe.message import Message


@pytest.mark.parametrize("as_lines", [True, False], ids=["lines", "messages"])
def test_remembered_decisions_are_bounded(monkeypatch: pytest.MonkeyPatch, as_lines: bool) -> None:
    """Process and job numbers in tags make new series without end."""
    monkeypatch.setattr(per_series, "MAX_DECISIONS", 100)
    asked: list[str] = []

    def decide(name: str, _: Mapping[str, str]) -> str:
        asked.append(name)
        return name

    known = PerSeries(decide)
    table = SeriesTable()
    for number in range(1000):
        message = Message(f"m{number}", {}, 1.0)
        for _ in range(2):
            if as_lines:
                lines = Lines.concat([Lines(table=table), to_lines([message])])
                assert known.of_lines(lines)[lines.series[0]] == message.name
            else:
                assert known.of(message) == message.name
    assert len(asked) == 1000
    assert len(known._by_code) + len(known._by_series) <= 100


def test_a_batch_of_more_series_than_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of it is decided, and again after other batches."""
    monkeypatch.setattr(per_series, "MAX_DECISIONS", 10)
    large = to_lines([Message(f"m{number}", {}, 1.0) for number in range(20)])
    known = PerSeries(lambda name, _: name)
    for lines in (large[:5], large, large[3:9], large):
        decided = known.of_lines(lines)
        assert [decided[code] for code in lines.series] == [m.name for m in lines]
