"""Many plain lines at once: the same rows as line by line, or none."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ccpipe.formats.lineprotocol import Lines, SeriesTable, decoder
from ccpipe.formats.lineprotocol.decoder import decode_in_python
from ccpipe.formats.lineprotocol.plain import add_plain_lines

KNOWN = [b"m", b"m,a=b", rb"m\ x,a=b", b"123", b"v=2"]
PIECES = st.sampled_from(
    [
        *KNOWN,
        *(b"value=1", b"value=.5", b"value=-1.", b"value=1.e5", b"value=1e999", b"value=+1"),
        *(b"value=1_0", b"value=inf", b"value=1=2", b"value=1,v=2", b"value=5i", b"value=", b"2"),
        *(b"=", b"other=1", rb"a\=b=1", b"1740000000", b"-17", b"1740000000123", b"x", b"9" * 19),
        *(b"", b"\r", b"#", b'value="a', b'"', b"\\", b"new,a=1", b"value=1.5", b"17", b"\x0b"),
    ]
)
LINES = st.one_of(
    st.lists(PIECES, max_size=5).map(b" ".join),
    st.tuples(
        st.sampled_from(KNOWN),
        st.sampled_from([b"value=1", b"value=-.5", b"v=2e3"]),
        st.sampled_from([b"1740000000", b"1740000001"]),
    ).map(b" ".join),
)


def rows(payload: bytes, *, plain: bool) -> list[object]:
    """Decode with known series, many plain lines at once or never; return all there is to say."""
    table = SeriesTable()
    for raw in KNOWN:
        table.add(raw)
    for field in (b"value", b"v", rb"a\=b"):
        table.add_field(field)
    with pytest.MonkeyPatch.context() as patch:
        if not plain:
            patch.setattr(decoder, "add_plain_lines", lambda *_: False)
        lines = decode_in_python(payload, table, "auto", lenient=False)
    columns = [column.tobytes() for column in lines.columns]
    return [columns, list(lines.texts), lines.rejected, lines.precision, lines.bare_points]


@given(st.lists(LINES, max_size=8), st.sampled_from([b"", b"\n"]))
@example([b"m value=1=1=2 1740000000", b"m 2 1740000000"], b"\n")
@example([b"m value=1", b"123 value=2 5 m value=1 17"], b"\n")
def test_the_rows_are_those_of_reading_line_by_line(lines: list[bytes], end: bytes) -> None:
    """Whatever stands between plain lines."""
    payload = b"\n".join(lines) + end
    assert rows(payload, plain=True) == rows(payload, plain=False)


def test_plain_lines_are_added_at_once() -> None:
    """Only with one that is not plain is nothing added."""
    table = SeriesTable()
    table.add(b"m")
    table.add_field(b"value")
    payload = b"m value=1 5\nm value=2.5 6\n"
    lines = Lines(payload, table)
    assert add_plain_lines(lines, 0, len(payload), int)
    assert list(lines.numbers) == [1.0, 2.5]
    assert [payload[s:e] for s, e in zip(lines.starts, lines.ends, strict=True)] == [
        b"m value=1 5",
        b"m value=2.5 6",
    ]
    assert not add_plain_lines(lines, 0, len(payload), lambda _: None)
    other = Lines(payload + b"n value=1 5\n", table)
    assert not add_plain_lines(other, 0, len(other.payload), int)
    assert len(lines) == 2
    assert not len(other)
