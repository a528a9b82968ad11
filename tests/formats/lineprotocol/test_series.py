"""The series table: one number for each series, bounded memory."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.errors import EncodeError
from ccpipe.formats.lineprotocol import SeriesTable, decode, series
from ccpipe.formats.lineprotocol.grammar import INFLUX
from ccpipe.formats.lineprotocol.series import DuplicateTag, read_series, write_series
from ccpipe.message import Message


def test_two_encodings_are_one_series() -> None:
    """Order of tags and needless duplicates do not make a new series."""
    table = SeriesTable()
    codes = {table.add(raw) for raw in (b"m,a=1,b=2", b"m,b=2,a=1", b"m,b=9,a=1,b=2", b"m,a=1,b=2")}
    assert len(codes) == len(table) == 1


@given(st.from_type(Message))
def test_a_written_series_reads_back(message: Message) -> None:
    """``read_series`` and ``write_series`` are each other's inverse."""
    raw = write_series(message.name, message.tags)
    series = read_series(raw, SeriesTable().grammar)
    assert (series.name, series.tags, series.key) == (message.name, message.tags, raw)
    assert list(series.tags) == sorted(series.tags)


def test_a_table_is_bounded() -> None:
    """At its cap a fresh table replaces it; old numbers stay valid."""
    table = first = SeriesTable(cap=100)
    generations = 0
    for number in range(1000):
        successor = table.current()
        generations += successor is not table
        table = successor
        for raw in (b"m,job=%d" % number, b"m,host=always"):
            code = table.add(raw)
            assert table.series[code].key == raw
        assert len(table.codes) <= 101
        assert b"m,host=always" in table.codes
    assert generations == 10
    assert first.series[0].tags == {"job": "0"}


def test_fields_are_bounded_too() -> None:
    """Field keys come from outside as tags do."""
    table = SeriesTable(cap=100)
    for number in range(1000):
        table = table.current()
        table.add_field(b"f%d" % number)
        assert len(table.fields) <= 100


def test_lines_keep_the_table_they_were_decoded_with() -> None:
    """Rows decoded with an earlier table still have their series."""
    before = decode(b"m,host=a value=1 1")
    for number in range(100):
        decode(b"m,job=%d value=1 1" % number)
    assert before[0].tags == {"host": "a"}


def test_a_duplicate_tag_is_located() -> None:
    """The offset is that of the second key; escapes do not hide it."""
    with pytest.raises(DuplicateTag) as caught:
        read_series(b"m,a\\ b=1,c=2,a\\ b=3", INFLUX)
    assert caught.value.start == 13


def test_a_name_like_a_comment_is_not_written() -> None:
    """A reader would skip the whole line."""
    with pytest.raises(EncodeError, match="comment"):
        write_series("#m", {})


def test_a_table_is_bounded_by_bytes_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few thousand long series take as much as a million others."""
    monkeypatch.setattr(series, "MAX_BYTES", 100_000)
    table = SeriesTable()
    for number in range(10):
        table.add(b"m,hostname=n%d,tag=%b" % (number, b"x" * 5000))
    assert 150_000 < table.size < 200_000
    assert len(table.current()) == 0
    small = SeriesTable()
    for number in range(10):
        small.add(b"m,hostname=n%d" % number)
    assert small.current() is small
