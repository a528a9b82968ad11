"""New series: digests and rows of the kernel are those of its twin."""

from array import array
from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.formats.lineprotocol import Lines, SeriesTable, to_lines
from ccpipe.message import Message
from ccpipe.sinks.postgres import series_rows as module
from ccpipe.sinks.postgres.series_rows import (
    DIGEST,
    Pairs,
    digests,
    digests_in_python,
    keys_of,
    series_rows,
    series_rows_in_python,
    store_ids,
    unknown_pairs,
)
from tests.conftest import needs_kernel
from tests.sinks.conftest import messages_with, names
from tests.sinks.postgres.test_rows import numbers


def pairs_of(lines: Lines) -> Pairs:
    """Return each series and field once."""
    pairs = sorted(set(zip(lines.series, lines.fields, strict=True)))
    return array("i", [code for pair in pairs for code in pair])


def as_set(pairs: Pairs) -> set[tuple[int, int]]:
    """Return each series and field, after a look that none is there twice."""
    found = set(zip(pairs[::2], pairs[1::2], strict=True))
    assert 2 * len(found) == len(pairs)
    return found


@needs_kernel
@given(st.lists(messages_with(), max_size=20), st.integers(1, 3))
def test_unknown_pairs(messages: list[Message], known: int) -> None:
    """They name each series without a number once, and change nothing."""
    lines = to_lines(messages)
    ids = numbers(lines, lambda code, field: (code + field) % known)
    before = {field: column[:] for field, column in ids.items()}
    found = as_set(unknown_pairs(lines, ids))
    assert ids == before
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "KERNEL", None)
        assert as_set(unknown_pairs(lines, ids)) == found


@needs_kernel
@given(st.lists(st.binary(max_size=400), min_size=1, max_size=5), st.text(max_size=10))
def test_digests(keys: list[bytes], field: str) -> None:
    """The kernel computes what ``hashlib`` does, of texts of any length."""
    pairs = array("i", [0, 0] * len(keys))
    assert digests(keys, [field], pairs) == digests_in_python(keys, [field], pairs)


@needs_kernel
@pytest.mark.parametrize("size", [0, 1, 126, 127, 128, 129, 255, 256, 257, 383, 384, 385])
def test_digests_of_whole_blocks(size: int) -> None:
    """Texts that end where a block of BLAKE2b does, and a byte before and after it."""
    keys, pairs = [bytes(range(256)) * 2], array("i", [0, 0])
    keys = [keys[0][:size]]
    assert digests(keys, [""], pairs) == digests_in_python(keys, [""], pairs)


@needs_kernel
@given(st.lists(messages_with(cluster=names, stype=names), max_size=10), st.randoms())
def test_kernel_and_twin(messages: list[Message], chance: Random) -> None:
    """They write the same rows, whatever has to be escaped, and none of a series with a number."""
    lines = to_lines(messages)
    pairs = pairs_of(lines)
    keys = keys_of(lines, pairs)
    known_by = digests(keys, lines.table.fields, pairs)
    ids = array("i", [chance.choice([0, 0, 7]) for _ in keys])
    rows = series_rows(lines.table, keys, pairs, known_by, ids)
    assert rows == series_rows_in_python(lines.table, pairs, known_by, ids)


def test_other_tags_are_json() -> None:
    """Tags without a column are one JSON object, with quotes and control characters escaped."""
    table = SeriesTable()
    key = b'm,cluster=a,q="x",t=a\tb'
    pairs = array("i", [table.codes.intern(key), table.field_code_of("value")])
    row = series_rows(table, [key], pairs, b"k" * DIGEST, array("i", [0]))
    found = row[row.index(b"\1{") + 1 : -2]
    assert msgspec.json.decode(found) == {"q": '"x"', "t": "a\tb"}


@needs_kernel
@pytest.mark.parametrize("text", [b"\t", b"\x01", b"\x0b\r", b'"', b"\xc3\xa9", b"\\ "])
def test_long_texts(text: bytes) -> None:
    """A row grows as its texts do, also where each byte takes six."""
    table = SeriesTable()
    key = b"m,other=" + 9_000 * text + b"."
    pairs = array("i", [table.codes.intern(key), table.field_code_of("value")])
    rows = series_rows(table, [key], pairs, b"k" * DIGEST, array("i", [0]))
    assert rows == series_rows_in_python(table, pairs, b"k" * DIGEST, array("i", [0]))


@needs_kernel
@given(st.lists(messages_with(), max_size=20))
def test_store_ids(messages: list[Message]) -> None:
    """Each number is found by its series and field."""
    lines = to_lines(messages)
    pairs = pairs_of(lines)
    found = array("i", range(1, 1 + len(pairs) // 2))
    ids = numbers(lines, lambda *_: 0)
    store_ids(ids, pairs, found)
    twin = numbers(lines, lambda *_: 0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "KERNEL", None)
        store_ids(twin, pairs, found)
    assert ids == twin
    assert not unknown_pairs(lines, ids)
