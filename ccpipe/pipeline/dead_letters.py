"""Dead letters for input that could not be read: a bounded number for each payload."""

from collections.abc import Iterator, Sequence

from ccpipe.pipeline.interfaces import Batch, DeadLetter, Rejected

MAX_DEAD_LETTERS = 100
"""Maximum number of dead letters of one payload; further rejected lines share one."""
AT_ONCE = 500
"""Maximum number of dead letters in one write."""


def dead_letters_of(batch: Batch) -> list[DeadLetter]:
    """Return dead letters for the parts of a batch that could not be read.

    A payload of bad lines only would otherwise turn one megabyte into half a million dead letters.
    Nothing is lost: the last one contains all lines beyond the maximum.
    """
    rejected: Sequence[Rejected] = batch.records.rejected
    letters = [
        DeadLetter(bad.original, bad.reason, batch.origin, bad.line, bad.offset)
        for bad in rejected[:MAX_DEAD_LETTERS]
    ]
    if rest := rejected[MAX_DEAD_LETTERS:]:
        first = rest[0]
        together = b"\n".join(bad.original for bad in rest)
        # The last may contain several.
        lines = len(rest) + rest[-1].original.rstrip(b"\n").count(b"\n")
        reason = f"{lines} more lines that could not be read, the first: {first.reason}"
        where = (batch.origin, first.line, first.offset)
        letters.append(DeadLetter(together, reason, *where, lines=lines))
    return letters


def chunks(letters: Sequence[DeadLetter]) -> Iterator[Sequence[DeadLetter]]:
    """Yield dead letters in groups that are written together."""
    for start in range(0, len(letters), AT_ONCE):
        yield letters[start : start + AT_ONCE]
