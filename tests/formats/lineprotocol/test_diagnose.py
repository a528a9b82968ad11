"""``diagnose``: the rule that a line breaks, and where."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.formats.lineprotocol import Rule
from ccpipe.formats.lineprotocol.diagnose import diagnose
from ccpipe.formats.lineprotocol.grammar import CC, INFLUX, Grammar
from tests.formats.broken_lines import BROKEN

UNGRAMMATICAL = [case for case in BROKEN if not CC.line.match(case[0])]


@pytest.mark.parametrize(
    ("line", "rule", "offset"), UNGRAMMATICAL, ids=lambda part: repr(part)[:40]
)
def test_a_broken_line_is_diagnosed(line: bytes, rule: Rule, offset: int) -> None:
    """At its own offset in a payload."""
    assert diagnose(line, 0, len(line), CC) == (rule, offset)
    before, after = b"m v=1\n", b"\nm v=2"
    payload = before + line + after
    end = len(before) + len(line)
    assert diagnose(payload, len(before), end, CC) == (rule, len(before) + offset)


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
def test_every_ungrammatical_line_has_a_diagnosis(line: bytes, grammar: Grammar) -> None:
    """A rule, and an offset within the line or at its end."""
    if grammar.line.match(line) is None:
        rule, offset = diagnose(line, 0, len(line), grammar)
        assert isinstance(rule, Rule)
        assert 0 <= offset <= len(line)
