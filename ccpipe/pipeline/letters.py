"""Dead letters of what could not be read: a bounded number for each payload, whatever it holds."""

from collections.abc import Iterator, Sequence

from ccpipe.pipeline.plug import Batch, DeadLetter, Rejected

MAX_LETTERS = 100
"""Letters of one payload; what is rejected beyond goes into one letter together."""
AT_ONCE = 500
"""Letters that are written together."""


def rejected_letters(batch: Batch) -> list[DeadLetter]:
    """Return the dead letters of what of a batch could not be read.

    A payload of nothing but bad lines would make half a million letters of one megabyte. Nothing
    of it is lost: the last letter holds all the lines that have none of their own.
    """
    rejected: Sequence[Rejected] = batch.records.rejected
    letters = [
        DeadLetter(bad.original, bad.reason, batch.origin, bad.line, bad.offset)
        for bad in rejected[:MAX_LETTERS]
    ]
    if rest := rejected[MAX_LETTERS:]:
        first = rest[0]
        together = b"\n".join(bad.original for bad in rest)
        lines = len(rest) + rest[-1].original.rstrip(b"\n").count(b"\n")  # the last may be many
        reason = f"{lines} more lines that could not be read, the first: {first.reason}"
        where = (batch.origin, first.line, first.offset)
        letters.append(DeadLetter(together, reason, *where, lines=lines))
    return letters


def portions(letters: Sequence[DeadLetter]) -> Iterator[Sequence[DeadLetter]]:
    """Yield letters as many at a time as are written together."""
    for start in range(0, len(letters), AT_ONCE):
        yield letters[start : start + AT_ONCE]
