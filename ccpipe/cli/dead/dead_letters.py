"""Dead letters selected by a command: of a file or of the bus, filtered."""

import contextlib
import fnmatch
import stat
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from cyclopts import Parameter

from ccpipe.errors import CreateError, MissingInputError, UnavailableError, UsageError
from ccpipe.formats import dead_letters
from ccpipe.formats.dead_letters import Damaged, StoredDeadLetter
from ccpipe.sinks.dead_letter_file import MODE
from ccpipe.sinks.disk import AppendFile
from ccpipe.terminal import note


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

    count: int | None = None
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

    def _matches(self, letter: StoredDeadLetter) -> bool:
        return (
            (not self.id or letter.id in self.id)
            and (self.reason is None or _holds(letter.reason, self.reason))
            and (self.origin is None or _holds(letter.origin, self.origin))
        )


def _holds(text: str, pattern: str) -> bool:
    return fnmatch.fnmatchcase(text, f"*{pattern}*")


class FileDeadLetters:
    """Dead letters in a file; replayed ones are recorded in a file beside it."""

    def __init__(self, path: Path) -> None:
        """Read the file at `path`; raises MissingInputError if it is not a file to be opened."""
        self.path = path
        self.journal = path.with_name(f"{path.name}.replayed")
        self.damaged = self.replayed = 0
        try:
            if not stat.S_ISREG(path.stat().st_mode):  # positions in it are the letters' IDs
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
        try:
            yield from dead_letters.read(self._file)
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
