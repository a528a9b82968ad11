"""Messages as commands of the protocol, and their ids."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.bus.nats.protocol.frames import Delivery
from ccpipe.bus.nats.publisher import MESSAGE_ID, Outgoing, digest
from ccpipe.errors import EncodeError, RejectedError

LIMIT = 2**20


@given(st.binary(), st.binary(), st.binary(), st.binary())
def test_ids_are_equal_only_for_equal_content(a: bytes, b: bytes, c: bytes, d: bytes) -> None:
    """An id stands for subject and payload together, without confusing where one ends."""
    if b"\0" not in a + c:
        assert (digest(a, b) == digest(c, d)) == ((a, b) == (c, d))


@given(
    st.text(st.characters(exclude_categories=["Cs"])),
    st.binary(),
    st.dictionaries(
        st.text(st.characters(codec="ascii")), st.text(st.characters(exclude_categories=["Cs"]))
    ),
)
def test_a_message_is_one_command_or_cannot_be_encoded(
    subject: str, payload: bytes, headers: dict[str, str]
) -> None:
    """No subject and no header adds a word, a header or a command."""
    try:
        line, body, end = Outgoing(subject, payload, "id", headers).command("reply", LIMIT)
    except EncodeError:
        return
    command, _, header = line.partition(b"\r\n")
    words = command.split(b" ")
    assert words[:3] == [b"HPUB", subject.encode(), b"reply"]
    assert [int(word) for word in words[3:]] == [len(header), len(header) + len(payload)]
    assert (body, end) == (payload, b"\r\n")
    lines = header.split(b"\r\n")
    assert lines[0] == b"NATS/1.0"
    assert lines[-3:] == [f"{MESSAGE_ID}: id".encode(), b"", b""]
    assert len(lines) == 4 + len(headers)


def test_headers_arrive_as_they_were() -> None:
    line, *_ = Outgoing("a", b"", "7", {"Ccpipe-Reason": "a: b"}).command("r", LIMIT)
    header = line.partition(b"\r\n")[2]
    assert Delivery("a", b"", header).headers == {"Ccpipe-Reason": "a: b", MESSAGE_ID: "7"}


def test_what_exceeds_the_servers_limit_is_rejected() -> None:
    """With its header, for which the server would end the connection."""
    with pytest.raises(RejectedError, match="max_payload is 1048576"):
        Outgoing("a", b"x" * LIMIT, "id").command("r", LIMIT)
