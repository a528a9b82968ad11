"""Files of JSON lines and CSV: every good row is read, whatever stands beside it."""

import io
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.errors import DataError
from ccpipe.formats import csvlines, jsonlines, row_files
from ccpipe.formats.lineprotocol import Lines, RejectedLine
from ccpipe.formats.row_files import read_csv, read_json
from ccpipe.message import Message

Reader = Callable[..., Iterator[Lines]]

MESSAGES = [
    Message("m", {"hostname": "n1"}, 1.5, 1),
    Message("job", {"unit": "a b"}, 'say "hi",\nplease', 2, "event"),
    Message("m", {"type-id": "3"}, True, None),
]
FORMATS = pytest.mark.parametrize(
    ("read", "encode", "header"),
    [(read_json, jsonlines.encode, b""), (read_csv, csvlines.encode, csvlines.HEADER)],
)


def everything(
    read: Reader, payload: bytes, block: int = 2**18
) -> tuple[list[Message], list[RejectedLine]]:
    parts = list(read(io.BytesIO(payload), block=block))
    return (
        [message for part in parts for message in part],
        [bad for part in parts for bad in part.rejected],
    )


@FORMATS
@pytest.mark.parametrize("block", [1, 7, 2**18])
def test_in_blocks(read: Reader, encode: Callable[..., bytes], header: bytes, block: int) -> None:
    payload = header + encode(MESSAGES)
    for each in (payload, payload[:-1]):
        assert everything(read, each, block) == (MESSAGES, [])


@FORMATS
def test_a_damaged_row_costs_itself(
    read: Reader, encode: Callable[..., bytes], header: bytes
) -> None:
    before, after = header + encode(MESSAGES[:2]), encode(MESSAGES[2:])
    for torn in (encode(MESSAGES[:1])[:20], b"\xff\xfe", b"no row"):
        found, (bad,) = everything(read, before + torn + b"\n" + after)
        assert found == MESSAGES
        assert (bad.line, bad.offset) == (1 + before.count(b"\n"), len(before))
        assert bad.original == torn
        assert bad.reason


@pytest.mark.parametrize("block", [16, 2**18])
def test_an_open_quote_costs_its_line(block: int) -> None:
    """A row that was cut off inside of quotes does not swallow those that follow it."""
    torn = b'2025-02-20T05:05:51Z,job,event,,,,,,,,"cut off\n'
    for tail in (MESSAGES, MESSAGES[:1], MESSAGES[1:2] * 2):
        payload = csvlines.HEADER + torn + csvlines.encode(tail)
        found, rejected = everything(read_csv, payload, block)
        assert found == tail
        assert [bad.original for bad in rejected] == [torn[:-1]]


def test_a_row_of_several_lines_is_rejected_whole() -> None:
    fake = "2025-02-20T05:05:51Z,m,value,,,,,,,,1"
    row = csvlines.encode([Message("log", {}, f"one\n{fake}\ntwo", 5, "log")])
    payload = csvlines.HEADER + row.replace(b"1970", b"70") + csvlines.encode(MESSAGES)
    found, (bad,) = everything(read_csv, payload)
    assert found == MESSAGES
    assert bad.original.count(b"\n") == 2


def test_what_spreadsheets_write() -> None:
    rows = csvlines.HEADER + csvlines.encode([MESSAGES[0], MESSAGES[2]])
    payload = b"\xef\xbb\xbf" + (rows + rows).replace(b"\n", b"\r\n")
    assert everything(read_csv, payload) == ([MESSAGES[0], MESSAGES[2]] * 2, [])


def test_without_its_header() -> None:
    with pytest.raises(DataError, match="does not begin with the header time,name,"):
        everything(read_csv, csvlines.encode(MESSAGES))
    assert everything(read_csv, b"") == ([], [])
    assert everything(read_csv, csvlines.HEADER[:-1]) == ([], [])


@pytest.mark.parametrize("read", [read_json, read_csv])
def test_a_line_without_end_is_refused(read: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_files, "MAX_LINE_SIZE", 1000)
    with pytest.raises(DataError, match="longer than 1000 bytes|begin with the header"):
        everything(read, b"a" * 10_000, block=100)
    if read is read_csv:
        with pytest.raises(DataError, match="longer than 1000 bytes"):
            everything(read, csvlines.HEADER + b"a" * 10_000, block=100)


def test_an_open_quote_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row may not be longer than a line: its first line is rejected, and the rest read."""
    monkeypatch.setattr(row_files, "MAX_LINE_SIZE", 1000)
    rows = csvlines.encode(MESSAGES[:1] * 100)
    found, rejected = everything(read_csv, csvlines.HEADER + b'"\n' + rows, block=100)
    assert found == MESSAGES[:1] * 100
    assert [bad.original for bad in rejected] == [b'"']


@FORMATS
@given(
    st.binary(max_size=60) | st.text('",\n\\= a1', max_size=40).map(str.encode), st.integers(1, 50)
)
def test_any_bytes_are_rows_or_rejected(
    read: Reader, encode: Callable[..., bytes], header: bytes, junk: bytes, block: int
) -> None:
    payload = header + encode(MESSAGES[:1]) + junk
    found, rejected = everything(read, payload, block)
    assert found[:1] == MESSAGES[:1]
    assert all(bad.original in payload and bad.reason for bad in rejected)
    assert (found, rejected) == everything(read, payload)
    if junk.strip() and not any(line.strip() == csvlines.HEADER.strip() for line in junk.split()):
        assert len(found) + len(rejected) > 1
