"""The manual page ``ccpipe(1)``, in the macros of man(7)."""

import re
from collections.abc import Iterator, Sequence

from ccpipe.cli.console.help import CommandEntry, CommandOption

HEAD = r"""'\" Generated from the code: python scripts/generate_reference.py docs/reference
.TH CCPIPE 1 "" ccpipe "User Commands"
.SH NAME
ccpipe \- the monitoring pipe for HPC clusters
.SH SYNOPSIS
.B ccpipe
.I COMMAND
.RI [ ARGUMENT " ...]"
.br
.B ccpipe
.RI [ COMMAND ]
.B \-\-help
.br
.B ccpipe \-\-version
.SH DESCRIPTION
Nodes publish metrics and events as ClusterCockpit line protocol over NATS; bridges carry them into
the stores of a site. Data goes to standard output, the rest to standard error.
.PP
Options that take a value that ends in dots may be repeated.
.SH COMMANDS
"""

TAIL = r""".SH ENVIRONMENT
.TP
.B CCPIPE_CONFIG
The configuration file.
.TP
.B CCPIPE_LOGLEVEL
The level of the log: debug, info, warning, error or critical.
.TP
.BI CCPIPE_ KEY
Any key of the configuration, in capitals, where two underscores enter a table, as in
CCPIPE_BUS__SERVERS.
.TP
.B NO_COLOR
If set, nothing is coloured.
.SH FILES
.TP
.I ~/.config/ccpipe/ccpipe.toml
The configuration of a user.
.TP
.I /etc/ccpipe/ccpipe.toml
The configuration of the machine, if the user has none.
.TP
.I /etc/ccpipe/bridges/
Recipes next to it, which
.B ccpipe bridge
finds by name.
.SH SEE ALSO
.BR nats\-server (8),
.BR sacct (1),
.BR qacct (1)
"""


def manual_page(commands: Sequence[CommandEntry], codes: Sequence[tuple[int, str, str]]) -> str:
    """Return the source of the page."""
    parts = [HEAD, *(line for command in commands for line in _command(command))]
    parts.append(".SH EXIT STATUS\n.TP\n.B 0\nSuccess.\n")
    meanings: dict[int, list[str]] = {}
    for code, _, meaning in codes:
        meanings.setdefault(code, []).append(meaning)
    parts += [f".TP\n.B {code}\n{_text(' '.join(meanings[code]))}" for code in meanings]
    return "".join([*parts, TAIL])


def _command(command: CommandEntry) -> Iterator[str]:
    yield f".SS {_escape(command.usage)}\n{_text(command.summary)}"
    for paragraph in command.paragraphs:
        yield f".PP\n{_text(paragraph)}"
    for option in [*command.arguments, *command.options]:
        yield _option(option)
    yield ".PP\nExamples:\n.PP\n.RS 4\n.nf\n"
    yield from (_text(example) for example in command.examples)
    yield ".fi\n.RE\n"


def _option(option: CommandOption) -> str:
    names = ", ".join(rf"\fB{_escape(name)}\fR" for name in option.names)
    value = rf" \fI{_escape(option.value)}\fR" if option.names[-1].startswith("-") else ""
    return f".TP\n{names}{value if option.value else ''}\n{_text(option.notes)}"


def _text(line: str) -> str:
    """Write a line of text, escaped so that it is not a request."""
    return re.sub(r"^([.'])", r"\\&\1", _escape(line)) + "\n"


def _escape(text: str) -> str:
    text = text.replace("\\", r"\e").replace("-", r"\-")
    return text.replace("'", r"\(aq").replace("^", r"\(ha").replace("~", r"\(ti")
