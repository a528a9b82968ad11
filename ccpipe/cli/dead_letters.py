"""``ccpipe dead-letters``: list, show and replay dead letters."""

import asyncio
import contextlib
import fnmatch
import itertools
import re
import stat
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple, Protocol

import msgspec
from cyclopts import App, Parameter

from ccpipe.bus.codecs import Codec, Packing
from ccpipe.bus.codecs.line import LineCodec
from ccpipe.bus.codecs.sonar import SonarCodec
from ccpipe.bus.nats.connection import Connection
from ccpipe.bus.nats.dead_letters import DeadLetterStream
from ccpipe.bus.nats.publisher import HEADER_ROOM, IN_FLIGHT, Outgoing, Publisher, digest
from ccpipe.bus.nats.streams.jetstream import names_of
from ccpipe.bus.subjects import KEPT, Subjects, matches
from ccpipe.cli.console.options import Count, Lenient, On, SiteOptions
from ccpipe.cli.console.output import TableOrJson, table, terminal_width
from ccpipe.config import Site
from ccpipe.errors import CreateError, DataError, MissingInputError, UnavailableError, UsageError
from ccpipe.formats.dead_letters import NOT_DEAD_LETTERS, Damaged, StoredDeadLetter
from ccpipe.formats.dead_letters import read as read_file
from ccpipe.formats.rfc3339 import rfc3339
from ccpipe.sinks.dead_letter_file import MODE
from ccpipe.sinks.disk import AppendFile
from ccpipe.telemetry import Telemetry
from ccpipe.terminal import Progress, data_for_stdout, listed, note, plural, printable


class DeadLetterStore(Protocol):
    """Where dead letters are stored."""

    def read(self) -> AsyncIterator[StoredDeadLetter]: ...

    async def remove(self, letters: Sequence[StoredDeadLetter]) -> None:
        """Remove replayed dead letters, or record that they were replayed."""
        ...


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Filter:
    """Selects dead letters."""

    id: list[str] | None = None
    """Dead letters with this ID; can be repeated."""

    reason: str | None = None
    """Dead letters whose reason contains this text or matches this shell pattern."""

    origin: str | None = None
    """Dead letters whose origin contains this text or matches this shell pattern."""

    count: Count = None
    """Maximum number of dead letters."""

    async def apply(
        self, letters: AsyncIterator[StoredDeadLetter]
    ) -> AsyncIterator[StoredDeadLetter]:
        if self.count is not None and self.count < 1:
            raise UsageError("--count must be at least 1")
        found = 0
        async for letter in letters:
            if self._matches(letter):
                yield letter
                found += 1
                if found == self.count:
                    return
        if self.id and not found:
            raise MissingInputError(f"no dead letter with ID {listed(self.id)}")

    def _matches(self, letter: StoredDeadLetter) -> bool:
        return (
            (not self.id or letter.id in self.id)
            and (self.reason is None or _contains(letter.reason, self.reason))
            and (self.origin is None or _contains(letter.origin, self.origin))
        )


def _contains(text: str, pattern: str) -> bool:
    return fnmatch.fnmatchcase(text, f"*{pattern}*")


