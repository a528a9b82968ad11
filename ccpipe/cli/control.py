"""``ccpipe control``: reading and setting controls on nodes."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from cyclopts import App, Parameter

from ccpipe.bus.nats.connection import Connection
from ccpipe.bus.nats.control_requests import control_request, send_requests
from ccpipe.cli.console.options import DURATION, Nodes, SiteOptions, expand_nodes, seconds
from ccpipe.cli.console.output import print_json, print_table
from ccpipe.errors import CcpipeError, DataError, DeniedError, UnavailableError, UsageError
from ccpipe.formats.lineprotocol import encode
from ccpipe.formats.nodelist import compress
from ccpipe.message import Message
from ccpipe.telemetry import Telemetry
from ccpipe.terminal import listed, note, open_stdout, printable, working

control = App(
    name="control",
    help="""Read or set controls on nodes.

Nodes that run `ccpipe publish` or cc-node-controller reply. Each node's own
configuration defines what can be set: allow in [publish.control].

Examples: ccpipe control get --node f01
          ccpipe control get rapl --node 'f[01-88]' -o json
          ccpipe control set freq.governor performance --node f01""",
    help_format="plaintext",
)

READABLE = "The control to read, such as rapl, freq, topology, config or collectors."

_ERRORS: dict[str, type[CcpipeError]] = {
    "unknown": UsageError,
    "invalid": DataError,
    "denied": DeniedError,
    "failed": UnavailableError,
}
"""The error for a refusal, by its tag ``reason``; other programs' refusals have none."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Recipients:
    """The nodes of a request, their devices, and the format of replies."""

    node: Nodes = None

    type_: Annotated[str, Parameter(name="--type")] = "node"
    """Device type: socket, hwthread or accelerator."""

    id_: Annotated[str, Parameter(name="--id")] = ""
    """Device number; for an accelerator, also its PCI address."""

    timeout: Annotated[str, DURATION] = "2s"
    """How long to wait for replies."""

    output: Annotated[Literal["table", "json", "line"], Parameter(alias="-o")] = "table"
    """Output format."""


@control.command
async def get(
    name: Annotated[str, Parameter(help=READABLE)] = "controls",
    /,
    *,
    to: Recipients = Recipients(),
    where: SiteOptions = SiteOptions(),
) -> None:
    """Read a control on nodes; without a name, list the controls.

    Without --node, shows every node of the cluster that replies in time.

    Examples:
      ccpipe control get topology --node f01 -o json
      ccpipe control get rapl.pkg_limit_1 --type socket --id 0 --node f01
      ccpipe control get interval
    """
    await _request(where, name, None, to)


@control.command(name="set")
async def set_(
    name: str,
    value: str,
    /,
    *,
    dry_run: bool = False,
    to: Recipients = Recipients(),
    where: SiteOptions = SiteOptions(),
) -> None:
    """Set a value on nodes.

    The value is not persistent: it is lost when the node restarts. The node logs
    each change. The exit code is 77 if a node does not allow it, 65 if the value
    is invalid, 69 if a node does not reply.

    Examples:
      ccpipe control set interval 30s --node f01
      ccpipe control set freq.governor powersave --node 'f[01-88]'
      ccpipe control set rapl.pkg_limit_1 85W --type socket --id 0 --node f01

    Parameters
    ----------
    name
        What to set, such as interval, freq.governor or rapl.pkg_limit_1.
    value
        New value; numbers can have a unit.
    dry_run
        Print the requests in line protocol; send nothing.
    """
    if not to.node:
        raise UsageError("--node is missing: to set a value, name the nodes")
    if dry_run:
        with open_stdout() as stdout:
            stdout.write(encode(_requests(name, value, to), precision="ns"))
        return
    await _request(where, name, value, to)


def _requests(name: str, value: str | None, to: Recipients) -> list[Message]:
    tags = {"type": to.type_, **({"type-id": to.id_} if to.id_ else {})}
    nodes = expand_nodes(to.node) or [""]
    return [control_request(name, node=node, value=value, tags=tags) for node in nodes]


