"""What travels through a pipe: records of one type, and what could not be read beside them.

``Lines`` of line protocol are columns, ``Envelopes`` of Sonar a list. A plug-in adds a type by a
class of this shape, such as a ``RecordList``, with its name and default subjects.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import compress
from typing import Any, ClassVar, NamedTuple, Protocol, Self, SupportsIndex, TypeVar, overload

from ccpipe.provenance import Provenance


class Rejected(Protocol):
    """A piece of a payload that could not be read, or a record that a translator rejects."""

    @property
    def original(self) -> bytes:
        """Its original bytes."""

    @property
    def reason(self) -> str:
        """Why it was rejected."""

    @property
    def line(self) -> int:
        """Line number in the payload, from 1; 0 if unknown."""

    @property
    def offset(self) -> int:
        """Byte offset in the payload, from 0."""


class RejectedRecord(NamedTuple):
    """The plain form of ``Rejected``."""

    original: bytes
    reason: str
    line: int = 0
    offset: int = 0


def excerpt(original: bytes, position: int) -> str:
    start = max(0, position - 30)
    piece = original[start : start + 60].decode(errors="backslashreplace")
    return ("…" if start else "") + "".join(c if c.isprintable() else repr(c)[1:-1] for c in piece)


class Records(Protocol):
    """Some records of one type, as columns or as a sequence; without arguments, none."""

    name: ClassVar[str]
    """Name of the type in error messages."""
    subjects: ClassVar[Sequence[str]]
    """Names of the subjects that such records are read from by default; see ``bus.subjects``."""

    provenance: Provenance | None
    """The messages that they came from; None if unknown."""

    @property
    def size(self) -> int:
        """Approximate size in memory, in bytes."""

    @property
    def rejected(self) -> Sequence[Rejected]:
        """Pieces of the input that are not among the records, with reasons."""

    @classmethod
    def concat(cls, parts: Sequence[Self], /) -> Self:
        """Concatenate records in order."""

    def __len__(self) -> int:
        """Return the number of records."""

    def __iter__(self) -> Iterator[Any]:
        """Yield the records."""

    def __getitem__(self, rows: slice, /) -> Self:
        """Return the records of some consecutive rows, with their provenance."""

    def take(self, keep: Sequence[int], /) -> Self:
        """Return the records for which `keep` is true, with their provenance."""

    def original(self, index: int, /) -> bytes:
        """Return the bytes of one record for a dead letter."""


T = TypeVar("T")


class RecordList(list[T]):
    """Records as a list."""

    name: ClassVar[str]
    subjects: ClassVar[Sequence[str]] = ()

    def __init__(
        self,
        records: Iterable[T] = (),
        *,
        rejected: Sequence[Rejected] = (),
        provenance: Provenance | None = None,
        size: int | None = None,
    ) -> None:
        """Take the records, and what was rejected beside them.

        `size` is that of what they were decoded from, in bytes; by default it is estimated.
        """
        super().__init__(records)
        self.rejected: list[Any] = list(rejected)
        self.provenance = provenance
        self.size = sum(map(self.size_of, self)) if size is None else size

    @staticmethod
    def size_of(record: T) -> int:  # noqa: ARG004 - subclasses use it
        """Return the approximate size of a record in memory, in bytes."""
        return 512

    @overload
    def __getitem__(self, index: SupportsIndex) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> Self: ...
    def __getitem__(self, index: SupportsIndex | slice) -> T | Self:
        """Return one record, or those of consecutive rows."""
        if not isinstance(index, slice):
            return super().__getitem__(index)
        provenance = self.provenance and self.provenance.part(index)
        return type(self)(super().__getitem__(index), provenance=provenance)

    @classmethod
    def concat(cls, parts: Sequence[Self]) -> Self:
        """Concatenate records in order."""
        return cls(
            (record for part in parts for record in part),
            rejected=[bad for part in parts for bad in part.rejected],
            provenance=Provenance.concat([(part.provenance, len(part)) for part in parts]),
            size=sum(part.size for part in parts),
        )

    def take(self, keep: Sequence[int]) -> Self:
        """Return the records for which `keep` is true, with all that was rejected."""
        flags = bytes(map(bool, keep))
        provenance = self.provenance and self.provenance.take(flags)
        return type(self)(compress(self, flags), rejected=self.rejected, provenance=provenance)

    def original(self, index: int) -> bytes:
        """Return a record as a dead letter holds it."""
        return repr(self[index]).encode(errors="backslashreplace")
