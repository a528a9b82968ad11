"""Dead letters: input or records that nothing downstream accepts, kept with the reason."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ccpipe.records import Rejected

MAX_DEAD_LETTERS = 100
"""Maximum number of dead letters of one payload; further rejected lines share one."""
AT_ONCE = 500
"""Maximum number of dead letters in one write."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """Input or a record that nothing downstream accepts, with the reason."""

    original: bytes
    reason: str
    origin: str = ""
    """Where it came from: a subject, a file."""
    line: int = 0
    """Line number in the payload, from 1; 0 for a record rejected by a store."""
    offset: int = 0
    lines: int = 1
    """Number of rejected lines or records in it."""

    def __str__(self) -> str:
        where = f" line {self.line}, offset {self.offset}" if self.line else ""
        return (
            f"dead letter from {self.origin or '?'}{where}: {self.reason}: {self.original!r:.120}"
        )


def dead_letters_of(rejected: Sequence[Rejected], origin: str) -> list[DeadLetter]:
    """Return dead letters for what could not be read or was rejected.

    A payload of bad lines only would otherwise turn one megabyte into half a million dead letters.
    Nothing is lost: the last one contains all lines beyond the maximum.
    """
    letters = [
        DeadLetter(bad.original, bad.reason, origin, bad.line, bad.offset)
        for bad in rejected[:MAX_DEAD_LETTERS]
    ]
    if rest := rejected[MAX_DEAD_LETTERS:]:
        first = rest[0]
        together = b"\n".join(bad.original for bad in rest)
        # The last may contain several.
        lines = len(rest) + rest[-1].original.rstrip(b"\n").count(b"\n")
        reason = f"{lines} more lines that could not be read, the first: {first.reason}"
        where = (origin, first.line, first.offset)
        letters.append(DeadLetter(together, reason, *where, lines=lines))
    return letters


def chunks(letters: Sequence[DeadLetter]) -> Iterator[Sequence[DeadLetter]]:
    """Yield dead letters in groups that are written together."""
    for start in range(0, len(letters), AT_ONCE):
        yield letters[start : start + AT_ONCE]
