#!/usr/bin/env python3
"""Write the pages and the manual page in ``docs/reference/`` from the code.

::

    python scripts/generate_reference.py docs/reference
"""

import importlib
import os
import re
import signal
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from collector_pages import by_family, path_of
from configuration_page import page as configuration_page
from manual_page import manual_page
from python_reference import page as python_page

from ccpipe import errors
from ccpipe.bus.subjects import TEMPLATES, Subjects
from ccpipe.cli import COMMANDS as SUMMARIES
from ccpipe.cli.app import app
from ccpipe.cli.console.help import CommandEntry, CommandOption, command_entry
from ccpipe.config import Site
from ccpipe.errors import CcpipeError

GENERATED = """\
This page is generated from the code (`python scripts/generate_reference.py docs/reference`), and
a test checks that it is current.
"""

COMMANDS = f"""\
# Commands

{GENERATED}
`ccpipe COMMAND --help` shows the same, and so does the manual page `ccpipe(1)`. Options that take a
value that ends in dots may be repeated. Data goes to standard output, the rest to standard error;
the [exit codes](exit-codes.md) are from `sysexits.h`.
"""

EXIT_CODES = f"""\
# Exit codes

{GENERATED}
They are from BSD's `sysexits.h`. A message on standard error describes the error.

| code | error | when |
| --- | --- | --- |
| 0 | | success |
"""

AFTER_EXIT_CODES = """
`ccpipe step` exits with the code of the command that it ran, `ccpipe check` with Nagios' codes
([check.md](../operations/check.md)), and `ccpipe acct` with 1 if the job is not found, as `qacct`
does. Commands that finish, such as `ccpipe bridge --for 10s`, or are stopped by SIGTERM, exit with
0. If several files are validated, the most severe code is used.
"""

SUBJECTS = f"""\
# Subjects

{GENERATED}
[wire.md](wire.md#subjects) explains them. `[bus.subjects]` replaces the templates; the examples
are for the cluster `fox.edu`, whose dot is escaped.

| template | default | sources listen to |
| --- | --- | --- |
"""

METRICS = f"""\
# Metrics of nodes

{GENERATED}
All metrics that a collector declares, by name; a name with `<…>` is a family, whose names are on
the collector's page, with other details. Metrics of
[portable](../collectors/portable.md) are for systems without `/proc`. Not listed are the metrics of
ended jobs ([gridengine/jobs.md](../gridengine/jobs.md)), of Sonar's envelopes
([sonar/metrics.md](../sonar/metrics.md)), and the counters of ccpipe's programs
([health.md](../operations/health.md)).

| metric | unit | `type` | collector | meaning |
| --- | --- | --- | --- | --- |
"""


def pages() -> dict[str, str]:
    """Return the text of each file by its name."""
    tree = [entry for name in SUMMARIES for entry in commands(name)]
    codes = list(exit_codes())
    return {
        "ccpipe.1": manual_page(tree, codes),
        "configuration.md": configuration_page(GENERATED),
        "commands.md": COMMANDS + "".join(map(_command, tree)),
        "exit-codes.md": EXIT_CODES + "".join(map(_exit_code, codes)) + AFTER_EXIT_CODES,
        "metrics.md": METRICS + "".join(_metrics()),
        "python.md": python_page(GENERATED),
        "subjects.md": SUBJECTS + "".join(_subjects()),
    }


def commands(*names: str) -> Iterator[CommandEntry]:
    """Yield a command, and then its subcommands."""
    entry = command_entry(app, names)
    yield entry
    for each in entry.subcommands:
        yield from commands(*names, each)


def exit_codes() -> Iterator[tuple[int, str, str]]:
    """Yield each code, its error, and the error's description."""
    found = [
        (error.exit_code, name, _sentence(error))
        for name, error in vars(errors).items()
        if isinstance(error, type) and issubclass(error, CcpipeError)
    ]
    limits = "The process needs more memory or threads than its limits allow."
    found.append((os.EX_OSERR, "", limits))
    base = (CcpipeError.exit_code, "CcpipeError")
    yield from sorted(
        (code, name, "An error that has no code of its own." if (code, name) == base else what)
        for code, name, what in found
    )
    yield 128 + signal.SIGINT, "", "Interrupted by Ctrl-C."


def _sentence(error: type) -> str:
    """Return the first sentence of a docstring."""
    return " ".join((error.__doc__ or "").split("\n\n", maxsplit=1)[0].split())


def _exit_code(row: tuple[int, str, str]) -> str:
    code, error, meaning = row
    return f"| {code} | {f'`{error}`' if error else ''} | {_escape(meaning)} |\n"


def _command(command: CommandEntry) -> str:
    level = "##" if " " not in command.name else "###"
    parts = [f"\n{level} ccpipe {command.name}\n\n```text\n{command.usage}\n```\n"]
    parts += [f"\n{_escape(text)}\n" for text in (command.summary, *command.paragraphs)]
    if command.subcommands:
        names = (f"{command.name} {each}" for each in command.subcommands)
        links = ", ".join(f"[{name}](#ccpipe-{name.replace(' ', '-')})" for name in names)
        parts.append(f"\nSubcommands: {links}.\n")
    if command.arguments or command.options:
        parts.append("\n| option | value | default | meaning |\n| --- | --- | --- | --- |\n")
        parts += map(_option, [*command.arguments, *command.options])
    parts.append("\n```sh\n" + "".join(f"{line}\n" for line in command.examples) + "```\n")
    return "".join(parts)


def _option(option: CommandOption) -> str:
    names = ", ".join(f"`{name}`" for name in option.names)
    value = ", ".join(f"`{choice}`" for choice in option.choices) or option.value
    if option.choices and option.value.endswith("..."):
        value += " ..."
    default = "required" if option.required else f"`{option.default}`" if option.default else ""
    return f"| {names} | {value} | {default} | {_escape(option.meaning)} |\n"


def _subjects() -> Iterator[str]:
    subjects = Subjects.of(Site(cluster="fox.edu", hostname="n1"))
    for name, template in TEMPLATES.items():
        heard = ", ".join(f"`{pattern}`" for pattern in subjects.patterns([name]))
        yield f"| `{name}` | `{template}` | {heard} |\n"


def _metrics() -> Iterator[str]:
    found: dict[tuple[str, str, str], dict[str, dict[str, None]]] = {}
    for entry in sorted(metadata.entry_points(group="ccpipe.collectors")):
        if entry.value.startswith("ccpipe."):  # plug-ins have pages of their own
            link = f"[{entry.name}](../collectors/{path_of(entry)})"
            table = getattr(importlib.import_module(entry.module), "METRICS", ())
            for name, rows in by_family(table).items():
                of = found.setdefault((name, rows[0].unit, rows[0].meaning), {})
                of.setdefault(link, {}).update(dict.fromkeys(rows[0].types))
    for (name, unit, meaning), collectors in sorted(found.items()):
        types = dict.fromkeys(f"`{each}`" for of in collectors.values() for each in of)
        cells = [f"`{name}`", unit, ", ".join(types), ", ".join(collectors), _escape(meaning)]
        yield "| " + " | ".join(cells) + " |\n"


def _escape(text: str) -> str:
    """Write plain text as Markdown, also within a table."""
    parts = re.split(r"(`[^`]+`)", text)
    parts[::2] = [re.sub(r"([\\*<>\[\]])", r"\\\1", part) for part in parts[::2]]
    return "".join(parts).replace("|", r"\|")


if __name__ == "__main__":
    directory = Path(sys.argv[1])
    for name, text in pages().items():
        (directory / name).write_text(text, encoding="utf-8")
