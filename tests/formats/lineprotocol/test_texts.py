"""Texts: positions in a payload that read as strings."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.formats.lineprotocol import Dialect, Lines, decode, encode, encoder
from ccpipe.formats.lineprotocol.grammar import CC, INFLUX
from ccpipe.formats.lineprotocol.values import Texts

PAYLOAD = b'm log="a\\nb" 1\nm log="" 1\nm log="\xc3\xa9\\q" 1\n'


def test_texts_are_a_sequence_of_strings() -> None:
    """Index, slice, length and membership work as for a list; beyond the end there is nothing."""
    texts = decode(PAYLOAD).texts
    assert list(texts) == ["a\nb", "", "é\\q"]
    assert (len(texts), texts[2], texts[1:], "é\\q" in texts) == (3, "é\\q", ["", "é\\q"], True)
    for index in (3, -1):
        with pytest.raises(IndexError):
            texts[index]


def test_texts_hold_no_copy_of_the_payload() -> None:
    """They are two numbers each, whatever their length."""
    texts = decode(b'm log="%b" 1\n' % (b"x" * 10**6)).texts
    assert (list(texts.spans), texts.own) == ([7, 10**6 + 7], [])


def test_texts_that_are_in_no_payload_are_kept() -> None:
    """Those of repaired lines and of rows added by hand."""
    lines = decode(b'm event={"a": 1} 1\nm event="x" 1\n', lenient=True)
    assert (list(lines.texts), lines.texts.own) == (['{"a": 1}', "x"], ['{"a": 1}'])
    lines.append(0, 0, "by hand", 1)
    assert [m.value for m in lines] == ['{"a": 1}', "x", "by hand"]


def test_joined_texts_keep_their_meaning() -> None:
    """Texts in payloads, texts of their own and two dialects of escapes."""
    parts = [
        decode(b'm log="cc\\n" 1\n'),
        decode(b'm log="influx\\n" 1\n', dialect="influx"),
        decode(b"m event=own 1\n", lenient=True),
        decode(b'm value=1,log="\\"last\\"" 1\n'),
    ]
    whole = Lines.concat(parts)
    assert list(whole) == [message for part in parts for message in part]
    assert list(whole.texts) == ["cc\n", "influx\\n", "own", '"last"']
    assert list(Lines.concat([whole, whole]).texts) == [*whole.texts, *whole.texts]


def test_truncating_keeps_the_first() -> None:
    """The text of a line that is rejected after all is removed."""
    texts = Texts(b"abc", CC.unescape)
    texts.append("x")
    texts.append("y")
    texts.truncate(1)
    assert list(texts) == ["x"]
    lines = decode(b'm a="x",b=1e999 1\nm a="y" 1\n')
    assert list(lines.texts) == ["y"]


@given(
    st.lists(st.sampled_from([b"a", b"\\n", b'\\"', b"\\\\", b"\n", b"\\", b"\\q", b"\\t"]))
    .map(b"".join)
    .filter(lambda text: not text.endswith(b"\\")),
    st.sampled_from(["cc", "influx"]),
)
def test_a_text_of_any_dialect_is_written_in_ours(text: bytes, dialect: Dialect) -> None:
    """The text is encoded, not its escapes; with the kernel and without."""
    lines = decode(b'm log="%b" 1\n' % text, dialect=dialect)
    assert lines.table.grammar is (CC if dialect == "cc" else INFLUX)
    encoded = encode(lines)
    assert [m.value for m in decode(encoded)] == list(lines.texts)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(encoder, "KERNEL", None)
        assert encode(lines) == encoded
