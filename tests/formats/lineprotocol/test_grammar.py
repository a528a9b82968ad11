"""The grammar: its rules, and its expressions against each other."""

import re

import pytest

from ccpipe.formats.lineprotocol import Rule
from ccpipe.formats.lineprotocol.grammar import CC, INFLUX, Grammar
from tests.formats.broken_lines import BROKEN


def test_every_rule_has_a_line_that_breaks_it() -> None:
    """The table of broken lines leaves no rule out; only InfluxDB rejects duplicate tags."""
    assert {rule for _, rule, _ in BROKEN} | {Rule.DUPLICATE_TAG, Rule.UNREAD} == set(Rule)


def test_expressions_are_compiled_when_they_are_used() -> None:
    """Commands start without them: where the kernel reads all lines, none is needed."""
    grammar = Grammar(rb" ", {}, tags_once=True)
    assert not [each for each in vars(grammar).values() if isinstance(each, re.Pattern)]
    assert grammar.key.fullmatch(b"hostname")
    assert grammar.key is grammar.key


@pytest.mark.parametrize("piece", [b"\\", b'"', b",t=", b" v=1", b'v="', b"\\,", b"1", b" "])
def test_matching_takes_linear_time(piece: bytes) -> None:
    """A megabyte that looks like a line up to its end; with backtracking this would take hours."""
    text = b"m" + piece * (2**20 // len(piece)) + b"\x00"
    for grammar in (CC, INFLUX):
        grammar.line.match(text)
