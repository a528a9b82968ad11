"""``ccpipe dead``: list, show and replay dead letters."""

import contextlib
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated

import msgspec
from cyclopts import App, Parameter

from ccpipe.bus.nats.connection import Connection
from ccpipe.bus.nats.dead_letters import DeadLetterStream
from ccpipe.bus.subjects import Subjects
from ccpipe.cli.console.options import Lenient, On, SiteOptions
from ccpipe.cli.console.output import TableOrJson, table, terminal_width
from ccpipe.cli.dead.dead_letters import DeadLetterStore, FileDeadLetters, Filter
from ccpipe.cli.dead.replay import DeadLetterReplay
from ccpipe.errors import DataError, UsageError
from ccpipe.formats.dead_letters import StoredDeadLetter
from ccpipe.formats.rfc3339 import rfc3339
from ccpipe.telemetry import Telemetry
from ccpipe.terminal import data_for_stdout, note, plural, printable

dead = App(
    name="dead",
    help="""List, show and replay dead letters.

Lines that could not be parsed, and records that a store rejected, are stored with the
reason on <cluster>.dead, or in a file if there is no broker. The commands read the bus,
or the given file.

Examples: ccpipe dead list --reason 'no such database'
          ccpipe dead show --id 17 > corrected.lp
          ccpipe dead replay /var/lib/ccpipe/dead.lp""",
)

EXCERPT = 60
ROWS = 200
"""Rows of a table formatted together, so that memory is bounded."""

File = Annotated[
    Path | None, Parameter(allow_leading_hyphen=False, help="Dead-letter file, instead of the bus.")
]


@dead.command(name="list")
async def list_(
    file: File = None,
    /,
    *,
    which: Filter = Filter(),
    output: Annotated[TableOrJson, Parameter(alias="-o", help="Format of the list.")] = "table",
    where: SiteOptions = SiteOptions(),
) -> None:
    """List dead letters, oldest first.

    Replayed dead letters of a file are left out. -o json prints one object per
    line.

    Examples:
      ccpipe dead list
      ccpipe dead list --origin fox.metrics --reason timestamp
      ccpipe dead list ~/.local/state/ccpipe/dead.lp -o json | jq .reason
    """
    found = 0
    rows: list[list[str]] = []
    async with _letters(file, where) as letters:
        async for letter in which.apply(letters.read()):
            found += 1
            if output == "json":
                sys.stdout.write(msgspec.json.encode(_plain(letter)).decode() + "\n")
            else:
                rows.append(_row(letter))
            if len(rows) == ROWS:
                _print(rows, is_first=found == ROWS)
                rows = []
        if rows:
            _print(rows, is_first=found == len(rows))
        sys.stdout.flush()
        _report(letters, f"{plural(found, 'dead letter')}")


@dead.command
async def show(
    file: File = None,
    /,
    *,
    reasons: Annotated[On, Parameter(help="Print the reasons on stderr.")] = True,
    which: Filter = Filter(),
    where: SiteOptions = SiteOptions(),
) -> None:
    """Print the original bytes of dead letters, each followed by a newline.

    On a terminal, what is not printable is escaped.

    Correct the lines, then send them with `ccpipe send`.

    Examples:
      ccpipe dead show --id 17
      ccpipe dead show --reason 'missing' > corrected.lp
      ccpipe dead show dead.lp --count 10
    """
    async with _letters(file, where) as letters:
        async for letter in which.apply(letters.read()):
            if reasons:
                note(f"{letter.id}: {printable(letter.origin or '?')}: {printable(letter.reason)}")
            sys.stdout.buffer.write(data_for_stdout(letter.original + b"\n"))
            sys.stdout.buffer.flush()
        _report(letters)


@dead.command
async def replay(
    file: File = None,
    /,
    *,
    which: Filter = Filter(),
    to: str = "",
    dry_run: bool = False,
    lenient: Lenient = False,
    rate: int = 1000,
    where: SiteOptions = SiteOptions(),
) -> None:
    """Publish dead letters again, each once, on their original subjects.

    Only on subjects of the cluster's metrics, events, log and Sonar data; --to
    publishes on another one, which a stream must store.

    A replayed dead letter is removed from the bus; for a file, its ID is recorded
    in FILE.replayed. If interrupted, run the command again to resume. A dead
    letter that is still invalid is kept; the exit code is then 65.

    Examples:
      ccpipe dead replay --reason 'no such table'
      ccpipe dead replay /var/lib/ccpipe/dead.lp --server nats://10.0.0.1:4222
      ccpipe dead replay --origin fox.metrics --dry-run

    Parameters
    ----------
    to
        Subject for all chosen dead letters, instead of their own.
    dry_run
        Print the subjects and payloads instead.
    rate
        Maximum dead letters per second; 0 for no limit.
    """
    if rate < 0:
        raise UsageError("--rate must be at least 0")
    site = where.site()
    async with _connected(where) as bus, _letters(file, where, bus) as letters:
        work = DeadLetterReplay(bus, site, lenient=lenient, rate=rate, to=to)
        chosen = which.apply(letters.read())
        if dry_run:
            async for letter in chosen:
                for message in work.messages(letter):
                    text = message.subject.encode() + b" " + message.payload
                    sys.stdout.buffer.write(data_for_stdout(text))
            return
        try:
            await work.run(chosen, letters)
        finally:
            note(f"{plural(work.replayed, 'dead letter')} replayed, {work.invalid} still invalid")
        if work.invalid:
            raise DataError(f"{plural(work.invalid, 'dead letter')} still invalid, reported above")
        _report(letters)


@contextlib.asynccontextmanager
async def _connected(where: SiteOptions) -> AsyncIterator[Connection]:
    bus = Connection(where.site().bus, name="dead", telemetry=Telemetry(), forever=False)
    async with bus:
        yield bus


@contextlib.asynccontextmanager
async def _letters(
    file: Path | None, where: SiteOptions, bus: Connection | None = None
) -> AsyncIterator[DeadLetterStore]:
    if file is not None:
        letters = FileDeadLetters(file)
        with contextlib.closing(letters):
            yield letters
        return
    async with contextlib.AsyncExitStack() as stack:
        if bus is None:
            bus = await stack.enter_async_context(_connected(where))
        yield DeadLetterStream(bus, Subjects.of(where.site()))


def _report(letters: DeadLetterStore, text: str = "") -> None:
    if isinstance(letters, FileDeadLetters) and letters.replayed:
        text += f"{', ' if text else ''}{letters.replayed} replayed before"
    if text:
        note(text)
    if isinstance(letters, FileDeadLetters) and letters.damaged:
        raise DataError(f"{plural(letters.damaged, 'damaged dead letter')}, reported above")


def _plain(letter: StoredDeadLetter) -> dict[str, str | int]:
    return {
        "id": letter.id,
        "time": rfc3339(letter.time),
        "reason": letter.reason,
        "origin": letter.origin,
        "line": letter.line,
        "offset": letter.offset,
        "size": letter.cut_from or len(letter.original),
        "original": letter.original.decode(errors="backslashreplace"),
    }


def _row(letter: StoredDeadLetter) -> list[str]:
    excerpt = letter.original[:EXCERPT].decode(errors="replace")
    cells = (letter.origin, letter.reason, excerpt)
    return [letter.id, rfc3339(letter.time // 10**9 * 10**9), *map(printable, cells)]


def _print(rows: list[list[str]], *, is_first: bool) -> None:
    lines = table(rows, ("ID", "TIME", "ORIGIN", "REASON", "ORIGINAL"), width=terminal_width())
    print("\n".join(lines if is_first else lines[1:]))
