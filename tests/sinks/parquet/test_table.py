"""``parts()``: the kernel's tables are those of its twin, whatever the lines."""

from array import array
from itertools import chain
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccpipe.formats.lineprotocol import Lines, SeriesTable, decode, to_lines
from ccpipe.message import Message
from ccpipe.sinks.parquet import table as module
from ccpipe.sinks.parquet.schema import SCHEMA
from ccpipe.sinks.parquet.table import DayRows, DaySplitter
from tests.conftest import needs_kernel
from tests.sinks.conftest import messages_with, names, values

few = st.sampled_from(["a", "b", "é,=\\ x"])


def both(*payloads: Lines) -> tuple[list[DayRows], list[DayRows]]:
    """Return what the kernel makes, and what its twin makes, in the order of their folders."""
    compiled = parts(DaySplitter(), *payloads)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "KERNEL", None)
        return compiled, parts(DaySplitter(), *payloads)


def parts(splitter: DaySplitter, *payloads: Lines) -> list[DayRows]:
    """Split the lines of some payloads."""
    return sorted(splitter.parts(payloads), key=lambda part: part.path)


def assert_equal(first: DayRows, second: DayRows) -> None:
    """Compare rows, and the dictionaries, which hold nothing that no row has."""
    first.table.validate(full=True)
    assert first.path == second.path
    assert first.table.schema == second.table.schema == SCHEMA
    assert first.table.to_pylist() == second.table.to_pylist()
    assert list(first.rows or ()) == list(second.rows or ())
    for name in ("name", "field", "hostname", "type_id"):
        column = first.table[name].combine_chunks()
        assert set(column.dictionary.to_pylist()) == set(column.to_pylist()) - {None}


@needs_kernel
@settings(max_examples=75)
@given(st.lists(messages_with(cluster=few, hostname=few, **{"type-id": names}), max_size=20))
def test_kernel_and_twin(messages: list[Message]) -> None:
    """They make the same tables for the same folders, and leave no row out."""
    lines = to_lines(messages)
    compiled, twin = both(lines)
    for first, second in zip(compiled, twin, strict=True):
        assert_equal(first, second)
    if len(compiled) > 1:
        found = sorted(chain.from_iterable(part.rows or () for part in compiled))
        assert found == list(range(len(lines)))


@needs_kernel
@given(st.lists(st.tuples(few, values, st.integers(0, 3)), min_size=1, max_size=40))
def test_one_cluster_and_day(cells: list[tuple[str, Any, int]]) -> None:
    """Rows of one folder are all rows, of whatever types, and keep their order."""
    lines = to_lines([Message(name, {"x": name}, value, time) for name, value, time in cells])
    ((first,), (second,)) = both(lines)
    assert first.rows is second.rows is None
    assert_equal(first, second)
    assert [row["time"] is None for row in first.table.to_pylist()] == [False] * len(cells)


@needs_kernel
@pytest.mark.parametrize(
    "payload",
    [
        rb"m\,x,cluster=a\ b,z=1\=2 value=1 1740052800",
        rb'm,cluster=a event="a \"quoted\" \\ text" 1740052800',
        rb'm,cluster=a,hostname=n1 value=1,log="x",up=t,n=3i,u=4u 1740052800000000001',
    ],
)
def test_escapes(payload: bytes) -> None:
    """Names and texts are those that their escapes mean."""
    for first, second in zip(*both(decode(payload, dialect="influx")), strict=True):
        assert_equal(first, second)


@needs_kernel
@settings(max_examples=50)
@given(
    st.lists(
        st.lists(messages_with(cluster=few, hostname=few), min_size=1, max_size=5), max_size=4
    ),
    st.booleans(),
)
def test_several_payloads(batches: list[list[Message]], changed: bool) -> None:
    """They are read as they are, as packed rows or columns, and series that are known stay so."""
    splitter = DaySplitter()
    for stop in range(1, len(batches) + 1):
        payloads = [to_lines(messages) for messages in batches[:stop]]
        if changed:  # as rules leave them
            payloads = [lines.with_series(lines.series[:]) for lines in payloads]
        compiled, twin = parts(splitter, *payloads), both(*payloads)[1]
        for first, second in zip(compiled, twin, strict=True):
            assert_equal(first, second)


@needs_kernel
def test_payloads_of_two_tables() -> None:
    """Where a fresh series table has begun, rows of both are written together."""
    payloads = []
    for number, name in enumerate(["a", "b"]):
        lines = Lines(table=SeriesTable())
        lines.append(lines.table.add(b"%b,cluster=x" % name.encode()), 0, float(number), 1)
        lines.table.add_field(b"value")
        payloads.append(lines)
    splitter = DaySplitter()
    for chosen in (payloads, payloads[:1], payloads[1:]):
        (part,) = splitter.parts(chosen)
        assert part.table["name"].to_pylist() == [
            "ab"[int(v)] for v in part.table["value"].to_pylist()
        ]


@needs_kernel
def test_a_kernel_that_is_given_nonsense() -> None:
    """Numbers that their table does not have are an error, whatever the columns are."""
    lines = decode(b"m,cluster=a value=1 1740052800\n")
    for name in ("series", "fields"):
        wrong = lines.with_series(lines.series[:])
        setattr(wrong, name, array("i", [99_999_999]))
        with pytest.raises(IndexError, match="there is no"):
            list(DaySplitter().parts([wrong]))
    text = decode(b'm,cluster=a event="x" 1740052800\n')
    for number in (-1, 1):
        wrong = text.with_series(text.series[:])
        wrong.exact = array("q", [number])
        with pytest.raises(IndexError, match="there is no text"):
            list(DaySplitter().parts([wrong]))
    short = lines.with_series(array("i", [0, 0]))
    with pytest.raises(ValueError, match="length"):
        list(DaySplitter().parts([lines, short]))
