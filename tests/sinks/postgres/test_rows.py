"""Rows of binary COPY: PostgreSQL's own format, cell by cell."""

import struct

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.formats.lineprotocol import Lines, to_lines
from ccpipe.formats.lineprotocol.precision import INT64_MIN
from ccpipe.message import Message, Uint
from ccpipe.sinks.postgres.rows import DAY, days, rows
from tests.sinks.conftest import messages_with, times

YEAR_2000 = 946_684_800 * 10**6


def numbered(lines: Lines) -> dict[int, "np.ndarray[tuple[int], np.dtype[np.int32]]"]:
    places = {pair: n for n, pair in enumerate(zip(lines.series, lines.fields, strict=True), 1)}
    ids = {field: np.zeros(len(lines.table), np.int32) for field in set(lines.fields)}
    for (code, field), number in places.items():
        ids[field][code] = number
    return ids


def cells(stream: bytes) -> list[tuple[bytes | None, ...]]:
    assert stream.startswith(b"PGCOPY\n\xff\r\n\0" + bytes(8))
    found, position = [], 19
    while (count := struct.unpack_from(">h", stream, position)[0]) != -1:
        position += 2
        row: list[bytes | None] = []
        for _ in range(count):
            (size,) = struct.unpack_from(">i", stream, position)
            position += 4
            row.append(None if size < 0 else stream[position : position + size])
            position += max(size, 0)
        found.append(tuple(row))
    assert position + 2 == len(stream)
    return found


def expected(message: Message, number: int) -> tuple[bytes | None, ...]:
    value, time = message.value, message.time
    micros = INT64_MIN if time is None else time // 1000 - YEAR_2000
    is_int = isinstance(value, int) and not isinstance(value, bool | Uint)
    digits: list[int] = []
    if isinstance(value, Uint):
        digits = [int(value) // 10**power % 10**4 for power in (16, 12, 8, 4, 0)]
    return (
        struct.pack(">q", micros),
        None if isinstance(value, str) else struct.pack(">d", value),
        struct.pack(">i", number),
        struct.pack(">h", 0 if time is None else time % 1000),
        struct.pack(">q", value) if is_int else None,
        struct.pack(">9H", 5, 4, 0, 0, *digits) if digits else None,
        struct.pack(">?", value) if isinstance(value, bool) else None,
        value.encode() if isinstance(value, str) else None,
    )


@given(st.lists(messages_with(), max_size=20))
def test_rows_have_the_cells_of_the_messages(messages: list[Message]) -> None:
    """Each type in its column, the others null; rows of one type stay in order."""
    lines = to_lines(messages)
    ids = numbered(lines)
    wanted = [
        expected(message, int(ids[field][code]))
        for message, code, field in zip(messages, lines.series, lines.fields, strict=True)
    ]
    found = cells(bytes(rows(lines, ids)))
    assert sorted(found, key=repr) == sorted(wanted, key=repr)


@given(st.lists(times | st.none(), max_size=20))
def test_days_are_those_of_the_times(chosen: list[int | None]) -> None:
    """Also before the epoch; a line without time has none."""
    lines = to_lines([Message("m", {}, 1.0, time) for time in chosen])
    assert days(lines) == {time // DAY for time in chosen if time is not None}
