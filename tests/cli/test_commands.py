"""The subcommands: each is where the tables say."""

import importlib
import pkgutil

import pytest

import ccpipe.cli
from ccpipe.cli.commands import COMMANDS, FOLDERS, PLAIN


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_is_a_module_or_a_folder_of_its_name(name: str) -> None:
    """So that whoever looks for a command finds its file."""
    module = importlib.import_module(f"ccpipe.cli.{name}{'.command' if name in FOLDERS else ''}")
    assert getattr(module, name)
    assert hasattr(importlib.import_module(f"ccpipe.cli.{name}"), "__path__") == (name in FOLDERS)


def test_every_module_that_is_a_command_is_listed() -> None:
    """A new one that is not would be unknown to the command line."""
    found = {each.name for each in pkgutil.iter_modules(ccpipe.cli.__path__)}
    assert found - {"app", "commands", "console", "recipe"} == set(COMMANDS)


def test_readers_of_plain_lines_are_there() -> None:
    """Each says whether it has done what the words ask for."""
    assert set(PLAIN) <= set(COMMANDS)
    assert all(callable(importlib.import_module(name).run) for name in PLAIN.values())
