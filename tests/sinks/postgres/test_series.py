"""Rows of new series: the kernel's are those of its twin."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.formats.lineprotocol import Lines, SeriesTable, to_lines
from ccpipe.message import Message
from ccpipe.sinks.postgres.rows import Pair
from ccpipe.sinks.postgres.series import digests, series_rows, series_rows_in_python
from tests.conftest import needs_kernel
from tests.sinks.conftest import messages_with, names


def pairs_of(lines: Lines) -> list[Pair]:
    """Return each series and field once."""
    return sorted(set(zip(lines.series, lines.fields, strict=True)))


@needs_kernel
@given(st.lists(messages_with(cluster=names, stype=names), max_size=10))
def test_kernel_and_twin(messages: list[Message]) -> None:
    """They write the same bytes, whatever names and tags have to be escaped."""
    lines = to_lines(messages)
    pairs = pairs_of(lines)
    keys = digests(lines, pairs)
    assert series_rows(lines.table, pairs, keys) == series_rows_in_python(lines.table, pairs, keys)


def test_other_tags_are_json() -> None:
    """Tags without a column are one JSON object, with quotes and control characters escaped."""
    table = SeriesTable()
    code = table.codes.intern(b'm,cluster=a,q="x",t=a\tb')
    row = series_rows(table, [(code, table.field_code_of("value"))], [b"k" * 16])
    found = row[row.index(b"\1{") + 1 : -2]
    assert msgspec.json.decode(found) == {"q": '"x"', "t": "a\tb"}
