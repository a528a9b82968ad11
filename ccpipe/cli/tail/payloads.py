"""Table rows of payloads other than line protocol: Sonar's envelopes and dead letters."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

import msgspec

from ccpipe.bus.nats.protocol.frames import Delivery
from ccpipe.cli.console.message_table import TableRow, clock

MAX_EXCERPT = 200

SONAR_COLOURS = ("dim", "cyan", "", "bold", "", "", "")
DEAD_COLOURS = ("dim", "cyan", "red", "red", "", "", "")
_PLACE = {"time", "cluster", "node", "type"}


def envelopes(payload: bytes) -> Iterator[dict[str, Any]]:
    """Yield the envelopes of a payload; raises ValueError or RecursionError for other bytes."""
    for piece in [payload] if payload.count(b"\n") < 2 else payload.splitlines():  # noqa: PLR2004
        if piece.strip():
            yield msgspec.json.decode(piece, type=dict[str, Any])


def type_and_attributes(envelope: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """Return an envelope's type and attributes; for an envelope of errors, these."""
    data = envelope.get("data")
    if isinstance(data, dict):
        attributes = data.get("attributes")
        return str(data.get("type", "?")), attributes if isinstance(attributes, dict) else {}
    errors = envelope.get("errors")
    first = errors[0] if isinstance(errors, list) and errors else {}
    return "errors", first if isinstance(first, dict) else {}


def sonar_row(envelope: Mapping[str, Any], arrival: int, *, whole: bool) -> TableRow:
    """Return one envelope as a row that summarises it; `whole` adds its content."""
    kind, attributes = type_and_attributes(envelope)
    marks = msgspec.json.format(msgspec.json.encode(envelope), indent=2).decode().splitlines()
    cells = [
        clock(_nanoseconds(attributes.get("time"), arrival)),
        str(attributes.get("node", "")),
        f"sonar.{kind}",
        "",
        "",
        str(attributes.get("cluster", "")),
        _summary(attributes),
    ]
    return TableRow(cells, SONAR_COLOURS, marks if whole else ())


def _summary(attributes: Mapping[str, Any]) -> str:
    """Count the elements of lists, and show short values."""
    parts = []
    for key, value in attributes.items():
        if key in _PLACE:
            continue
        if isinstance(value, list):
            parts.append(f"{key} {len(value)}")
        elif isinstance(value, dict):
            inner = [f"{k} {len(v)}" for k, v in value.items() if isinstance(v, list)]
            parts.append(f"{key} ({', '.join(inner)})" if inner else key)
        else:
            parts.append(f"{key}={value}")
    return ", ".join(parts)


def dead_row(delivery: Delivery) -> TableRow:
    """Return a dead letter as a row: reason, origin, and its beginning."""
    headers = delivery.headers
    place = headers.get("Ccpipe-Origin", "?")
    if line := headers.get("Ccpipe-Line"):
        place += f" line {line}"
    excerpt = delivery.payload[:MAX_EXCERPT].decode(errors="replace")
    reason = headers.get("Ccpipe-Reason", "no reason given")
    cluster = delivery.subject.partition(".")[0]
    cells = [
        clock(delivery.arrival),
        "",
        "dead letter",
        "",
        "",
        cluster,
        f"{place}: {reason}: {excerpt}",
    ]
    return TableRow(cells, DEAD_COLOURS)


def dead_json(delivery: Delivery) -> bytes:
    headers = {key: value for key, value in delivery.headers.items() if key.startswith("Ccpipe-")}
    named = {key.removeprefix("Ccpipe-").lower(): value for key, value in headers.items()}
    text = delivery.payload.decode(errors="replace")
    return msgspec.json.encode({"dead": text, "subject": delivery.subject, **named}) + b"\n"


def _nanoseconds(text: object, otherwise: int) -> int:
    try:
        return int(datetime.fromisoformat(str(text)).timestamp()) * 10**9
    except (ValueError, OverflowError):
        return otherwise
