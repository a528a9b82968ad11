"""Decoder of a stream of envelopes, with garbage in between, in bounded memory."""

import resource
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ccpipe.errors import CcpipeError
from ccpipe.formats import sonar
from ccpipe.formats.sonar import Decoder, Envelope, Envelopes, RejectedEnvelope, decode
from tests.formats.sonar import examples
from tests.formats.sonar.strategies import envelopes

GOOD = [text.encode() for text in examples.ALL]
ENVELOPES = [decode(good)[0] for good in GOOD]


def in_blocks(payload: bytes, size: int, **options: Any) -> Envelopes:
    decoder = Decoder(**options)
    pieces = [decoder.feed(payload[i : i + size]) for i in range(0, len(payload), size)]
    pieces.append(decoder.finish())
    return Envelopes.concat(pieces)


def both(decoded: Envelopes) -> tuple[list[Envelope], list[RejectedEnvelope]]:
    return list(decoded), decoded.rejected


@pytest.mark.parametrize("between", [b"\n", b"", b"\n\n \t\r\n", b" "])
def test_decoder_reads_concatenated_values(between: bytes) -> None:
    """On separate lines or not, pretty-printed or not."""
    for pretty in (False, True):
        values = [msgspec.json.format(good, indent=2) if pretty else good for good in GOOD]
        decoded = decode(between.join(values))
        assert decoded.rejected == []
        assert decoded == ENVELOPES


@pytest.mark.parametrize("size", [1, 7, 64, 1000, 10**6])
def test_decoder_accepts_blocks_of_any_size(size: int) -> None:
    """Result and positions equal those for the whole payload."""
    bad = [
        b'{"meta":{"producer":"s',
        b"garbage",
        b'{"data":7}',
        b'{"a":[',
        b"\xff\xfe",
        b'{"x":"\xff"}',
    ]
    lines = [line for pair in zip(GOOD, [*bad[:4], b""], strict=True) for line in pair]
    payload = b"\n".join([*lines, msgspec.json.format(GOOD[1]), *bad[4:], GOOD[0]])
    whole = decode(payload)
    assert whole == [*ENVELOPES, ENVELOPES[1], ENVELOPES[0]]
    assert len(whole.rejected) == len(bad)
    assert both(in_blocks(payload, size)) == both(whole)


@pytest.mark.parametrize("spaces", [0, 24, 25, 60, 100])
def test_decoder_finds_envelopes_after_garbage_in_blocks(spaces: int) -> None:
    """For any amount of white space at the start of an envelope."""
    payload = b"\x03{" + b"\t" * spaces + GOOD[0].lstrip()[1:]
    whole = decode(payload)
    differ = {n for n in range(1, 200) if both(in_blocks(payload, n)) != both(whole)}
    assert differ == set()


def test_decoder_returns_envelope_as_soon_as_complete() -> None:
    """Without waiting for the next one or a line end."""
    decoder = Decoder()
    assert decoder.feed(GOOD[0] + b"\n") == [ENVELOPES[0]]
    assert decoder.feed(GOOD[1]) == [ENVELOPES[1]]
    pretty = msgspec.json.format(GOOD[2], indent=4)
    assert decoder.feed(pretty[:100]) == []
    assert decoder.feed(pretty[100:]) == [ENVELOPES[2]]
    assert both(decoder.finish()) == ([], [])


BROKEN = [
    (b'{"meta":{"producer":"s', "invalid character"),
    (b'{"meta":{"producer":"sonar"},"data":', "expected ',' or '}'"),
    (b'{"meta":{},}', "trailing comma"),
    (b'{"meta":{}]', "expected"),
    (b'{"a":[', "expected ',' or ']'"),
    (b'{"a":NaN}', "invalid character"),
    (b'{"a":01}', "invalid number"),
    (b'{"a":"\xff"}', "UTF-8"),
    (b'{"a":"\\ud800 half a character"}', "malformed"),
    (b"{a:1}", "malformed"),
    (b"}", "expected '{'"),
    (b"null", "expected '{'"),
    (b'["a"]', "expected '{'"),
    (b"\x1e", "expected '{'"),
    (b"\xef\xbb\xbf", "byte order mark"),
    (b"\x00\x00", "expected '{'"),
    (b"#comment", "expected '{'"),
]


