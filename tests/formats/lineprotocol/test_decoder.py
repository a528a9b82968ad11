"""Decoder: the grammar rule by rule, and invariants for any bytes."""

import inspect
import pickle
import pydoc
import re
from array import array
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st
from line_protocol_parser import parse_line

from ccpipe.errors import UsageError
from ccpipe.formats.lineprotocol import Dialect, Lines, Rule, ValueType, decode, decoder, encode
from ccpipe.formats.lineprotocol.decoder import join, rows_before
from ccpipe.formats.lineprotocol.kernel import KERNEL
from ccpipe.message import Message, Uint, Value
from tests.formats.broken_lines import BROKEN
from tests.paths import TEST_DATA

SECOND = 10**9


@pytest.mark.parametrize(("line", "rule", "offset"), BROKEN, ids=lambda part: repr(part)[:40])
def test_decoder_rejects_broken_line_with_rule_and_position(
    line: bytes, rule: Rule, offset: int
) -> None:
    """Other lines are decoded."""
    before, after = b"a value=1 1\n", b"\nb value=2 2"
    alone = decode(line)
    assert [(bad.rule, bad.offset, bad.column) for bad in alone.rejected] == [
        (rule, offset, offset + 1)
    ]
    assert len(alone) == 0
    if rule is Rule.QUOTE:
        return  # its string includes the next lines: see the test of open strings
    lines = decode(before + line + after)
    assert [message.name for message in lines] == ["a", "b"]
    (bad,) = lines.rejected
    assert (bad.line, bad.offset, bad.column) == (2, len(before) + offset, offset + 1)
    assert (bad.rule, bad.original) == (rule, line)


def test_influx_decoder_rejects_duplicate_tag() -> None:
    """InfluxDB rejects duplicate tags (``models.ParsePoints``: "duplicate tags")."""
    for line, offset in [(b"load,a=1,b=2,a=3 value=1", 13), (b"load,a\\ =1,a\\ =2 value=1", 11)]:
        (bad,) = decode(line, dialect="influx").rejected
        assert (bad.rule, bad.offset) == (Rule.DUPLICATE_TAG, offset)


VALID: list[tuple[bytes, Message]] = [
    (b"load value=1", Message("load", {}, 1.0)),
    (b"  load   value=1   5  ", Message("load", {}, 1.0, 5 * SECOND)),
    (b"load value=1 5\r", Message("load", {}, 1.0, 5 * SECOND)),
    (b"load value=1 -5", Message("load", {}, 1.0, -5 * SECOND)),
    (b"load value=1 ", Message("load", {}, 1.0)),
    (b"lo\\ ad,b\\=\\,=x\\ y,a=\\z value=1", Message("lo ad", {"a": "\\z", "b=,": "x y"}, 1.0)),
    (b"a=b value=1", Message("a=b", {}, 1.0)),
    (b'"a" value=1', Message('"a"', {}, 1.0)),
    (b"load,t=last,t=wins value=1", Message("load", {"t": "wins"}, 1.0)),
    (b"load,t=z,t=a value=1", Message("load", {"t": "a"}, 1.0)),
    (b"load a\\=b=1", Message("load", {}, 1.0, field="a=b")),
    (
        "läuft,größe=schön wärme=1".encode(),
        Message("läuft", {"größe": "schön"}, 1.0, None, "wärme"),
    ),
    (
        b'log log="a\\\\b\\"c\\nd\\re\\tf\\g" 1',
        Message("log", {}, 'a\\b"c\nd\re\tf\\g', SECOND, "log"),
    ),
    (b'log log="line 1\nline 2" 1', Message("log", {}, "line 1\nline 2", SECOND, "log")),
    (b'log log="" 1', Message("log", {}, "", SECOND, "log")),
    (b'log log="\x01\x00" 1', Message("log", {}, "\x01\x00", SECOND, "log")),
    (b"load,k=" + b"v" * 65528 + b" value=1", Message("load", {"k": "v" * 65528}, 1.0)),
]


@pytest.mark.parametrize(("line", "message"), VALID, ids=lambda part: repr(part)[:40])
def test_decoder_reads_valid_line(line: bytes, message: Message) -> None:
    """Escapes, spaces, line ends, duplicates and limits are read as in ClusterCockpit."""
    lines = decode(line + b"\n")
    assert (list(lines), lines.rejected) == ([message], [])


