"""Lines of several payloads as one sequence, without concatenation: a batch of the sink."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, chain
from typing import Any, ClassVar, overload

from ccpipe.formats.lineprotocol import Lines, Messages, to_lines
from ccpipe.message import Message


class Payloads(Sequence[Message]):
    """A sequence of ``Lines``, each as it was decoded."""

    name: ClassVar[str] = Messages.name

    def __init__(self, parts: Sequence[Lines]) -> None:
        """Take the parts."""
        self.parts = parts
        self._ends = list(accumulate(map(len, parts)))

    @classmethod
    def of(cls, records: Iterable[Message]) -> "Payloads | Lines | Messages":
        """Wrap records from which columns can be built."""
        return records if isinstance(records, cls) else Messages.of(records)

    @classmethod
    def concat(cls, parts: Sequence[Sequence[Message]]) -> "Payloads | Lines | Messages":
        """Concatenate records; only those that are not ``Lines`` are copied."""
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
        """Return the part that contains a row, and the row's index in it."""
        index = range(len(self))[index]
        place = bisect_right(self._ends, index)
        return self.parts[place], index - (self._ends[place - 1] if place else 0)

    @property
    def size(self) -> int:
        """Approximate size of the rows in memory, in bytes."""
        return sum(part.size for part in self.parts)

    @property
    def rejected(self) -> list[Any]:
        """Lines of the payloads that could not be read."""
        return [each for part in self.parts for each in part.rejected]

    def original(self, index: int) -> bytes:
        """Return one row as a line without its line end; see ``Lines.original``."""
        part, row = self._place(index)
        return part.original(row)


def payloads_of(records: Sequence[Message]) -> Sequence[Lines]:
    """Return records as ``Lines``, of one payload or several.

    Raises
    ------
    EncodeError
        if a message cannot be encoded as a line.

    """
    return records.parts if isinstance(records, Payloads) else [to_lines(records)]