class FileDeadLetters:
    """Dead letters in a file; replayed ones are recorded in FILE.replayed."""

    def __init__(self, path: Path) -> None:
        """Read the file at `path`; raises MissingInputError if it is not a file to be opened."""
        self.path = path
        self.journal = path.with_name(f"{path.name}.replayed")
        self.damaged = self.replayed = 0
        try:
            if not stat.S_ISREG(path.stat().st_mode):  # positions in it are the IDs
                raise MissingInputError(f"{path}: not a regular file")
            self._file = path.open("rb")
        except OSError as error:
            raise MissingInputError(f"{path}: {error.strerror}") from None
        self._done: set[str] = set()
        try:
            with contextlib.suppress(FileNotFoundError):
                self._done = set(self.journal.read_text(encoding="ascii").split())
        except (OSError, UnicodeDecodeError) as error:
            self.close()
            raise MissingInputError(f"{self.journal}: {error}") from None

    def close(self) -> None:
        self._file.close()

    async def read(self) -> AsyncIterator[StoredDeadLetter]:
        for each in self._read():
            if isinstance(each, Damaged):
                self.damaged += 1
                note(f"{self.path}: at byte {each.position}: {each.reason}", "red")
            elif each.id in self._done:
                self.replayed += 1
            else:
                yield each

    def _read(self) -> Iterator[StoredDeadLetter | Damaged]:
        """Yield what the file contains; raises DataError for a file of something else."""
        try:
            pieces = read_file(self._file)
            begin = list(itertools.islice(pieces, 2))
            if begin == [NOT_DEAD_LETTERS]:
                raise DataError(f"{self.path}: not a file of dead letters")
            yield from itertools.chain(begin, pieces)
        except OSError as error:
            raise UnavailableError(f"{self.path}: {error.strerror}") from None

    async def remove(self, letters: Sequence[StoredDeadLetter]) -> None:
        journal = AppendFile(self.journal, mode=MODE)
        try:
            journal.append("".join(f"{letter.id}\n" for letter in letters).encode())
        except OSError as error:
            raise CreateError(f"{self.journal}: {error.strerror}") from None
        finally:
            journal.close()


class _Received(NamedTuple):
    """A dead letter as the original message."""

    subject: str
    payload: bytes
    arrival: int


class DeadLetterReplay:
    """Publishes dead letters, and removes from their store those that the broker has stored."""

    def __init__(
        self, bus: Connection, site: Site, *, lenient: bool, rate: int, to: str = ""
    ) -> None:
        """Publish at most `rate` dead letters per second; 0 for no limit.

        With `to` all are published on this subject, which a stream must store.
        """
        self.bus = bus
        self.to = to
        self.subjects = Subjects.of(site)
        self.publisher = Publisher(bus, site.bus, self.subjects)
        self.patterns = self.subjects.patterns(KEPT)
        self.lenient = lenient
        self.rate = rate
        self.replayed = self.invalid = 0
        self._progress = Progress()
        if to and (not all(to.split(".")) or re.search(r"[\s*>]", to)):
            raise UsageError(f"--to {to!r}: not a subject")
        if any(matches(pattern, to) for pattern in self.subjects.patterns(["control"], "*")):
            raise UsageError(f"--to {to}: `ccpipe control` sends control requests")

    async def run(self, letters: AsyncIterator[StoredDeadLetter], store: DeadLetterStore) -> None:
        """Replay dead letters; one that is still invalid is reported and kept.

        After an error of the broker or of the record, those replayed until then are removed.
        """
        if self.to and not await names_of(self.bus.jetstream(), self.to):
            raise UnavailableError(f"--to {self.to}: no stream stores this subject")
        window: list[tuple[StoredDeadLetter, list[Outgoing]]] = []
        async for letter in letters:
            try:
                window.append((letter, self.messages(letter)))
            except DataError as error:
                self.invalid += 1
                self._progress.clear()
                note(f"{letter.id}: {printable(str(error))}", "red")
            if len(window) == IN_FLIGHT:
                await self._publish(window, store)
                window = []
        await self._publish(window, store)
        self._progress.clear()

    async def _publish(
        self, window: Sequence[tuple[StoredDeadLetter, list[Outgoing]]], store: DeadLetterStore
    ) -> None:
        if not window:
            return
        await self.publisher.publish([each for _, messages in window for each in messages])
        await store.remove([letter for letter, _ in window])
        self.replayed += len(window)
        self._progress.show(f"{plural(self.replayed, 'dead letter')} replayed")
        if self.rate:
            await asyncio.sleep(len(window) / self.rate)

    def messages(self, letter: StoredDeadLetter) -> list[Outgoing]:
        """Return a dead letter's messages: on its original subject, else on its records' subjects.

        Both only if they are data subjects of the cluster: anyone may write an origin into a file.

        A line without a timestamp gets the time at which it was stored. The message ids differ
        from those of the original messages, which the broker may still know.
        """
        if letter.cut_from:
            raise DataError(f"only {len(letter.original)} of {letter.cut_from} bytes were kept")
        is_envelope = letter.original.lstrip()[:1] == b"{"
        codec: Codec[Any] = SonarCodec() if is_envelope else LineCodec(lenient=self.lenient)
        received = _Received(letter.origin, letter.original, letter.time)
        found: list[Outgoing] = []
        packing = Packing(500, 64 * 2**10, self.bus.max_payload - HEADER_ROOM)
        for records, _ in codec.decode([received]):
            for bad in records.rejected:
                raise DataError(bad.reason)
            for subject, payload in codec.encode(records, self.subjects, packing):
                to = self.to or (letter.origin if self._is_ours(letter.origin) else subject)
                if not self.to and not self._is_ours(to):
                    raise DataError(
                        f"belongs on {to}, which is not a data subject of {self.subjects.cluster}; "
                        "--to SUBJECT publishes it"
                    )
                message_id = digest("replay", letter.id, str(letter.time), to, payload)
                found.append(Outgoing(to, payload, message_id))
        if not found:
            raise DataError("it contains no records")
        return found

    def _is_ours(self, origin: str) -> bool:
        return any(matches(pattern, origin) for pattern in self.patterns)


