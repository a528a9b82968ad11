"""One message to one line: the cases that the encoder leaves to Python."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.errors import EncodeError
from ccpipe.formats.lineprotocol import decode, encode
from ccpipe.formats.lineprotocol.writer import original, write_message, write_time, write_value
from ccpipe.message import Message


class Float(float):
    """A float of another class, as NumPy has them, which prints in its own way."""

    def __repr__(self) -> str:
        return f"Float({float(self)})"


@given(st.from_type(Message), st.sampled_from(["s", "ms", "us", "ns", "auto"]))
def test_a_message_is_written_as_the_encoder_writes_it(message: Message, precision: str) -> None:
    """Byte for byte, in every unit."""
    line = write_message(message, precision)  # type: ignore[arg-type]
    assert line == encode([message], precision=precision)  # type: ignore[arg-type]


def test_an_error_names_the_message() -> None:
    """So that it can be found among thousands."""
    with pytest.raises(EncodeError, match=r"'m' \{'hostname': 'n1'\}: nan cannot be a value"):
        write_message(Message("m", {"hostname": "n1"}, float("nan")), "s")


def test_a_float_of_another_class_is_written_as_a_number() -> None:
    """Its own way to print is not line protocol's."""
    assert write_value(Float(1.5)) == b"1.5"
    assert list(decode(encode([Message("m", {}, Float(1.5))]))) == [Message("m", {}, 1.5)]


def test_a_time_is_written_in_its_unit() -> None:
    """The coarsest that loses nothing, where none is given."""
    assert [write_time(5 * 10**6, unit) for unit in ("s", "ms", "us", "ns", "auto")] == [
        b" 0", b" 5", b" 5000", b" 5000000", b" 5",
    ]  # fmt: skip
    for time in (2**63, -(2**63)):
        with pytest.raises(EncodeError, match="outside 64 bits"):
            write_time(time, "s")


@given(st.from_type(Message))
def test_a_dead_letter_holds_the_line(message: Message) -> None:
    """Without its line end; a message that is no line is printed."""
    assert original(message) + b"\n" == write_message(message, "auto")
    broken = Message("", message.tags, message.value, message.time, message.field)
    assert original(broken) == repr(broken).encode()
