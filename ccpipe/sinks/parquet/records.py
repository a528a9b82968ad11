"""Lines of several payloads as one sequence, joined nowhere: what a batch of the sink is."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, chain
from typing import Any, ClassVar, overload

from ccpipe.formats.lineprotocol import Lines, Messages, to_lines
from ccpipe.message import Message


class Payloads(Sequence[Message]):
    """``Lines`` one after another, each as it was decoded."""

    name: ClassVar[str] = Messages.name

    def __init__(self, parts: Sequence[Lines]) -> None:
        """Hold some."""
        self.parts = parts
        self._ends = list(accumulate(map(len, parts)))

    @classmethod
    def of(cls, records: Iterable[Message]) -> "Payloads | Lines | Messages":
        """Return records of which we know how to make columns."""
        return records if isinstance(records, cls) else Messages.of(records)

    @classmethod
    def concat(cls, parts: Sequence[Sequence[Message]]) -> "Payloads | Lines | Messages":
        """Put records one after another; only those that are no ``Lines`` are joined."""
        lines = [part for part in parts if isinstance(part, Lines)]
        return cls(lines) if len(parts) == len(lines) > 1 else Messages.concat(parts)

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __iter__(self) -> Iterator[Message]:
        return chain.from_iterable(self.parts)

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> "Payloads": ...
    def __getitem__(self, index: int | slice) -> "Message | Payloads":
        if isinstance(index, slice):
            first, last, step = index.indices(len(self))
            assert step == 1
            found = []
            for part, end in zip(self.parts, self._ends, strict=True):
                begin = end - len(part)
                if first < end and begin < last:
                    found.append(part[max(0, first - begin) : last - begin])
            return Payloads(found)
        part, row = self._place(index)
        return part[row]

    def _place(self, index: int) -> tuple[Lines, int]:
        """Return the part that has a row, and its place there."""
        index = range(len(self))[index]
        place = bisect_right(self._ends, index)
        return self.parts[place], index - (self._ends[place - 1] if place else 0)

    @property
    def size(self) -> int:
        """Bytes that the rows take in memory, roughly."""
        return sum(part.size for part in self.parts)

    @property
    def rejected(self) -> list[Any]:
        """What of the payloads could not be read."""
        return [each for part in self.parts for each in part.rejected]

    def original(self, index: int) -> bytes:
        """Return one row as a line without its end; see ``Lines.original``."""
        part, row = self._place(index)
        return part.original(row)


def payloads_of(records: Sequence[Message]) -> Sequence[Lines]:
    """Return records as ``Lines``, of one payload or several.

    Raises
    ------
    EncodeError
        if a message could not be written as a line either.

    """
    return records.parts if isinstance(records, Payloads) else [to_lines(records)]
