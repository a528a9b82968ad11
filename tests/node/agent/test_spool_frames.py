"""The frames in the spool's files."""

from hypothesis import given
from hypothesis import strategies as st

from ccpipe.bus.nats.outgoing import Outgoing
from ccpipe.node.agent.spool_frames import MAGIC, decode_frames, encode_frames

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
outgoing = st.builds(
    Outgoing, texts, st.binary(max_size=200) | st.just(MAGIC), texts,
    st.dictionaries(texts, texts, max_size=2),
)  # fmt: skip
contents = st.lists(outgoing, max_size=6)
numbers = st.integers(1, 2**40)


@given(number=numbers, messages=contents)
def test_frames_return_what_was_written(number: int, messages: list[Outgoing]) -> None:
    """Any subject, payload, id and headers."""
    content = encode_frames(number, messages)
    assert list(decode_frames(number, content)) == list(enumerate(messages))


@given(number=numbers, pieces=st.lists(st.binary(max_size=100) | st.just(MAGIC), max_size=20))
def test_frames_of_any_bytes_are_what_the_bytes_hold(number: int, pieces: list[bytes]) -> None:
    """Whatever is read is there as it would be written: nothing is made up, and nothing raises."""
    content = b"".join(pieces)
    for index, message in decode_frames(number, content):
        frame = encode_frames(number, [message] * (index + 1))
        assert frame[len(encode_frames(number, [message] * index)) :] in content


@given(
    messages=st.lists(outgoing, min_size=1, max_size=6),
    at=st.floats(0, 1, exclude_max=True),
    garbage=st.binary(min_size=1, max_size=300),
    cut=st.booleans(),
)
def test_frames_beside_damage_are_read(
    messages: list[Outgoing], at: float, garbage: bytes, cut: bool
) -> None:
    """Each frame that no changed byte is in; of the others none comes back as another."""
    whole = encode_frames(7, messages)
    ends = [len(encode_frames(7, messages[: count + 1])) for count in range(len(messages))]
    begin = int(at * len(whole))
    end = len(whole) if cut else begin + len(garbage)
    content = whole[:begin] + garbage + whole[end:]
    found = list(decode_frames(7, content))
    assert [each for each in found if each not in list(enumerate(messages))] == []
    undamaged = {
        index
        for index, (first, last) in enumerate(zip([0, *ends], ends, strict=False))
        if last <= begin or first >= end
    }
    assert undamaged <= {index for index, _ in found}


def test_frames_of_another_file_are_not_read() -> None:
    """A block that the disk wrote to the wrong place is damage, although it is whole."""
    content = encode_frames(1, [Outgoing("s", b"x", "1")])
    assert list(decode_frames(2, content)) == []
