"""Dead-letter files: written dead letters are read back, damaged ones are detected."""

import io

from hypothesis import given
from hypothesis import strategies as st

from ccpipe.formats.dead_letters import PREFIX, Damaged, StoredDeadLetter, encode, read

LETTERS = st.tuples(
    st.binary(max_size=40) | st.just(PREFIX + b"{}\n") | st.just(encode(b"x", "r", time=1)),
    st.text(max_size=20),
    st.text(max_size=20),
)


def files(letters: list[tuple[bytes, str, str]]) -> bytes:
    return b"".join(
        encode(original, reason, time=5, origin=origin) for original, reason, origin in letters
    )


@given(st.lists(LETTERS, max_size=5))
def test_reader_returns_written_dead_letters(letters: list[tuple[bytes, str, str]]) -> None:
    found = list(read(io.BytesIO(files(letters))))
    assert [each.original for each in found if isinstance(each, StoredDeadLetter)] == [
        original for original, _, _ in letters
    ]
    assert len(found) == len(letters)
    assert len({each.id for each in found if isinstance(each, StoredDeadLetter)}) == len(letters)


@given(st.binary(max_size=200) | st.binary(max_size=60).map(lambda tail: PREFIX + b"{" + tail))
def test_reader_reports_any_other_bytes_as_damage(payload: bytes) -> None:
    good = encode(b"m value=1", "no", time=5)
    found = list(read(io.BytesIO(payload + b"\n" + good)))
    assert isinstance(found[-1], StoredDeadLetter)
    assert found[-1].original == b"m value=1"
    positions = [each.position for each in found if isinstance(each, Damaged)]
    assert positions == sorted(set(positions))


@given(LETTERS, st.data())
def test_reader_reports_truncated_dead_letter_as_damage(
    letter: tuple[bytes, str, str], data: st.DataObject
) -> None:
    whole = files([letter])
    cut = data.draw(st.integers(1, len(whole) - 1))
    for each in read(io.BytesIO(whole[:cut])):
        assert isinstance(each, Damaged) or each.original in (letter[0], b"x")


def test_reader_reports_edited_dead_letter_as_damage() -> None:
    """The checksum covers the original; corrected lines are sent by ``ccpipe send``."""
    text = encode(b"m value=1", "no", time=5).replace(b"value=1", b"value=2")
    assert list(read(io.BytesIO(text))) == [Damaged(0, "truncated or edited")]
