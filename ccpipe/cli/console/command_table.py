"""What can be written behind each command, from a table: to read it from the code takes long.

``commands.jsonl`` beside this file has one command on each line, as its signature and docstring
have it. ``python scripts/generate_help.py`` writes it, and a test checks that it is
current.
"""

import json
from pathlib import Path
from typing import NamedTuple

TABLE = Path(__file__).with_name("commands.jsonl")


class CommandOption(NamedTuple):
    """An option or a positional argument."""

    names: tuple[str, ...]
    value: str
    """What follows it, such as ``PATH``, or ``PATH...`` where it may be repeated; empty for a
    flag."""
    meaning: str
    default: str
    """Empty where there is none."""
    choices: tuple[str, ...]
    required: bool

    @property
    def form(self) -> str:
        """How it is written: ``--output, -o CHOICE``."""
        is_set = self.default == "on"
        names = ", ".join(name for name in self.names if is_set or not name.startswith("--no-"))
        if not self.names[-1].startswith("-"):
            return names + "..." * self.value.endswith("...")
        return f"{names} {self.value}".rstrip()

    @property
    def notes(self) -> str:
        """What it is for, its choices and its default."""
        found = [self.meaning]
        if self.choices:
            found.append(f"One of {', '.join(self.choices)}.")
        if self.required:
            found.append("Required.")
        elif self.default:
            found.append(f"Default: {self.default}.")
        return " ".join(found)


class CommandEntry(NamedTuple):
    """One command, or one subcommand of it."""

    name: str
    """With the names of the commands above it, such as ``dead list``."""
    summary: str
    paragraphs: list[str]
    examples: list[str]
    arguments: list[CommandOption]
    options: list[CommandOption]
    subcommands: dict[str, str]
    """Their summaries by name."""

    @property
    def usage(self) -> str:
        """The form of its command line."""
        words = ["ccpipe", self.name]
        if self.subcommands and not self.options and not self.arguments:
            words.append("COMMAND")
        if self.options:
            words.append("[OPTIONS]")
        for argument in self.arguments:
            name = argument.names[0] + "..." * argument.value.endswith("...")
            words.append(name if argument.required else f"[{name}]")
        return " ".join(words)

    def to_json(self) -> str:
        """Return its line of the table."""
        return json.dumps([self.name, *self[1:]], ensure_ascii=False) + "\n"


def command(name: str) -> CommandEntry | None:
    """Return a command by its name; None if there is none."""
    start = f'["{name}",'
    with TABLE.open(encoding="utf-8") as lines:
        for line in lines:
            if line.startswith(start):
                _, summary, paragraphs, examples, arguments, options, subcommands = json.loads(line)
                return CommandEntry(
                    name,
                    summary,
                    paragraphs,
                    examples,
                    [CommandOption(*each) for each in arguments],
                    [CommandOption(*each) for each in options],
                    subcommands,
                )
    return None
