"""Records of a type that ccpipe does not know, and their codec, as a third party writes them."""

from collections.abc import Iterator, Sequence

from ccpipe.bus.codecs import Packing
from ccpipe.bus.codecs.received import Received
from ccpipe.bus.subjects import Subjects
from ccpipe.records import Provenance, RecordList

SUBJECT = "fox%2Etest.readings"


class Readings(RecordList[int]):
    """Numbers."""

    name = "readings"

    def original(self, index: int) -> bytes:
        return b"%d" % self[index]


class ReadingsCodec:
    """One number in each message."""

    records = Readings

    def decode(self, messages: Sequence[Received]) -> Iterator[tuple[Readings, int]]:
        for message in messages:
            provenance = Provenance.of_message(message.subject, 1)
            yield Readings([int(message.payload)], provenance=provenance), 1

    def encode(
        self, records: Readings, subjects: Subjects, packing: Packing
    ) -> Iterator[tuple[str, bytes]]:
        for index in range(len(records)):
            yield SUBJECT, records.original(index)