@pytest.mark.parametrize(
    ("token", "value"),
    [
        (b"1", 1.0),
        (b"-1.", -1.0),
        (b".5", 0.5),
        (b"-.5e+2", -50.0),
        (b"1.2033E-12", 1.2033e-12),
        (b"0.1", 0.1),
        (b"1e-400", 0.0),
        (b"1.7976931348623157e308", 1.7976931348623157e308),
        (b"5e-324", 5e-324),
        (b"123456789012345678901234567890", 123456789012345678901234567890.0),
        (b"0.30000000000000004", 0.30000000000000004),
        (b"9007199254740993", 9007199254740992.0),
        (b"0i", 0),
        (b"-007i", -7),
        (b"9223372036854775807i", 2**63 - 1),
        (b"-9223372036854775808i", -(2**63)),
        (b"0u", Uint(0)),
        (b"18446744073709551615u", Uint(2**64 - 1)),
        (b"9007199254740993i", 2**53 + 1),
        *((word, True) for word in (b"t", b"T", b"true", b"True", b"TRUE")),
        *((word, False) for word in (b"f", b"F", b"false", b"False", b"FALSE")),
    ],
)
def test_decoder_keeps_type_and_precision_of_values(token: bytes, value: Value) -> None:
    """Integers never pass through a double; floats are the nearest double."""
    (message,) = decode(b"load value=" + token)
    assert (message.value, type(message.value)) == (value, type(value))


def test_decoder_keeps_sign_of_negative_zero() -> None:
    assert str(decode(b"load value=-0")[0].value) == "-0.0"


def test_decoder_returns_row_for_each_field() -> None:
    """A duplicate field has the position of the first and the value of the last."""
    lines = decode(b'load,host=a rank=0i,value=66,note="x,y=z",value=67 5\n')
    assert [(m.field, m.value, m.time) for m in lines] == [
        ("rank", 0, 5 * SECOND),
        ("value", 67.0, 5 * SECOND),
        ("note", "x,y=z", 5 * SECOND),
    ]
    assert list(lines.types) == [ValueType.INT, ValueType.FLOAT, ValueType.TEXT]


def test_decoder_skips_comments_and_blank_lines() -> None:
    """They count as lines, and may also end with the payload."""
    lines = decode(b"# a\n\n  \r\n  #b=\x01 \r\nload value=1\n\r\nbad\n # end")
    assert [m.name for m in lines] == ["load"]
    assert [bad.line for bad in lines.rejected] == [7]


def test_influx_decoder_keeps_backslash_n_as_two_characters() -> None:
    """InfluxDB's strings escape quote and backslash only; its names may contain control bytes."""
    line = b'm,t=a\tb f="x\\ny\\\\\\"" 1'
    (message,) = decode(line, dialect="influx")
    assert (message.value, message.tags) == ('x\\ny\\"', {"t": "a\tb"})
    assert decode(line).rejected[0].rule is Rule.NO_FIELD


@pytest.mark.parametrize(
    ("precision", "time"),
    [("s", 5 * 10**9), ("ms", 5 * 10**6), ("us", 5 * 10**3), ("ns", 5), ("auto", 5 * 10**9)],
)
def test_decoder_applies_given_precision(precision: str, time: int) -> None:
    """The unit is used for any magnitude."""
    assert decode(b"m v=1 5", precision=precision)[0].time == time  # type: ignore[arg-type]


def test_decoder_rejects_time_beyond_64_bits_of_nanoseconds() -> None:
    """Times are never wrapped or truncated."""
    assert decode(b"m v=1 9223372036", precision="s")[0].time == 9223372036 * SECOND
    (bad,) = decode(b"m v=1 9223372037", precision="s").rejected
    assert bad.rule is Rule.TIME_RANGE


def test_decode_is_documented_with_and_without_kernel() -> None:
    """Signature, annotations and docstring equal the Python function."""
    signature = inspect.signature(decode, eval_str=True)
    assert list(signature.parameters) == [
        "payload",
        "precision",
        "dialect",
        "lenient",
        "max_rejected",
    ]
    assert signature.return_annotation is Lines
    assert "No payload raises." in pydoc.plain(pydoc.render_doc(decode))
    assert pickle.loads(pickle.dumps(decode)) is decode  # noqa: S301 - our own bytes


