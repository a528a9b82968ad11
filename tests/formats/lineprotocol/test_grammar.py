"""The grammar: expressions, diagnosis of broken lines, and repairs of ``lenient``."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.formats.lineprotocol import Rule, decode
from ccpipe.formats.lineprotocol.grammar import CC, INFLUX, Grammar
from ccpipe.formats.lineprotocol.mistakes import diagnose
from ccpipe.message import Message
from tests.formats.broken_lines import BROKEN


def test_every_rule_has_broken_line() -> None:
    """Except for duplicate tags, which only InfluxDB rejects."""
    assert {rule for _, rule, _ in BROKEN} | {Rule.DUPLICATE_TAG, Rule.UNREAD} == set(Rule)


def test_expressions_are_compiled_on_first_use() -> None:
    """Commands start faster: if the kernel reads all lines, none is needed."""
    grammar = Grammar(rb" ", {}, tags_once=True)
    assert not [each for each in vars(grammar).values() if isinstance(each, re.Pattern)]
    assert grammar.key.fullmatch(b"hostname")
    assert grammar.key is grammar.key


@pytest.mark.parametrize("piece", [b"\\", b'"', b",t=", b" v=1", b'v="', b"\\,", b"1", b" "])
def test_matching_takes_linear_time(piece: bytes) -> None:
    """A megabyte that resembles a line up to its end; backtracking would take hours."""
    text = b"m" + piece * (2**20 // len(piece)) + b"\x00"
    for grammar in (CC, INFLUX):
        grammar.line.match(text)


SECOND = 10**9


@given(
    st.lists(
        st.sampled_from(
            [b"m", b",t=a", b" v=1", b" 17", b"\n", b'"', b"\\", b"=", b",", b" ", b"#", b"\r",
             b'v="x"', b"t", b"-", b"\x00", b"\xff"]
        ),
        max_size=12,
    ).map(b"".join)
    | st.binary(max_size=20),
    st.sampled_from([CC, INFLUX]),
)  # fmt: skip
def test_diagnosis_finds_rule_and_offset_for_any_broken_line(line: bytes, grammar: Grammar) -> None:
    """The offset is within the line or at its end."""
    if grammar.line.match(line) is None:
        rule, offset = diagnose(line, 0, len(line), grammar)
        assert isinstance(rule, Rule)
        assert 0 <= offset <= len(line)


@pytest.mark.parametrize(
    ("line", "rule", "message"),
    [
        (
            b'job,b=2,a=1 event={"jobId": 69, "state": "a b"} 5',
            Rule.VALUE,
            Message(
                "job", {"a": "1", "b": "2"}, '{"jobId": 69, "state": "a b"}', 5 * SECOND, "event"
            ),
        ),
        (b"job event={}", Rule.VALUE, Message("job", {}, "{}", None, "event")),
        (
            b"rapl control=intel.pkg 5",
            Rule.VALUE,
            Message("rapl", {}, "intel.pkg", 5 * SECOND, "control"),
        ),
        (
            b'job event={"a": "\\n"} 5',
            Rule.VALUE,
            Message("job", {}, '{"a": "\\n"}', 5 * SECOND, "event"),
        ),
        (b"load, value=1 5", Rule.TAG_KEY, Message("load", {}, 1.0, 5 * SECOND)),
        (b"load,a=1,b= value=1 5", Rule.TAG_VALUE, Message("load", {"a": "1"}, 1.0, 5 * SECOND)),
        (b"load,a=,b=\\,,c= value=1", Rule.TAG_VALUE, Message("load", {"b": ","}, 1.0)),
        (b"load,a= event=x\r", Rule.TAG_VALUE, Message("load", {}, "x", None, "event")),
    ],
)  # fmt: skip
def test_decoder_repairs_known_errors_only_if_lenient(
    line: bytes, rule: Rule, message: Message
) -> None:
    """Otherwise they are rejected with their rule."""
    assert [bad.rule for bad in decode(line).rejected] == [rule]
    lines = decode(b"a v=1 1\n" + line + b"\nb v=2 2", lenient=True)
    assert (list(lines)[1:-1], lines.rejected) == ([message], [])
    assert lines.verbatim is False
    assert lines.payload[lines.starts[1] : lines.ends[1]] == line.rstrip(b"\r")


@pytest.mark.parametrize(
    "line",
    [b"load value=P0 5", b"job event=a b", b"job event={} x", b"load,=1 value=1", b"load value=1 x",
     b"job event={\xff} 5", b"load,a= value=1e999", b'job event={"a": 1', b"x,t=\xff, v=1 1"],
)  # fmt: skip
def test_lenient_decoder_rejects_other_errors(line: bytes) -> None:
    """Repair does not guess; the reason refers to the original line."""
    strict, lenient = decode(line), decode(line, lenient=True)
    assert lenient.rejected == strict.rejected
    assert len(lenient.rejected) == 1
    assert list(lenient.texts) == []


def test_repair_of_million_escaped_commas_takes_linear_time() -> None:
    """Each comma is read once; quadratic time would take hours."""
    line = b"m,a" + b"\\," * 500_000 + b"=,b= v=1"
    assert len(decode(line, lenient=True)) == 1
