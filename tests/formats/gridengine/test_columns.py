"""Accounting as columns: always what reading line by line gives, only faster."""

import io
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.formats.gridengine import read
from ccpipe.formats.gridengine.columns import (
    COLUMNS,
    SCHEMA,
    read_columns,
    read_columns_stream,
    read_compiled,
    read_in_python,
)
from ccpipe.formats.gridengine.kernel import KERNEL
from tests.formats.gridengine.accounting_samples import CLASSIC, DATA, SAMPLES, TAIL, mutated

EVERYTHING = SCHEMA.names


def rows(table: Any) -> list[dict[str, Any]]:
    """Return a table's rows; NaN would not equal itself, but there is none."""
    assert table.schema == SCHEMA
    found: list[dict[str, Any]] = table.to_pylist()
    assert not any(isinstance(v, float) and math.isnan(v) for row in found for v in row.values())
    return found


def check(payload: bytes) -> None:
    """Compare the kernel's result with the Python reader's."""
    expected = read_in_python(payload, EVERYTHING, 10, 100)
    expected.table.validate(full=True)
    if KERNEL is None:
        return  # the property test below fails or is skipped by name
    found = read_compiled(payload, EVERYTHING, 10, 100)
    found.table.validate(full=True)
    assert rows(found.table) == rows(expected.table)
    for names in (COLUMNS, ("cpu", "line"), ("job_number",)):
        some = read_compiled(payload, names, 10, 100)
        assert some.table.equals(found.table.select(names))
        assert some.rejected == expected.rejected
        assert (some.size, some.lines) == (expected.size, expected.lines)


@pytest.mark.parametrize("name", [*SAMPLES, "derived/derived-malformed.jsonl"])
def test_the_samples_are_the_same_as_columns(name: str) -> None:
    """Every sample, whole: same rows, same rejected lines, same places."""
    check((DATA / name).read_bytes())


def test_empty_lines_among_usual_ones_count_as_lines() -> None:
    """They are no records, and the lines after them still have their numbers."""
    lines = (DATA / "accounting").read_bytes().splitlines(keepends=True)[4:8]
    for payload in (b"\n".join([*lines, b""]), b"\n" + lines[0], lines[0] + b"\n", b"\n"):
        check(payload)


@given(st.lists(st.sampled_from(SAMPLES).flatmap(mutated), min_size=1, max_size=3).map(b"".join))
def test_damaged_lines_are_the_same_as_columns(payload: bytes) -> None:
    """Whatever is wrong with a line, both ways say the same of it."""
    check(payload)


texts = st.text(st.characters(exclude_characters="\n"), max_size=8)
numbers = st.one_of(
    st.integers(0, 10**6).map(str),
    st.floats(0, 1e9).map(lambda value: f"{value:f}"),
    st.sampled_from([
        "", " 1", "1 ", "\t2", "+1", "-0", "0x10", "1_0", "1.", ".5", "1e3", "1E-2", "nan", "inf",
        "-inf", "1e400", "9007199254740993", "99999999999", "1795170751125", "NULL", "-1", "٣",
        "infinity", "1.5", "1 2", "1\r",
    ]),
)  # fmt: skip


@given(st.lists(st.tuples(st.integers(0, 44), numbers | texts), max_size=4))
def test_odd_fields_are_the_same_as_columns(edits: list[tuple[int, str]]) -> None:
    """Whatever a field holds, both ways take it for the same or reject it."""
    fields = f"{CLASSIC}-l h_rt=4:{TAIL}:0:0".split(":")
    for number, text in edits:
        fields[number] = text
    check(":".join(fields).encode("utf-8", "surrogatepass") + b"\n")


@given(st.lists(st.tuples(st.integers(0, 44), numbers | texts), max_size=2))
def test_odd_lines_among_usual_ones_keep_their_order(edits: list[tuple[int, str]]) -> None:
    """An odd line between others, colons in a category among them: the order is the file's."""
    usual = f"{CLASSIC}NONE:{TAIL}:0:0"
    fields = usual.split(":")
    for number, text in edits:
        fields[number] = text
    odd = ":".join(fields)
    colons = f"{CLASSIC}-l a=b:c:{TAIL}:0:0"
    lines = ["# x", usual, odd, colons, "", usual, "junk", colons, usual]
    check("".join(f"{line}\n" for line in lines).encode("utf-8", "surrogatepass"))


@given(st.binary(max_size=200))
def test_any_bytes_are_the_same_as_columns(payload: bytes) -> None:
    """No bytes raise anything."""
    check(payload)


def test_a_stream_is_read_block_by_block() -> None:
    """Blocks follow each other in line and offset; nothing is lost between them."""
    payload = (DATA / "accounting").read_bytes() * 150
    parts = list(read_columns_stream(io.BytesIO(payload), ["job_number", "offset"]))
    assert len(parts) > 1
    expected = [(r.job_number, r.origin.offset) for r in read(payload).records]
    found = [tuple(row.values()) for part in parts for row in part.table.to_pylist()]
    assert found == expected


def test_a_column_that_does_not_exist_is_named() -> None:
    """A wrong name is an error at once."""
    with pytest.raises(KeyError, match="cpus"):
        read_columns(b"", ["cpus"])