async def _request(where: SiteOptions, name: str, value: str | None, to: Recipients) -> None:
    site = where.site()
    timeout = seconds(to.timeout, "--timeout") or 0
    requests = _requests(name, value, to)
    connection = Connection(site.bus, name="control", telemetry=Telemetry(), forever=False)
    async with connection as bus:
        with working("waiting for answers"):
            answers = await send_requests(bus, site, requests, seconds=timeout)
    refusals = [answer for answer in answers if _is_refusal(answer)]
    _show(
        [answer for answer in answers if to.output != "table" or answer not in refusals], to.output
    )
    answered = {answer.hostname for answer in answers}
    silent = [node for each in requests if (node := each.hostname) not in answered]
    if silent == [""] and not answers:
        raise UnavailableError(f"no node of {site.cluster} answered within {timeout:g} s")
    _report(refusals, [node for node in silent if node], timeout)


def _is_refusal(answer: Message) -> bool:
    return (answer.tags.get("level") or answer.tags["loglevel"]).upper() == "ERROR"


def _report(refusals: Sequence[Message], silent: Sequence[str], timeout: float) -> None:
    """Raise the last error, if any; print the others before."""
    wrong: list[CcpipeError] = []
    for answer in refusals:
        error = _ERRORS.get(answer.tags.get("reason", ""), UnavailableError)
        wrong.append(error(printable(f"{answer.hostname}: {answer.value}")))
    if silent:
        nodes = listed(compress(silent))
        wrong.append(UnavailableError(f"no answer from {nodes} within {timeout:g} s"))
    for error_ in wrong[:-1]:
        note(str(error_), "red")
    if wrong:
        raise wrong[-1]


def _show(answers: Sequence[Message], output: str) -> None:
    answers = sorted(answers, key=lambda answer: answer.hostname)
    if output == "json":
        print_json([_as_json(answer) for answer in answers])
    elif output == "line":
        with open_stdout() as stdout:
            stdout.write(encode(answers, precision="ns"))
    elif answers and answers[0].name == "controls":
        rows = [row for answer in answers for row in _control_rows(answer)]
        print_table(rows, ["NODE", "CONTROL", "METHODS", "DEVICE", "DESCRIPTION"])
    elif answers:
        rows = [
            [printable(cell) for cell in (answer.hostname, *row)]
            for answer in answers
            for row in _rows(_value(answer), answer.name)
        ]
        print_table(rows, ["NODE", "WHAT", "VALUE"])


def _as_json(answer: Message) -> dict[str, Any]:
    kept = ("type", "type-id", "level", "reason")
    tags = {key: answer.tags[key] for key in kept if key in answer.tags}
    return {"node": answer.hostname, "name": answer.name, **tags, "value": _value(answer)}


def _value(answer: Message) -> Any:
    text = str(answer.value)
    if text[:1] in ("{", "["):
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            return text
    return text


def _rows(value: Any, name: str) -> Iterator[tuple[str, str]]:
    """Format a value as names and texts: tables by key path, lists in one line."""
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from _rows(inner, f"{name} {key}")
    elif isinstance(value, list) and any(isinstance(item, dict) for item in value):
        for number, inner in enumerate(value):
            yield from _rows(inner, f"{name} {number}")
    elif isinstance(value, list):
        yield name, ", ".join(map(str, value))
    else:
        yield name, value if isinstance(value, str) else json.dumps(value)


def _control_rows(answer: Message) -> Iterator[list[str]]:
    value = _value(answer)
    listed = value.get("controls") if isinstance(value, dict) else None
    for entry in listed if isinstance(listed, list) else ():
        words = {key: printable(str(text)) for key, text in dict(entry).items()}
        name = ".".join(filter(None, (words.get("category"), words.get("name"))))
        rest = (words.get(key, "") for key in ("methods", "device_type", "description"))
        yield [answer.hostname, name, *rest]