@pytest.mark.parametrize(("bad", "rule"), BROKEN)
@pytest.mark.parametrize("pretty", [False, True])
def test_decoder_rejects_only_bad_value(bad: bytes, rule: str, pretty: bool) -> None:
    """With line, offset and bytes; the envelopes around it are read."""
    after = msgspec.json.format(GOOD[2], indent=2) if pretty else GOOD[2]
    decoded = decode(GOOD[0] + b"\n" + bad + b"\n" + after + b"\n" + GOOD[3])
    assert decoded == [ENVELOPES[0], ENVELOPES[2], ENVELOPES[3]]
    (rejected,) = decoded.rejected
    assert rule in rejected.rule
    assert rejected.original == bad
    assert rejected.path == "$"
    assert rejected.start == len(GOOD[0]) + 1
    assert rejected.line in (2, 3)  # an unterminated value is an error where the next line begins
    assert str(rejected) == f"line {rejected.line}, byte {rejected.offset}: {rejected.rule}"


@pytest.mark.parametrize("strict", [False, True])
def test_decoder_rejects_only_byte_order_mark(strict: bool) -> None:
    """Go's reader rejects the whole file."""
    decoded = decode(b"\xef\xbb\xbf" + GOOD[0] + b"\n" + GOOD[1], strict=strict)
    assert decoded == ENVELOPES[:2]
    ((rejected),) = decoded.rejected
    assert (rejected.original, rejected.offset) == (b"\xef\xbb\xbf", 0)
    assert rejected.rule == "JSON must not begin with a byte order mark"


def test_decoder_reads_envelopes_of_array() -> None:
    """Brackets and commas are rejected, each at its position."""
    decoded = decode(b"[" + b",".join(GOOD) + b"]")
    assert decoded == ENVELOPES
    assert [bad.original for bad in decoded.rejected] == [b"[", *[b","] * 4, b"]"]


def test_decoder_reads_envelope_after_truncated_one() -> None:
    """On the same line too: it resumes at a key that starts an envelope."""
    decoded = decode(b'{"meta":{"producer":"x", ' + GOOD[1] + GOOD[2])
    assert decoded == [ENVELOPES[1], ENVELOPES[2]]
    assert len(decoded.rejected) == 1


def test_decoder_rejects_incomplete_envelope_at_end() -> None:
    decoded = in_blocks(GOOD[0] + GOOD[1][:-20], 100)
    assert decoded == [ENVELOPES[0]]
    assert decoded.rejected[0].rule == "JSON ends too early"
    assert decoded.rejected[0].offset == len(GOOD[0]) + len(GOOD[1]) - 20
    assert both(decode(b"")) == both(decode(b" \n ")) == ([], [])


def test_position_of_broken_rule_is_start_of_envelope() -> None:
    """The line and the offset lead an editor there; the excerpt shows it."""
    payload = GOOD[0] + b'\n\n  {"meta":{},\n"errors":[{"detail":7}]}\n'
    (bad,) = decode(payload).rejected
    assert (bad.line, bad.offset) == (3, len(GOOD[0]) + 4)
    assert (bad.path, bad.value) == ("$.errors[0].detail", 7)
    assert bad.excerpt == r'{"meta":{},\n"errors":[{"detail":7}]}'


def test_excerpt_shows_position_of_syntax_error() -> None:
    """Sixty printable bytes around it."""
    (bad,) = decode(b'{"meta":{"producer":"' + b"x" * 100 + b"\x01\xff").rejected
    assert bad.excerpt == "…" + "x" * 30 + r"\x01\xff"


def test_decoder_rejects_too_large_envelope() -> None:
    """Memory is bounded, and the next envelope is read."""
    large = GOOD[1].replace(b'"mlx', b'"' + b"x" * 5000 + b"mlx")
    payload = GOOD[1] + b"\n" + large + b"\n" + GOOD[2] + b"\n"
    decoded = in_blocks(payload, 100, largest=4000)
    assert decoded == [ENVELOPES[1], ENVELOPES[2]]
    assert decoded.rejected[0].rule == "the envelope is larger than 4000 bytes"
    assert b"".join(bad.original for bad in decoded.rejected) == large
    assert decode(payload).rejected == []


