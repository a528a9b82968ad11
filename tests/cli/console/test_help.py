"""``--help``: each command shows three examples that work, on a screen of 80 columns."""

import itertools
import re
import shlex

import pytest

from ccpipe.cli import COMMANDS
from ccpipe.cli.app import app
from tests.cli.command import ccpipe

SUBCOMMANDS = (
    "acct sacct",
    "auth init",
    "check dead",
    "check freshness",
    "check lag",
    "check streams",
    "config clustercockpit",
    "config show",
    "control get",
    "control put",
    "dead list",
    "dead replay",
    "dead show",
    "profile extract",
    "profile items",
    "profile list",
    "profile merge",
    "profile show",
    "streams apply",
    "streams show",
)
GROUPS = {"auth", "check", "config", "control", "dead", "profile", "streams"}
"""Commands that are nothing without a subcommand."""


def examples(shown: str) -> list[str]:
    """Return the lines of the examples in a help text."""
    block = re.search(r"^Examples:(.*?)\n\n", shown, re.DOTALL | re.MULTILINE)
    assert block, "no examples"
    return [line.strip() for line in block[1].strip().splitlines()]


def invocations(example: str) -> list[list[str]]:
    """Return the arguments of each ``ccpipe`` in a shell line."""
    found: list[list[str]] = []
    current: list[str] | None = None
    for word in shlex.split(example):
        if word == "ccpipe":
            current = []
            found.append(current)
        elif word in ("|", ">"):
            current = None
        elif current is not None:
            current.append(word)
    return found


@pytest.mark.parametrize("command", [*COMMANDS, *SUBCOMMANDS])
def test_help_shows_three_examples_that_parse(command: str) -> None:
    """They stand unbroken, and every option in them exists."""
    shown = ccpipe(*command.split(), "--help")
    assert shown.code == 0
    assert command not in COMMANDS or f"\n{COMMANDS[command]}\n" in shown.out
    lines = examples(shown.out)
    assert len(lines) == 3
    assert max(map(len, lines)) <= 76
    for line in lines:
        calls = invocations(line)
        assert any(call[:1] == command.split()[:1] for call in calls)
        for call in calls:
            app.parse_args(call, exit_on_error=False, print_error=False)


@pytest.mark.parametrize("command", [*COMMANDS, *SUBCOMMANDS])
def test_help_says_what_each_option_is_for(command: str) -> None:
    """No option stands without a word."""
    shown = ccpipe(*command.split(), "--help", COLUMNS="200").out
    rows = re.findall(r"^│ [* ]*(?:--|-|[A-Z]).*│$", shown, re.MULTILINE)
    assert rows or command in GROUPS
    for line in rows:
        name, _, meaning = line.strip("│ *").partition("  ")
        assert re.sub(r"\[[^]]*\]", "", meaning).strip(), name


def test_the_list_of_commands_says_what_each_one_says() -> None:
    """The summaries that stand in the list are those of the commands."""
    shown = ccpipe("--help", COLUMNS="200").out
    for command, summary in COMMANDS.items():
        assert re.search(rf"^  {command} +{re.escape(summary)}$", shown, re.MULTILINE)


@pytest.mark.parametrize("command", [*COMMANDS, *SUBCOMMANDS])
def test_help_fills_its_lines(command: str) -> None:
    """Texts break where the screen ends, not where a line of the source did."""
    shown = ccpipe(*command.split(), "--help", COLUMNS="80").out
    prose = shown.partition("\n\nExamples:")[0].partition("\n\n")[2]
    for paragraph in prose.split("\n\n"):
        lines = paragraph.splitlines()
        for line, after in itertools.pairwise(lines):
            assert len(line.rstrip()) + 1 + len(after.split()[0]) > 79, line
    assert not re.search(r"--no-\S+ .*\[default: False\]", shown)