def test_decoder_rejects_unknown_precision_or_dialect() -> None:
    """The message names the choices."""
    with pytest.raises(UsageError, match="not one of s, ms, us, ns, auto"):
        decode(b"", precision="m")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="not one of cc, influx"):
        decode(b"", dialect="prometheus")  # type: ignore[arg-type]


def test_decoder_rejects_only_line_with_open_string() -> None:
    """The lines after an unclosed string are read again."""
    lines = decode(b'm v=1 1\nlog log="open 2\nm v=3 3\nm v=4 4\n')
    assert [m.value for m in lines] == [1.0, 3.0, 4.0]
    (bad,) = lines.rejected
    assert (bad.line, bad.rule, bad.original) == (2, Rule.QUOTE, b'log log="open 2')


def test_decoder_ends_strings_with_their_line_after_budget() -> None:
    """Every string here extends to the payload's end; good lines are still decoded."""
    hostile = b'm v=1",w="\n' * 2000
    payload = hostile + b"good value=1 1\n" + b'"'
    lines = decode(payload)
    assert [m.name for m in lines] == ["good"]
    assert len(lines.rejected) == 2001


@pytest.mark.parametrize("name", ["body.00001.lp", "body.00003.lp", "body.00016.lp"])
def test_decoder_reads_bodies_of_slurms_influxdb_plugin(name: str) -> None:
    """Every line of a real body becomes a row; the re-encoded rows mean the same."""
    body = (TEST_DATA / "slurm_influx" / name).read_bytes()
    lines = decode(body, dialect="influx")
    assert (len(lines), lines.rejected, lines.precision) == (body.count(b"\n"), [], "s")
    assert set(lines[0].tags) == {"host", "job", "step", "task"}
    assert lines.passthrough() == body
    assert list(decode(encode(lines))) == list(lines)


# Bytes that look like line protocol more often than not.
crumbs = st.sampled_from(
    [b"m", b",t=a", b" v=1", b" 1740027951", b"\n", b'"', b"\\", b"=", b",", b" ", b"#", b"\r",
     b'v="x"', b"1i", b"2u", b"t", b"-", b".5e3", b"\x00", b"\xff", "ü".encode(), b"i", b"99999999"]
)  # fmt: skip
payloads = st.lists(crumbs, max_size=40).map(b"".join) | st.binary(max_size=60)
dialects: st.SearchStrategy[Dialect] = st.sampled_from(["cc", "influx"])
SKIPPED = re.compile(rb" *(#.*)?\r?", re.DOTALL)


@given(payloads, dialects, st.booleans())
def test_decoder_decodes_or_rejects_any_bytes(
    payload: bytes, dialect: Dialect, lenient: bool
) -> None:
    """No bytes raise; each line is a row, a rejection, a comment, blank, or part of a string."""
    lines = decode(payload, dialect=dialect, lenient=lenient)
    spans = dict(zip(lines.starts, lines.ends, strict=True))
    begins = [0, *(end.end() for end in re.finditer(rb"\n", payload))]
    for bad in lines.rejected:
        begin = begins[bad.line - 1]
        begin += len(payload[begin:]) - len(payload[begin:].lstrip(b" "))
        assert payload.startswith(bad.original, begin)
        assert begin not in spans
        spans[begin] = begin + len(bad.original)
    position = 0
    for begin, end in [*sorted(spans.items()), (len(payload), len(payload))]:
        assert all(SKIPPED.fullmatch(part) for part in payload[position:begin].split(b"\n"))
        position = end


@given(payloads, dialects)
def test_columns_equal_messages(payload: bytes, dialect: Dialect) -> None:
    """A row's message is its columns; a row's bytes decode to it again."""
    lines = decode(payload, dialect=dialect)
    for index, message in enumerate(lines):
        again = decode(payload[lines.starts[index] : lines.ends[index]], dialect=dialect)
        assert message in list(again)
        assert not again.rejected
        if not isinstance(message.value, str):
            assert lines.numbers[index] == float(message.value)


ascii_names = st.text("abcXYZ019_-.:/", min_size=1, max_size=8)
ascii_tokens = st.one_of(
    # It rejects subnormal numbers, which the grammar allows.
    st.floats(allow_nan=False, allow_infinity=False, allow_subnormal=False).map(repr),
    st.integers(-(2**63), 2**63 - 1).map("{}i".format),
    st.integers(0, 2**64 - 1).map("{}u".format),
    st.sampled_from(["t", "F", "true", "FALSE", "True"]),
    st.text("abc,= \\x01", max_size=8).filter(lambda t: "\\" not in t).map('"{}"'.format),
)


