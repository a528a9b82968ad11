"""The series table: one number for one series, bounded, right across generations."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.errors import EncodeError
from ccpipe.formats.lineprotocol import SeriesTable, decode
from ccpipe.formats.lineprotocol.grammar import INFLUX
from ccpipe.formats.lineprotocol.series import DuplicateTag, read_series, write_series
from ccpipe.message import Message


def test_two_spellings_are_one_series() -> None:
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


def test_a_table_is_bounded_and_remembers_what_is_seen_again() -> None:
    """Beyond its cap a fresh table takes over what is seen again; numbers stay true."""
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
    """Rows decoded before a change of generations still name their series."""
    before = decode(b"m,host=a value=1 1")
    for number in range(100):
        decode(b"m,job=%d value=1 1" % number)
    assert before[0].tags == {"host": "a"}


def test_a_tag_that_stands_twice_is_found_where_it_stands() -> None:
    """The offset is that of the second key; escapes do not hide it."""
    with pytest.raises(DuplicateTag) as caught:
        read_series(b"m,a\\ b=1,c=2,a\\ b=3", INFLUX)
    assert caught.value.start == 13


def test_a_name_like_a_comment_is_not_written() -> None:
    """A reader would skip the whole line."""
    with pytest.raises(EncodeError, match="comment"):
        write_series("#m", {})
