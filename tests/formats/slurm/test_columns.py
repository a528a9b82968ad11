"""Tables become records by whole columns; bad rows are rejected; memory is bounded."""

import io
import tracemalloc
from contextlib import suppress

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.errors import DataError
from ccpipe.formats.slurm import columns
from ccpipe.formats.slurm.columns import FieldReader, FieldSpec, TableReader
from ccpipe.formats.slurm.values import text, whole


class Thing(msgspec.Struct, frozen=True):
    """A record of the tables in these tests."""

    number: int
    name: str | None = None
    size: int | None = None
    tags: tuple[str, ...] = ()


def _required(cell: str) -> int:
    found = whole(cell)
    if found is None:
        raise DataError("no number")
    return found


FIELDS = [
    FieldSpec("number", ("number",), _required),
    FieldSpec("size", ("rawsize",), whole, varies=True),
    FieldSpec("size", ("size",), lambda cell: (whole(cell) or 0) * 1000),
    FieldSpec("name", ("name",), is_free=True),
]


def reader(names: str | None = None) -> TableReader[Thing]:
    return TableReader(Thing, FIELDS, columns=names.split("|") if names else None)


def test_table_reader_accepts_columns_in_any_order() -> None:
    found = reader().read(b"Other|SIZE|Number\nx|5|1\ny||2\n")
    assert found.records == [Thing(1, size=5000), Thing(2, size=0)]
    assert found.records[0].tags == ()


def test_table_reader_prefers_first_field_spec() -> None:
    """The raw number is preferred to the rounded one, wherever its column is."""
    assert reader().read(b"size|number|rawsize\n5|1|5123\n").records == [Thing(1, size=5123)]


def test_table_reader_rejects_rows_with_bad_cells() -> None:
    found = reader().read(b"number|name|size\n1|a|5\n2|b|x\n3|c|6\nx|d|7\n")
    assert [thing.number for thing in found.records] == [1, 3]
    assert [(bad.line, bad.original) for bad in found.rejected] == [(3, b"2|b|x"), (5, b"x|d|7")]
    assert found.rejected[0].reason == "size: not a whole number: 'x'"
    assert found.rejected[0].excerpt == "2|b|x"


def test_table_reader_returns_no_records_without_rows() -> None:
    for payload in (b"", b"\n", b"number|name\n"):
        assert reader().read(payload).records == []


def test_table_reader_rejects_empty_header() -> None:
    """The rows after it cannot be read, and must not be dropped silently."""
    with pytest.raises(DataError, match="no JobID column"):
        reader().read(b"\nnumber|name\n1|a\n")


def test_table_reader_requires_column_of_first_field() -> None:
    with pytest.raises(DataError, match="no JobID column"):
        reader().read(b"name|size\na|1\n")
    with pytest.raises(DataError, match="no JobID column"):
        reader("name|size")


@pytest.mark.parametrize("delimiter", ["", "\n", "a\nb"])
def test_table_reader_rejects_invalid_delimiter(delimiter: str) -> None:
    with pytest.raises(DataError, match="cannot be a delimiter"):
        TableReader(Thing, FIELDS, delimiter=delimiter).read(b"number|name\n1|a\n")


def test_table_reader_rejects_header_without_line_end() -> None:
    with pytest.raises(DataError, match="no line end"):
        reader().feed(b"x" * (2**20 + 1))


def test_table_reader_replaces_invalid_utf8() -> None:
    found = reader().read(b"number|name|size\n1|caf\xe9|5\n2|\xe9|x\n")
    assert found.records == [Thing(1, "caf\N{REPLACEMENT CHARACTER}", 5000)]
    assert found.rejected[0].original == b"2|\xe9|x"


def test_table_reader_joins_lines_that_only_seem_complete() -> None:
    """Each of the two lines has as many delimiters as the header; the second is not a row."""
    found = reader().read(b"number|name|size\n1|a|b\nc|d|5\n2|e|6\n")
    assert found.records == [Thing(1, "a|b\nc|d", 5000), Thing(2, "e", 6000)]


def test_table_reader_reads_whole_and_chunks_alike(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    payload = b"number|name|size\n" + b"1|a|5\nx|b\nc|6\n3|d|y\n" * 50
    whole_reading = reader().read(payload)
    for size in (1, 7, 100):
        monkeypatch.setattr(columns, "CHUNK", size)
        parts = list(reader().read_stream(io.BytesIO(payload)))
        assert [thing for part in parts for thing in part.records] == whole_reading.records
        assert [bad for part in parts for bad in part.rejected] == whole_reading.rejected


@given(st.binary(max_size=200), st.booleans())
def test_table_reader_raises_only_data_error_for_any_bytes(
    payload: bytes, has_header: bool
) -> None:
    table = b"number|name|size\n" + payload if has_header else payload
    with suppress(DataError):
        found = reader().read(table)
        assert all(bad.reason and bad.line > 1 for bad in found.rejected)


def test_table_reader_reads_stream_in_bounded_memory() -> None:
    def peak(rows: int) -> int:
        lines = (f"{n}|name {n}|{n}\n".encode() for n in range(rows))
        table = reader("number|name|size")
        tracemalloc.start()
        read = sum(len(table.feed(line).records) for line in lines) + len(table.flush().records)
        _, peak_bytes = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert read == rows
        return peak_bytes

    assert peak(20_000) < 1.5 * peak(5_000)


def test_field_reader_caches_repeated_values() -> None:
    cells = []

    def read(cell: str) -> str | None:
        cells.append(cell)
        return text(cell)

    source = FieldReader.find([FieldSpec("name", ("a",), read)], ["a"])
    assert source is not None
    assert list(source.values([["x", "y", "x", "x"]])) == ["x", "y", "x", "x"]
    assert cells == ["x", "y"]
