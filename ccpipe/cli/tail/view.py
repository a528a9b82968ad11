"""Output of ``tail``: all lines to a pipe, whose reader may be slow; a sample to a terminal."""

import asyncio
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

import msgspec

from ccpipe.bus.nats.protocol.frames import Delivery
from ccpipe.cli.console.message_table import MessageTable, TableRow, clock
from ccpipe.cli.console.output import Format, encoder
from ccpipe.errors import EncodeError, OutputError
from ccpipe.formats.lineprotocol import Lines
from ccpipe.message import Message
from ccpipe.terminal import data_for_stdout, note, printable


class RateLimiter:
    """Limits a rate; unused capacity of one second is not available later."""

    def __init__(self, per_second: int) -> None:
        """Allow `per_second`; 0 allows everything."""
        self.per_second = per_second
        self._left = float(per_second)
        self._filled = time.monotonic()

    def take(self, wanted: int) -> int:
        """Return how many of the requested units are available now."""
        if not self.per_second:
            return wanted
        now = time.monotonic()
        fresh = (now - self._filled) * self.per_second
        self._left = min(self._left + fresh, float(self.per_second))
        self._filled = now
        granted = min(wanted, int(self._left))
        self._left -= granted
        return granted


def sample(lines: Lines, count: int) -> Lines:
    """Return `count` evenly spaced rows: the first ones would always be of the same series."""
    if count >= len(lines):
        return lines
    keep = bytearray(len(lines))
    for number in range(count):
        keep[number * len(lines) // count] = 1
    return lines.take(keep)


class TailView:
    """Writes lines or payloads, and counts what was shown and left out."""

    def __init__(
        self,
        write: Callable[[bytes], object],
        output: Literal["table"] | Format,
        *,
        rate: int = 0,
        count: int | None = None,
        strict: bool = False,
    ) -> None:
        """Write with `write`: `rate` lines per second (0: all), `count` in total (None: all).

        `strict` adds the violated rules to each message.
        """
        self.count = count
        self.shown = self.left_out = self.refused = self.problems = 0
        self._output = write
        self._strict = strict
        self._limiter = RateLimiter(rate)
        self._table = MessageTable(sys.stdout) if output == "table" else None
        self._head, self._encode = _codec(output, self._table, strict=strict)

    @property
    def is_full(self) -> bool:
        return self.count is not None and self.shown >= self.count

    def show(self, lines: Lines) -> None:
        granted = self._limiter.take(len(lines))
        self.left_out += len(lines) - granted
        chosen = sample(lines, granted)
        if self.count is not None:
            chosen = chosen[: self.count - self.shown]
        if not len(chosen):
            return
        if self._strict:
            self.problems += sum(bool(message.problems()) for message in chosen)
        self._write(self._head + b"".join(self._encoded(chosen)))
        self._head = b""

    async def load_units(self) -> None:
        """Load the units of metrics on a terminal, without delaying the first lines."""
        if self._table is not None and sys.stdout.isatty():
            from ccpipe.node.sampling.collector import units

            self._table.units = await asyncio.to_thread(units)

    def show_envelope(self, envelope: Mapping[str, Any], arrival: int, *, whole: bool) -> None:
        self._show_other(
            lambda: msgspec.json.encode(envelope) + b"\n",
            lambda: sonar_row(envelope, arrival, whole=whole),
        )

    def show_dead_letter(self, delivery: Delivery) -> None:
        self._show_other(lambda: dead_json(delivery), lambda: dead_row(delivery))

    def _show_other(self, encode: Callable[[], bytes], row: Callable[[], TableRow]) -> None:
        if not self._limiter.take(1):
            self.left_out += 1
            return
        self.shown += 1
        self._write(encode() if self._table is None else self._table.render_rows([row()]).encode())

    def show_payload(self, payload: bytes) -> None:
        """Show a payload unchanged, except that a missing line end is added."""
        lines = payload.count(b"\n") or 1
        if not self._limiter.take(lines):
            self.left_out += lines
            return
        self.shown += lines
        self._output(data_for_stdout(payload.removesuffix(b"\n") + b"\n"))

    def _write(self, data: bytes) -> None:
        # A table is escaped cell by cell, and has colours of its own.
        self._output(data if self._table is not None else data_for_stdout(data))

    def _encoded(self, lines: Lines) -> Iterator[bytes]:
        """Encode lines; one that the format cannot represent is skipped and reported."""
        try:
            yield self._encode(lines)
            self.shown += len(lines)
        except EncodeError:
            for message in lines:
                try:
                    yield self._encode([message])
                    self.shown += 1
                except EncodeError as error:
                    self.refused += 1
                    note(printable(str(error)), "red")


Codec = Callable[[Sequence[Message]], bytes]


def _codec(
    output: Literal["table"] | Format, rows: MessageTable | None, *, strict: bool
) -> tuple[bytes, Codec]:
    if output == "table":
        assert rows is not None
        return b"", lambda records: rows.render(records, strict=strict).encode()
    head, encode = encoder(output)
    if not strict:
        return head, encode
    if output == "csv":
        head = head[:-1] + b",problems\n"
    mark = _MARKS[output]
    return head, lambda records: b"".join(
        mark(encode([message]), message.problems()) for message in records
    )


def _mark_line(line: bytes, problems: Sequence[str]) -> bytes:
    return line + b"".join(f"# ^ {printable(problem)}\n".encode() for problem in problems)


def _mark_json(line: bytes, problems: Sequence[str]) -> bytes:
    return line[: -len(b"}\n")] + b',"problems":' + msgspec.json.encode(problems) + b"}\n"


def _mark_csv(line: bytes, problems: Sequence[str]) -> bytes:
    text = "; ".join(problems).replace('"', '""')
    return line[: -len(b"\n")] + f',"{text}"\n'.encode()


_MARKS: dict[Format, Callable[[bytes, Sequence[str]], bytes]] = {
    "line": _mark_line,
    "json": _mark_json,
    "csv": _mark_csv,
}


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
    marks = msgspec.json.format(msgspec.json.encode(envelope), indent=2).decode().split("\n")
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


MAX_BYTES = 64 * 2**20
"""Maximum bytes buffered for a slow reader; further data are dropped and counted."""
LAST_SECONDS = 1.0
"""How long a command waits for its reader after a stop."""


class Stdout:
    """Writes in a thread that does not delay the exit of the process."""

    def __init__(self, descriptor: int) -> None:
        self.dropped = 0
        self._descriptor = descriptor
        self._held: deque[bytes] = deque()
        self._size = 0
        self._error: BrokenPipeError | OutputError | None = None
        self._changed = threading.Condition()
        threading.Thread(target=self._work, name="ccpipe-stdout", daemon=True).start()

    def write(self, data: bytes) -> None:
        """Queue data for writing; raises the BrokenPipeError or OutputError of an earlier write."""
        with self._changed:
            if self._error is not None:
                raise self._error
            if self._size + len(data) > MAX_BYTES and self._held:
                self.dropped += data.count(b"\n")
                return
            self._held.append(data)
            self._size += len(data)
            self._changed.notify()

    async def drain(self, stop: asyncio.Event) -> None:
        """Wait until everything is written; once `stop` is set, only briefly."""
        loop = asyncio.get_running_loop()
        deadline = None
        while self._size and self._error is None:
            if stop.is_set():
                deadline = deadline or loop.time() + LAST_SECONDS
                if loop.time() >= deadline:
                    return
            await asyncio.sleep(0.01)
        if self._error is not None:
            raise self._error

    def _work(self) -> None:
        while True:
            with self._changed:
                while not self._held:
                    self._changed.wait()
                data = self._held[0]
            try:
                rest = memoryview(data)
                while rest:
                    rest = rest[os.write(self._descriptor, rest) :]
            except BrokenPipeError as error:
                self._error = error
                return
            except OSError as error:
                self._error = OutputError(f"standard output: {error.strerror}")
                return
            with self._changed:
                self._held.popleft()
                self._size -= len(data)