@given(
    ascii_names,
    st.dictionaries(ascii_names, ascii_names, max_size=4),
    st.dictionaries(ascii_names, ascii_tokens, min_size=1, max_size=3),
    st.none() | st.integers(-(2**62), 2**62),
)
def test_decoder_agrees_with_line_protocol_parser(
    name: str, tags: dict[str, str], fields: dict[str, str], time: int | None
) -> None:
    """``line_protocol_parser`` agrees on measurement, tags, fields and time of valid lines."""
    line = ",".join([name, *(f"{k}={v}" for k, v in tags.items())])
    line += " " + ",".join(f"{k}={v}" for k, v in fields.items())
    line += "" if time is None else f" {time}"
    theirs = parse_line(line)
    lines = decode(line.encode(), precision="ns")
    assert {m.field: m.value for m in lines} == theirs["fields"]
    assert {(m.name, tuple(m.tags.items()), m.time) for m in lines} == {
        (theirs["measurement"], tuple(sorted(tags.items())), theirs["time"])
    }


def test_decoder_returns_no_rows_for_empty_payload() -> None:
    for payload in (b"", b"\n", b"  ", b"#", b"\r\n\r\n", b"\r"):
        lines = decode(payload)
        assert (len(lines), lines.rejected, lines.passthrough()) == (0, [], None)


def test_decoder_reads_large_payloads_in_linear_time() -> None:
    """A megabyte of text, a million tags, a hundred thousand fields."""
    text = b"x" * 2**20
    assert decode(b'log log="%b" 1' % text)[0].value == text.decode()
    fields = b",".join(b"f%d=%di" % (i, i) for i in range(100_000))
    assert len(decode(b"m " + fields)) == 100_000
    tags = b"".join(b",t%d=1" % i for i in range(1_000_000))
    assert decode(b"m" + tags + b" v=1").rejected[0].rule is Rule.KEY_LENGTH


@given(st.lists(st.sampled_from([b"bad", b"good value=1 1", b"", b'open value="x']), max_size=12))
def test_decoder_bounds_number_of_rejected_lines(lines: list[bytes]) -> None:
    """The rest after the maximum is rejected as one; up to there the result is the same."""
    payload = b"\n".join(lines)
    everything = decode(payload)
    for limit in range(4):
        part = decode(payload, max_rejected=limit)
        assert part.rejected[:limit] == everything.rejected[:limit]
        if len(part.rejected) > limit:
            (rest,) = part.rejected[limit:]
            assert rest.rule is Rule.UNREAD
            assert payload.endswith(rest.original)
            assert rest.offset == len(payload) - len(rest.original)
            good = decode(rest.original)
            assert len(part) + len(good) == len(everything)
        else:
            assert len(part) == len(everything)


several = st.lists(
    st.lists(st.sampled_from([b"m v=1 5", b"\n", b'"', b"\\", b"\0", b"x"]), max_size=4).map(
        b"".join
    ),
    max_size=6,
)
implementations = st.sampled_from([KERNEL, None])


@given(several, implementations)
def test_join_returns_end_of_every_payload(
    payloads: list[bytes], kernel: ModuleType | None
) -> None:
    """Each keeps its bytes, and ends in one LF, its own or an added one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decoder, "KERNEL", kernel)
        joined = join(payloads)
    if any(b'"' in payload or payload.endswith(b"\\") for payload in payloads):
        assert joined is None
        return
    assert joined is not None
    whole, ends = joined
    starts = [0, *ends[:-1]]
    for payload, start, end in zip(payloads, starts, ends, strict=False):
        assert whole[start:end] == (payload if payload.endswith(b"\n") else payload + b"\n")
    assert len(whole) == (ends[-1] if ends else 0)


columns = st.lists(st.integers(0, 20)).map(lambda found: array("q", sorted(found)))


@given(columns, columns, implementations)
def test_rows_before_counts_rows_up_to_each_end(
    starts: "array[int]", ends: "array[int]", kernel: ModuleType | None
) -> None:
    """Some payloads have no rows."""
    expected = [sum(start < end for start in starts) for end in ends]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decoder, "KERNEL", kernel)
        assert list(rows_before(starts, ends)) == expected
