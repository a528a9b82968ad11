"""The table of commands."""

from ccpipe.cli import COMMANDS
from ccpipe.cli.console.command_table import command


def test_it_has_every_command() -> None:
    """With the summary that stands in the list of commands, and with its subcommands."""
    for name, summary in COMMANDS.items():
        found = command(name)
        assert found is not None
        assert found.summary == summary
        for each, text in found.subcommands.items():
            below = command(f"{name} {each}")
            assert below is not None
            assert below.summary == text


def test_a_part_of_a_name_is_no_command() -> None:
    """Nor is a name in quotes."""
    for name in ("", "tai", "dead lis", 'tail", "', "tail --count"):
        assert command(name) is None
