"""Rows of the kernel are those of its twin, whatever the lines."""

from array import array
from collections.abc import Callable
from itertools import compress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.formats.lineprotocol import Lines, ValueType, to_lines
from ccpipe.message import Message
from ccpipe.sinks.postgres import rows as module
from ccpipe.sinks.postgres.rows import Ids, days, rows, rows_in_python
from tests.conftest import needs_kernel
from tests.sinks.conftest import messages_with, times


def numbers(lines: Lines, number: Callable[[int, int], int]) -> Ids:
    """Number the series and fields of some lines only: the table has those of all other tests."""
    ids: dict[int, array[int]] = {}
    for code, field in zip(lines.series, lines.fields, strict=True):
        column = ids.setdefault(field, array("i", bytes(4 * len(lines.table))))
        column[code] = number(code, field)
    return ids


def numbered(lines: Lines) -> Ids:
    """Give each series and field a number of its own."""
    places = {
        pair: place for place, pair in enumerate(zip(lines.series, lines.fields, strict=True))
    }
    return numbers(lines, lambda code, field: 1 + places[code, field])


def by_type(lines: Lines) -> Lines:
    """Return the rows in the order of the twin: those of one type together."""
    order = sorted(range(len(lines)), key=lambda row: lines.types[row])
    return Lines.concat([lines[row : row + 1] for row in order])


@needs_kernel
@given(st.lists(messages_with(), min_size=1, max_size=20))
def test_kernel_and_twin(messages: list[Message]) -> None:
    """They write the same bytes."""
    lines = by_type(to_lines(messages))
    ids = numbered(lines)
    found = compress(lines.exact, map(ValueType.TEXT.__eq__, lines.types))
    texts = [lines.texts[place].encode() for place in found]
    assert rows(lines, ids) == rows_in_python(lines, ids, texts)


@needs_kernel
@given(st.lists(times | st.none(), max_size=20))
def test_days(chosen: list[int | None]) -> None:
    """They find the same days."""
    lines = to_lines([Message("m", {}, 1.0, time) for time in chosen])
    found = days(lines)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "KERNEL", None)
        assert days(lines) == found
    assert found == {time // module.DAY for time in chosen if time is not None}
