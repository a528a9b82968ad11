"""Readings of outlets, and the text that PDUs send, as payloads of brokers."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from ccpipe import Codec, Packing, Provenance, Received, RecordList, RejectedRecord, Subjects

FIELDS = 5
SUBJECT = "pdu.readings"


@dataclass(frozen=True, slots=True)
class Reading:
    """The power of one outlet."""

    rack: str
    feed: str
    outlet: str
    watts: float
    time: int
    """In seconds since the epoch."""

    @property
    def name(self) -> str:
        """The outlet's name in the table of outlets: ``rack17/A/12``."""
        return f"{self.rack}/{self.feed}/{self.outlet}"

    def __str__(self) -> str:
        return f"{self.rack};{self.feed};{self.outlet};{self.watts:g};{self.time}"


class Readings(RecordList[Reading]):
    """Readings in the order in which they were sent."""

    name: ClassVar[str] = "readings of PDUs"
    subjects: ClassVar[Sequence[str]] = (SUBJECT,)

    def original(self, index: int) -> bytes:
        """Return the reading as the PDU sent it, for a dead letter."""
        return str(self[index]).encode()


def decode(payload: bytes) -> Readings:
    """Decode a payload; lines that cannot be read are in ``rejected``."""
    readings: list[Reading] = []
    rejected: list[RejectedRecord] = []
    offset = 0
    for number, line in enumerate(payload.splitlines(keepends=True), 1):
        try:
            readings.append(parse(line.decode()))
        except ValueError as error:
            rejected.append(RejectedRecord(line, str(error), number, offset))
        offset += len(line)
    return Readings(readings, rejected=rejected, size=len(payload))


def parse(line: str) -> Reading:
    """Parse a line; raises ValueError with the reason."""
    fields = line.strip().split(";")
    if len(fields) != FIELDS:
        raise ValueError(f"{len(fields)} fields; expected rack;feed;outlet;watts;time")
    rack, feed, outlet, watts, time = fields
    reading = Reading(rack, feed, outlet, float(watts), int(time))
    if not math.isfinite(reading.watts):
        raise ValueError(f"not a power: {watts}")
    return reading


class PduCodec(Codec[Readings]):
    """The text that PDUs send, also as the payload of messages."""

    records = Readings

    def decode(self, messages: Sequence[Received]) -> Iterator[tuple[Readings, int]]:
        """Decode each message."""
        for message in messages:
            readings = decode(message.payload)
            readings.provenance = Provenance.of_message(message.subject, len(readings))
            yield readings, 1

    def encode(
        self,
        records: Readings,
        subjects: Subjects,  # noqa: ARG002
        packing: Packing,
    ) -> Iterator[tuple[str, bytes]]:
        """Yield messages of up to ``packing.lines`` readings."""
        for first in range(0, len(records), packing.lines):
            part = records[first : first + packing.lines]
            yield SUBJECT, "".join(f"{reading}\n" for reading in part).encode()
