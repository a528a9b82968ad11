"""Plain command lines, by the table of commands; the commands' own tests compare all options."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.cli import COMMANDS
from ccpipe.cli.console.plain import read


def test_values_are_of_their_kinds() -> None:
    """Lists are collected in their order, other options are given once."""
    line = "a.> --job 1 --job=2 --no-follow -o json b --password-file x --count 3 --context "
    found = read("tail", [*line.split(" ")])
    assert found is not None
    assert {key: str(value) for key, value in found.items()} == {
        "subjects": "['a.>', 'b']", "job": "[1, 2]", "follow": "False", "output": "json",
        "password-file": "x", "count": "3", "context": "",
    }  # fmt: skip


@pytest.mark.parametrize(
    "line",
    ["bridge a b", "simulate --late 0.1", "bridge r --config=", "up x", "check lag --warning 1",
     "up --no-dashboard --dashboard", "up --dashboard=x"],
)  # fmt: skip
def test_what_is_not_plain_is_nothing(line: str) -> None:
    """Kinds that it does not know, what is given twice, and what a command does not take."""
    name, *words = line.replace("check ", "check_").split()
    assert read(name.replace("_", " "), words) is None


@given(st.sampled_from(sorted(COMMANDS)), st.lists(st.text(max_size=8), max_size=5))
def test_no_words_raise(name: str, words: list[str]) -> None:
    """Whatever is typed."""
    found = read(name, words)
    assert found is None or isinstance(found, dict)