def test_decoder_memory_does_not_grow_with_envelopes() -> None:
    """Valid or not."""
    sample = (
        b'{"meta":{"producer":"sonar","version":"0.19.0"},"data":{"type":"sample","attributes":'
    )
    sample += b'{"time":"2025-04-07T14:17:11+02:00","cluster":"fox","node":"c1","jobs":[]}}}\n'
    block = (sample * 9 + b'{"meta":{"producer":7}}\n') * 50
    decoder = Decoder()
    good = bad = 0
    for round_ in range(200):
        decoded = decoder.feed(block)
        good, bad = good + len(decoded), bad + len(decoded.rejected)
        if round_ == 20:
            before = resident()
    assert (good, bad) == (90_000, 10_000)
    assert resident() - before < 4 * 2**20


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def test_decoder_memory_does_not_grow_with_garbage() -> None:
    """Garbage is returned in pieces, without loss."""
    decoder = Decoder(largest=2**16)
    block = bytes(range(14, 256)).replace(b"{", b"") * 64
    pieces = [bad.original for _ in range(40) for bad in decoder.feed(block).rejected]
    assert len(decoder._buffer) <= 2 * 2**16 + len(block)
    pieces += [bad.original for bad in decoder.finish().rejected]
    assert sum(map(len, pieces)) == 40 * len(block)


@pytest.mark.parametrize("line", [b'{"a":[\n', b'{"meta":', b'{"a":1}', b'{"', b"[{", b"{}\n"])
def test_decoder_takes_linear_time(line: bytes) -> None:
    """A thousand equally broken values are each reported once."""
    assert len(decode(line * 2000).rejected) <= 2000


KEYS = st.sampled_from(["meta", "data", "errors", "type", "attributes", "jobs", "x"])
TREES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)
PIECES = st.one_of(
    st.binary(max_size=20),
    st.sampled_from(GOOD),
    st.builds(lambda text, cut: text[: cut % len(text)], st.sampled_from(GOOD), st.integers(0)),
    TREES.map(msgspec.json.encode),
    TREES.map(lambda tree: GOOD[0][:-2] + b',"zzz":' + msgspec.json.encode(tree) + b"}}"),
    st.sampled_from([b"\n", b"{", b"}", b'"', b'{"meta":{}}', b"\\", b"[", b"]"]),
)


@given(st.lists(PIECES, max_size=6).map(b"".join), st.integers(1, 50), st.booleans())
@example(b'{"a":"\\ud800"}', 3, False)
def test_decoder_decodes_or_rejects_any_bytes(payload: bytes, size: int, strict: bool) -> None:
    """In blocks or at once; the rejected parts are complete."""
    whole = decode(payload, strict=strict)
    decoder = Decoder(strict=strict)
    pieces = [decoder.feed(payload[i : i + size]) for i in range(0, len(payload), size)]
    pieces.append(decoder.finish())
    assert [e for piece in pieces for e in piece] == whole
    for bad in whole.rejected:
        assert str(bad)
        assert bad.excerpt is not None
        assert payload[bad.start : bad.start + len(bad.original)] == bad.original
    for envelope in whole:
        try:
            assert decode(sonar.encode(envelope)) == [envelope]
        except CcpipeError as error:
            pytest.fail(f"a decoded value cannot be encoded: {error}")


@given(st.lists(envelopes, max_size=4), st.booleans())
def test_decoder_restores_any_valid_envelope(members: list[Envelope], strict: bool) -> None:
    """Strict or tolerant, from concatenated envelopes."""
    decoded = decode(b"".join(map(sonar.encode, members)), strict=strict)
    assert both(decoded) == (members, [])


def test_complete_is_position_to_resume() -> None:
    """A stream that is resumed there has neither losses nor duplicates."""
    payload = b"\n".join([GOOD[0], b"broken", GOOD[2], b""])
    whole = decode(payload)
    for cut in range(0, len(payload), 7):
        first = Decoder()
        before = first.feed(payload[:cut])
        assert first.complete <= cut
        after = decode(payload[first.complete :])
        assert before + after == whole
        rejected = [bad.original for bad in before.rejected + after.rejected]
        assert rejected == [bad.original for bad in whole.rejected] == [b"broken"]
