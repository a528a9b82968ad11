"""Codecs: the format of a message's payload, independent of the broker.

The sources and sinks of brokers have the option ``codec``: ``codec = "sonar"``, or a table if the
codec has options. Plug-ins register theirs under the entry point ``ccpipe.codecs``.
"""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol, TypeVar

from ccpipe.bus.codecs.received import Received
from ccpipe.bus.subjects import Subjects
from ccpipe.records import Records

R = TypeVar("R", bound=Records)


class Packing(NamedTuple):
    """Sizes of the messages that a sink publishes."""

    lines: int
    """Maximum number of lines in a message."""
    size: int
    """Maximum number of bytes in a message, unless a single line is longer."""
    limit: int
    """Maximum message size that the broker accepts, in bytes."""


class Codec(Protocol[R]):
    """Converts payloads to records and back."""

    records: type[R]

    @abstractmethod
    def decode(self, messages: Sequence[Received]) -> Iterator[tuple[R, int]]:
        """Decode messages.

        Yields records, each time with the number of messages that they were made from, in the
        order of the messages. Their provenance has an entry for each of these.
        """
        ...

    @abstractmethod
    def encode(
        self, records: R, subjects: Subjects, packing: Packing
    ) -> Iterator[tuple[str, bytes]]:
        """Yield subjects and payloads; the records of each subject keep their order.

        Raises
        ------
        EncodeError, RejectedError
            if a record cannot be written or exceeds the broker's limit.

        """
        ...