dead_letters = App(
    name="dead-letters",
    help="""List, show and replay dead letters.

Lines that could not be parsed, and records that a store rejected, are stored with the
reason on <cluster>.dead, or in a file without a broker. The commands read the bus,
or the given file.

Examples: ccpipe dead-letters list --reason 'no such database'
          ccpipe dead-letters show --id 17 > corrected.lp
          ccpipe dead-letters replay /var/lib/ccpipe/dead.lp""",
)

EXCERPT = 60
ROWS = 200
"""Rows of a table formatted together, so that memory is bounded."""

File = Annotated[
    Path | None, Parameter(allow_leading_hyphen=False, help="Dead-letter file, instead of the bus.")
]


@dead_letters.command(name="list")
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
      ccpipe dead-letters list
      ccpipe dead-letters list --origin fox.metrics --reason timestamp
      ccpipe dead-letters list ~/.local/state/ccpipe/dead.lp -o json | jq .reason
    """
    found = 0
    rows: list[list[str]] = []
    async with _store(file, where) as letters:
        async for letter in which.apply(_shown(letters.read())):
            found += 1
            if output == "json":
                Progress.clear()
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


@dead_letters.command
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
      ccpipe dead-letters show --id 17
      ccpipe dead-letters show --reason 'missing' > corrected.lp
      ccpipe dead-letters show dead.lp --count 10
    """
    async with _store(file, where) as letters:
        async for letter in which.apply(_shown(letters.read())):
            Progress.clear()
            if reasons:
                note(f"{letter.id}: {printable(letter.origin or '?')}: {printable(letter.reason)}")
            sys.stdout.buffer.write(data_for_stdout(letter.original + b"\n"))
            sys.stdout.buffer.flush()
        _report(letters)


@dead_letters.command
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
      ccpipe dead-letters replay --reason 'no such table'
      ccpipe dead-letters replay dead.lp --server nats://10.0.0.1:4222
      ccpipe dead-letters replay --origin fox.metrics --dry-run

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
    async with _connected(where) as bus, _store(file, where, bus) as letters:
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
    bus = Connection(where.site().bus, name="dead-letters", telemetry=Telemetry(), forever=False)
    async with bus:
        yield bus


@contextlib.asynccontextmanager
async def _store(
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


async def _shown(letters: AsyncIterator[StoredDeadLetter]) -> AsyncIterator[StoredDeadLetter]:
    """Show how many were read, as filters may leave out most of them."""
    progress, count = Progress(), 0
    async for letter in letters:
        yield letter
        count += 1
        progress.show(f"{plural(count, 'dead letter')} read")
    progress.clear()


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
    Progress.clear()
    print("\n".join(lines if is_first else lines[1:]))
