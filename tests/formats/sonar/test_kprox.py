"""The stream for Sonar's Kafka proxy: split into messages, in bounded memory."""

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.errors import DataError
from ccpipe.formats.sonar.kprox import MAX_CONTROL, KproxControl, KproxDecoder, KproxTooLarge

LARGEST = 1000


def control_of(data: bytes, **more: object) -> bytes:
    fields = {"topic": "h2.test.sample", "key": "vm", "client": "h2.test/vm", **more}
    return json.dumps(fields | {"data-size": len(data)}).encode() + b"\n"


def feed_in_blocks(decoder: KproxDecoder, stream: bytes, size: int) -> list[bytes]:
    found: list[bytes] = []
    for start in range(0, len(stream), size):
        found += decoder.feed(stream[start : start + size])
        assert decoder.buffered <= max(LARGEST, MAX_CONTROL) + size
    decoder.finish()
    return found


@given(
    st.lists(st.tuples(st.binary(max_size=100), st.integers(0, 3)), max_size=5), st.integers(1, 50)
)
def test_decoder_yields_data_for_any_blocks(messages: list[tuple[bytes, int]], size: int) -> None:
    """Each control object is checked before its data; newlines between messages do not matter."""
    stream = b"".join(
        b"\n" * blank + control_of(data, **{"sasl-user": f"u{number}"}) + data
        for number, (data, blank) in enumerate(messages)
    )
    checked: list[KproxControl] = []
    decoder = KproxDecoder(LARGEST, checked.append)
    assert feed_in_blocks(decoder, stream + b"\n\n", size) == [data for data, _ in messages]
    assert [each.sasl_user for each in checked] == [f"u{n}" for n in range(len(messages))]


def test_decoder_reads_control_object_of_sonar() -> None:
    """Byte for byte as Sonar sends it, with unknown keys ignored."""
    checked: list[KproxControl] = []
    line = (
        b'\n{"topic":"h2.test.sample","key":"vm","client":"h2.test/vm","sasl-user":"h2.test", '
        b'"sasl-password":"p","data-size":3,"later":1}\nabc\n'
    )
    assert list(KproxDecoder(LARGEST, checked.append).feed(line)) == [b"abc"]
    assert checked == [KproxControl("h2.test.sample", 3, "vm", "h2.test/vm", "h2.test", "p")]


@given(st.binary(max_size=300), st.integers(1, 50))
def test_decoder_reads_or_rejects_any_bytes(stream: bytes, size: int) -> None:
    with contextlib.suppress(DataError):
        feed_in_blocks(KproxDecoder(LARGEST, lambda _: None), stream, size)


@pytest.mark.parametrize(
    ("stream", "error", "reason"),
    [
        (control_of(bytes(LARGEST + 1)), KproxTooLarge, "message 1: 1001 bytes, at most 1000"),
        (b"x" * (MAX_CONTROL + 1), KproxTooLarge, "control object 1: more than 65536 bytes"),
        (control_of(b"a") + b"a" + b"[]\n", DataError, "control object 2: Expected `object`"),
        (b'{"topic":"t"}\n', DataError, "missing required field `data-size`"),
        (b'{"topic":"t","data-size":-1}\n', DataError, "data-size -1"),
        (b'{"topic":"\xff","data-size":1}\n', DataError, "control object 1"),
        (control_of(b"abc") + b"ab", DataError, "truncated in message 1"),
        (b'{"topic":"t"', DataError, "truncated in message 1"),
    ],
)
def test_decoder_rejects_invalid_stream(stream: bytes, error: type[DataError], reason: str) -> None:
    """With position and expectation."""
    with pytest.raises(error, match=reason.replace("[", "\\[")):
        feed_in_blocks(KproxDecoder(LARGEST, lambda _: None), stream, 7)


def test_decoder_takes_linear_time_for_many_small_messages() -> None:
    """Whatever the size of a block: what is buffered is not copied for each message."""
    count = 400_000
    stream = control_of(b"") * count
    decoder = KproxDecoder(LARGEST, lambda _: None)
    assert sum(1 for _ in decoder.feed(stream)) == count


def test_decoder_checks_message_before_its_data_arrive() -> None:
    """An unauthorized sender is rejected at the first line."""

    def refuse(_: KproxControl) -> None:
        raise PermissionError

    with pytest.raises(PermissionError):
        list(KproxDecoder(LARGEST, refuse).feed(control_of(b"abc")))
