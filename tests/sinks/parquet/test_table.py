"""``by_day()``: lines as tables of files."""

from array import array
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.formats.lineprotocol import Lines, SeriesTable, decode, to_lines
from ccpipe.message import Message, Uint
from ccpipe.sinks.parquet.files import SCHEMA
from ccpipe.sinks.parquet.sink import DAY, by_day
from tests.sinks.conftest import messages_with, names

NOON = 1_740_052_800 * 10**9
MESSAGES = [
    Message("m", {"cluster": "a", "hostname": "n1", "x": "y"}, 1.5, NOON + 1),
    Message("m", {"cluster": "b", "hostname": "n2"}, 2**63 - 1, NOON + DAY),
    Message("e", {"cluster": "a"}, "text", NOON, "event"),
    Message("m", {}, Uint(2**64 - 1), -1),
    Message("m", {"cluster": "a"}, True, None),
]
few = st.sampled_from(["a", "b", "é,=\\ x"])


def cells(lines: Lines) -> list[dict[str, object]]:
    found: dict[int, dict[str, object]] = {}
    for part in by_day(lines):
        part.table.validate(full=True)
        assert part.table.schema == SCHEMA
        rows = range(len(lines)) if part.rows is None else part.rows
        found |= zip(rows, part.table.to_pylist(), strict=True)
    return [row for _, row in sorted(found.items())]


def test_values_of_each_type_are_exact() -> None:
    """Each in its column, and numbers also in ``value``."""
    rows = cells(to_lines(MESSAGES))
    assert [row["value"] for row in rows] == [1.5, float(2**63 - 1), None, float(2**64 - 1), 1.0]
    assert [row["int"] for row in rows] == [None, 2**63 - 1, None, None, None]
    assert [row["uint"] for row in rows] == [None, None, None, 2**64 - 1, None]
    assert [row["bool"] for row in rows] == [None, None, None, None, True]
    assert [row["text"] for row in rows] == [None, None, "text", None, None]
    assert rows[0]["tags"] == [("x", "y")]


def test_line_without_time_is_in_day_of_its_arrival() -> None:
    """The source has filled it in, whether or not the payload was joined with others."""
    lines = [decode(b"m,cluster=a value=1\n").fill_missing_times(NOON) for _ in range(2)]
    for chosen in (lines[:1], lines):
        [part] = by_day(Lines.concat(chosen))
        assert part.path == "cluster=a/date=2025-02-20"


@given(st.lists(messages_with(cluster=few, hostname=few, **{"type-id": names}), max_size=20))
def test_tables_contain_rows_of_messages(messages: list[Message]) -> None:
    """Each row is in one table, and each dictionary contains only names of its rows."""
    lines = to_lines(messages)
    for row, message in zip(cells(lines), messages, strict=True):
        tags = {name: message.tags.get(name.replace("_", "-")) for name in ("hostname", "type_id")}
        assert {name: row[name] for name in tags} == tags
        own = ("cluster", "hostname", "type", "type-id", "stype", "stype-id")
        others = sorted((k, v) for k, v in message.tags.items() if k not in own)
        assert (row["name"], row["field"], row["tags"]) == (message.name, message.field, others)
    parts = list(by_day(lines))
    for part in parts:
        for name in ("name", "field", "hostname", "type_id"):
            column = part.table[name].combine_chunks()
            assert set(column.dictionary.to_pylist()) == set(column.to_pylist()) - {None}
    if len(parts) > 1:
        rows = sorted(chain.from_iterable(part.rows or () for part in parts))
        assert rows == list(range(len(lines)))


def test_payloads_of_two_tables_are_written_together() -> None:
    """After a new series table has begun, rows keep their own names."""
    payloads = []
    for number, name in enumerate(["a", "b"]):
        lines = Lines(table=SeriesTable())
        lines.append(lines.table.add(b"%b,cluster=x" % name.encode()), 0, float(number), 1)
        lines.table.add_field(b"value")
        payloads.append(lines)
    assert [row["name"] for row in cells(Lines.concat(payloads))] == ["a", "b"]


def test_invalid_codes_are_error() -> None:
    """They must not be read from other memory."""
    lines = decode(b"m,cluster=a value=1 1740052800\n")
    for name in ("series", "fields"):
        wrong = lines.with_series(lines.series[:])
        setattr(wrong, name, array("i", [99_999_999]))
        with pytest.raises(IndexError):
            list(by_day(wrong))
