"""Mistakes in a command line are told in its own words."""

import pytest

from tests.cli.command import ccpipe


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("tail --kind foo", "--kind: 'foo' is none of metric, event, log, control, other"),
        ("tail --bogus", "Unknown option: --bogus"),
        ("version one two", "unexpected argument: one, two; see ccpipe version --help"),
        ("tail --count x", "--count: not a whole number: 'x'"),
        ("tail --count", "--count needs a value; see ccpipe tail --help"),
        ("convert", "--to needs a value; see ccpipe convert --help"),
        ("convert --to x", "--to: 'x' is none of line, json, csv, sonar, events"),
        ("bridge", "RECIPE is missing; see ccpipe bridge --help"),
        ("tial", 'Unknown command "tial". Did you mean "tail"?'),
    ],
)
def test_a_mistake_is_named_as_it_was_typed(line: str, says: str) -> None:
    """Exit code 64, one line, no names of types."""
    shown = ccpipe(*line.split())
    assert (shown.code, shown.out) == (64, "")
    assert says in shown.err
    assert len(shown.err.splitlines()) == 1
    assert "Literal" not in shown.err
    assert "Tokens" not in shown.err
