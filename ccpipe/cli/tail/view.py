"""Output of ``tail``: all lines to a pipe, a sample to a terminal."""

import asyncio
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

import msgspec

from ccpipe.bus.nats.protocol.frames import Delivery
from ccpipe.cli.console.message_table import MessageTable, TableRow
from ccpipe.cli.console.output import Format, encoder
from ccpipe.cli.tail.payloads import dead_json, dead_row, sonar_row
from ccpipe.errors import EncodeError
from ccpipe.formats.lineprotocol import Lines
from ccpipe.message import Message
from ccpipe.terminal import data_for_stdout, note, printable


class RateLimiter:
    """Limits a rate; what is not used in one second is not available later."""

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
        limit: int = 0,
        count: int | None = None,
        strict: bool = False,
    ) -> None:
        """Write with `write`: `limit` lines per second (0: all), `count` in total (None: all).

        `strict` adds the violated rules to each message.
        """
        self.count = count
        self.shown = self.left_out = self.refused = self.problems = 0
        self._output = write
        self._strict = strict
        self._limiter = RateLimiter(limit)
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
