"""Codecs: what the payload of a broker's message is, whatever the broker.

A source or a sink of a broker has its codec as an option: ``codec = "sonar"``, or a table where the
codec has options. Third parties add theirs by the entry point ``ccpipe.codecs``.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from ccpipe.bus.subjects import Subjects
from ccpipe.pipeline import Batch, RecordType


class Received(Protocol):
    """A message that came from a broker."""

    @property
    def subject(self) -> str:
        """Where it was published."""

    @property
    def payload(self) -> bytes:
        """Its bytes."""

    @property
    def arrival(self) -> int:
        """When the broker took it, in nanoseconds since the epoch."""


class Packing(NamedTuple):
    """How large the messages are that a sink publishes."""

    lines: int
    """Lines in a message at most."""
    size: int
    """Bytes in a message at most, but for a single line that is longer."""
    limit: int
    """Bytes that the broker takes at most."""


class Codec(Protocol):
    """Payloads to records and back."""

    records: RecordType

    def decode(self, messages: Sequence[Any]) -> Iterator[tuple[Batch, int]]:
        """Decode messages, which meet ``Received``.

        Yields batches without ``ack``, each with the number of messages that it came from: those
        after the ones of the batch before.
        """
        ...

    def encode(
        self, records: Any, subjects: Subjects, packing: Packing
    ) -> Iterator[tuple[str, bytes]]:
        """Yield subjects and payloads, in the order of the records of each subject.

        Raises
        ------
        EncodeError, RejectedError
            if a record cannot be written or is beyond the broker's limit.

        """
        ...
