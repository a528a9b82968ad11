"""``--help``: each command shows three examples that work, on a screen of 80 columns."""

import itertools
import re
import shlex

import pytest
from cyclopts import CycloptsError

from ccpipe.cli import COMMANDS
from ccpipe.cli.app import app
from ccpipe.cli.console.help import CommandEntry, CommandOption, command_entry, subcommands
from tests.cli.command import ccpipe
from tests.paths import ROOT

SUBCOMMANDS = [f"{name} {sub}" for name in COMMANDS for sub in subcommands(app[name])]
GROUPS = {
    "acct", "auth", "check", "config", "control", "dead-letters", "hdf5", "nodelist", "streams",
}  # fmt: skip
"""Commands that are nothing without a subcommand."""


def examples(shown: str) -> list[str]:
    block = re.search(r"^Examples:(.*)", shown, re.DOTALL | re.MULTILINE)
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
    """Examples are not wrapped, and every option in them exists; other text is wrapped."""
    shown = ccpipe(*command.split(), "--help", COLUMNS="80")
    assert shown.code == 0
    assert command not in COMMANDS or shown.out.startswith(f"{COMMANDS[command]}\n")
    lines = examples(shown.out)
    assert len(lines) == 3
    assert max(map(len, lines)) <= 76
    for line in lines:
        calls = invocations(line)
        assert any(call[:1] == command.split()[:1] for call in calls)
        for call in calls:
            app.parse_args(call, exit_on_error=False, print_error=False)
    paragraphs = [each for each in shown.out.split("\n\n") if not each.startswith("Usage: ")]
    for paragraph in itertools.takewhile(lambda text: "\n  " not in text, paragraphs):
        for line, after in itertools.pairwise(paragraph.splitlines()):
            assert len(line) + 1 + len(after.split()[0]) > 80, line
    assert max(map(len, shown.out.splitlines())) <= 80
    entry = command_entry(app, command.split())
    rows = {line.strip() for line in re.split(r"\n|  +", shown.out)}
    assert {option.form for option in (*entry.arguments, *entry.options)} <= rows


def test_list_of_commands_has_summary_of_each_command() -> None:
    """The first line of its help."""
    shown = ccpipe("--help", COLUMNS="200").out
    for command, summary in COMMANDS.items():
        assert re.search(rf"^  {command} +{re.escape(summary)}$", shown, re.MULTILINE)


@pytest.mark.parametrize(
    "line",
    ["tail --count 3 --help", "tail -h", "auth -h --keys x", "auth init x --help", "auth"],
)
def test_help_is_shown_wherever_option_is_given(line: str) -> None:
    """Between other words, by its short name, and if a subcommand is missing."""
    words = line.split()
    name = words[:2] if words[1:2] == ["init"] else words[:1]
    assert ccpipe(*words) == ccpipe(*name, "--help")


@pytest.mark.parametrize("command", ["", "tail", "auth", "auth init"])
def test_help_command_shows_help_of_other_command(command: str) -> None:
    """Without one, the list of commands."""
    assert ccpipe("help", *command.split()) == ccpipe(*command.split(), "--help")


def test_help_shows_kinds_of_values() -> None:
    """A duration, a time, an address or nodes; a few choices in place of their kind."""
    forms = [option.form for option in command_entry(app, ["tail"]).options]
    for form in ("--since TIME", "--for DURATION", "--server URL", "--node, -N NODES...",
                 "--output, -o {table,line,json,csv}"):  # fmt: skip
        assert form in forms
    by = next(
        each
        for each in command_entry(app, ["acct", "gridengine"]).options
        if each.names == ("--by",)
    )
    assert (by.form, "One of node, queue," in by.notes) == ("--by CHOICE...", True)


@pytest.mark.parametrize("command", [*COMMANDS, *SUBCOMMANDS])
def test_options_of_command_have_different_names(command: str) -> None:
    """The parser would take the first one."""
    entry = command_entry(app, command.split())
    names = [name for each in (*entry.arguments, *entry.options) for name in each.names]
    assert len(names) == len({*names})


def test_help_of_unknown_command_is_error() -> None:
    """Exit code 64."""
    for line in ("xyzzy --help", "auth xyzzy --help"):
        shown = ccpipe(*line.split())
        assert (shown.code, shown.out) == (64, "")
        assert "no command 'xyzzy'" in shown.err


SAMPLES = {
    "INTEGER": "1", "NUMBER": "1", "PATH": "a", "TEXT": "2025-01-01", "DURATION": "10s",
    "TIME": "2025-01-01", "URL": "nats://a", "NODES": "n[1-2]", "WHERE": "/data", "DIR": "/data",
}  # fmt: skip
REFERENCE = (ROOT / "docs/reference/commands.md").read_text()
MANUAL = (ROOT / "docs/reference/ccpipe.1").read_text().replace(r"\-", "-")


def sample(option: CommandOption) -> list[str]:
    kind = option.value.removesuffix("...")
    return [*option.choices[:1]] or ([SAMPLES[kind]] if kind else [])


def accepts(entry: CommandEntry, words: list[str]) -> bool:
    """Return whether a command accepts the first word as an option, with its required arguments."""
    required = [word for each in entry.arguments if each.required for word in sample(each)]
    for each in entry.options:
        if each.required and not {*each.names} & {*words}:
            required += [each.names[0], *sample(each)]
    line = [*entry.name.split(), *required, *words]
    try:
        _, bound, _ = app.parse_args(line, exit_on_error=False, print_error=False)
    except CycloptsError:
        return False
    return words[0] not in map(str, bound.args)  # a file may be named like an option


@pytest.mark.parametrize("command", [*COMMANDS, *SUBCOMMANDS])
def test_help_and_reference_list_accepted_options(command: str) -> None:
    """Each has a meaning, and no others are accepted; the manual page has the arguments, too."""
    entry = command_entry(app, command.split())
    assert all(option.meaning for option in (*entry.arguments, *entry.options))
    assert entry.options or entry.arguments or command in GROUPS
    names = [name for option in entry.options for name in option.names]
    for option in entry.options:
        for name in option.names:
            is_off = name.startswith("--no-")
            assert accepts(entry, [name, *([] if is_off else sample(option))]), name
    others = {f"--{prefix}-{name[2:]}" for name in names for prefix in ("no", "empty")} - {*names}
    if not GROUPS & {command}:
        assert not [name for name in others if accepts(entry, [name])]
    section = re.search(
        rf"^##+ ccpipe {command}\n(.*?)(?=^##|\Z)", REFERENCE, re.DOTALL | re.MULTILINE
    )
    assert section
    shown = re.findall(r"^\| (`.*?`) \|", section[1], re.MULTILINE)
    arguments = [name for argument in entry.arguments for name in argument.names]
    assert [name.strip("`") for row in shown for name in row.split(", ")] == arguments + names
    form = rf"^\.SS ccpipe {command}(?: (?:COMMAND|\W)[^\n]*)?\n(.*?)(?=^\.S)"
    manual = re.search(form, MANUAL, re.DOTALL | re.MULTILINE)
    assert manual
    assert [name for name in arguments + names if rf"\fB{name}\fR" not in manual[1]] == []
