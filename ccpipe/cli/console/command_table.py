"""Help texts of all commands, from a generated table: building them from code would take long.

Each line of ``commands.jsonl``, beside this file, describes one command by its signature and
docstring. ``python scripts/generate_help.py`` writes it, and a test checks that it is current.
"""

import json
from pathlib import Path
from typing import NamedTuple

TABLE = Path(__file__).with_name("commands.jsonl")


class CommandOption(NamedTuple):
    """An option or a positional argument."""

    names: tuple[str, ...]
    value: str
    """Placeholder of its value, such as ``PATH``, or ``PATH...`` if it can be repeated; empty for a
    flag."""
    meaning: str
    default: str
    """Empty where there is none."""
    choices: tuple[str, ...]
    required: bool

    @property
    def form(self) -> str:
        """The option as shown in help: ``--output, -o CHOICE``."""
        is_set = self.default == "on"
        names = ", ".join(name for name in self.names if is_set or not name.startswith("--no-"))
        if not self.names[-1].startswith("-"):
            return names + "..." * self.value.endswith("...")
        return f"{names} {self.value}".rstrip()

    @property
    def notes(self) -> str:
        """Its description, choices and default."""
        found = [self.meaning]
        if self.choices:
            found.append(f"One of {', '.join(self.choices)}.")
        if self.required:
            found.append("Required.")
        elif self.default:
            found.append(f"Default: {self.default}.")
        return " ".join(found)


class CommandEntry(NamedTuple):
    """A command or subcommand."""

    name: str
    """Full name, including parent commands, such as ``dead list``."""
    summary: str
    paragraphs: list[str]
    examples: list[str]
    arguments: list[CommandOption]
    options: list[CommandOption]
    subcommands: dict[str, str]
    """Summaries by name."""

    @property
    def usage(self) -> str:
        """The usage line."""
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
