"""Records of a type that ccpipe does not know, and their codec, as somebody else writes them."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar, Self

from ccpipe.bus.codecs import Packing
from ccpipe.bus.subjects import Subjects
from ccpipe.pipeline import Batch, RecordType, Rejected

SUBJECT = "fox%2Etest.readings"


class Readings(list[int]):
    """Numbers."""

    name: ClassVar[str] = "readings"

    def __init__(self, numbers: Iterable[int] = ()) -> None:
        super().__init__(numbers)
        self.rejected: Sequence[Rejected] = ()

    @classmethod
    def of(cls, records: Iterable[Any]) -> Self:
        """Return readings unchanged, any other numbers as readings."""
        return records if isinstance(records, cls) else cls(records)

    @classmethod
    def concat(cls, parts: Sequence[Any]) -> Self:
        """Join readings."""
        return cls(each for part in parts for each in part)

    @property
    def size(self) -> int:
        """See ``Records``."""
        return 8 * len(self)

    def original(self, index: int) -> bytes:
        """See ``Records``."""
        return b"%d" % self[index]


class ReadingsCodec:
    """One number in each message."""

    records: RecordType = Readings

    def decode(self, messages: Sequence[Any]) -> Iterator[tuple[Batch, int]]:
        """See ``Codec``."""
        for message in messages:
            yield Batch(Readings([int(message.payload)]), origin=message.subject), 1

    def encode(
        self, records: Any, subjects: Subjects, packing: Packing
    ) -> Iterator[tuple[str, bytes]]:
        """See ``Codec``."""
        for index in range(len(records)):
            yield SUBJECT, records.original(index)
