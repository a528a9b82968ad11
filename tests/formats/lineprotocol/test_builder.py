"""``LinesBuilder``: rows of texts, floats and integers, many at once."""

import math

from hypothesis import given
from hypothesis import strategies as st

from ccpipe.formats.lineprotocol import SeriesTable, decode, encode
from ccpipe.formats.lineprotocol.builder import LinesBuilder
from ccpipe.message import Message

SECOND = 10**9


@given(st.lists(st.floats()), st.lists(st.integers(-(2**70), 2**70)), st.lists(st.text(max_size=5)))
def test_builder_orders_texts_floats_and_integers(
    floats: list[float], ints: list[int], texts: list[str]
) -> None:
    """Non-finite values are omitted; integers beyond 64 bits become floats."""
    texts = [text for text in texts if text.isprintable()]
    builder = LinesBuilder(SeriesTable())
    builder.begin(5 * SECOND)
    (code,) = builder.codes(["m"], {"hostname": "n1"})
    for rows, values in ((builder.floats, floats), (builder.ints, ints)):
        for value in values:
            rows.codes.append(code)
            rows.values.append(value)
    for text in texts:
        builder.text("m", "log", text, {"hostname": "n1"})
    lines = builder.lines()
    is_int64 = [-(2**63) <= value < 2**63 for value in ints]
    expected = [
        *texts,
        *(value for value in floats if math.isfinite(value)),
        *(float(value) for value, fits in zip(ints, is_int64, strict=True) if not fits),
        *(value for value, fits in zip(ints, is_int64, strict=True) if fits),
    ]
    assert [(m.value, type(m.value)) for m in lines] == [(v, type(v)) for v in expected]
    assert {(m.name, m.hostname, m.time) for m in lines} <= {("m", "n1", 5 * SECOND)}
    assert {len(column) for column in lines.columns} == {len(expected)}
    assert list(decode(encode(lines))) == list(lines)
    assert lines.passthrough() is None


def test_builder_applies_time_to_following_rows() -> None:
    """Rows of a later time follow the earlier ones, type by type."""
    builder = LinesBuilder(SeriesTable())
    code = builder.code("m", {})
    for time in (1, 2):
        builder.begin(time * SECOND)
        for rows in (builder.floats, builder.ints):
            rows.codes.append(code)
            rows.values.append(time)
        builder.text("e", "event", str(time), {})
    assert [(m.name, m.time) for m in builder.lines()] == [
        ("e", SECOND), ("e", 2 * SECOND),
        ("m", SECOND), ("m", 2 * SECOND), ("m", SECOND), ("m", 2 * SECOND),
    ]  # fmt: skip


def test_builder_escapes_unrepresentable_tags() -> None:
    """Empty tags are omitted; the order of tags does not change the code of a series."""
    builder = LinesBuilder(SeriesTable())
    code = builder.code("m", {"b": "x\ny", "a": "", "c": "\\"})
    assert code == builder.code("m", {"c": "\\", "b": "x\ny"})
    assert builder.table.series[code] == ("m", {"b": "x%0Ay", "c": "%5C"}, b"m,b=x%0Ay,c=%5C")
    builder.text("m", "log", "x", {"b": "1"})
    assert list(builder.lines()) == [Message("m", {"b": "1"}, "x", None, "log")]
