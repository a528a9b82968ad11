"""Messages that a broker delivered: one by one, and in columns."""

from array import array
from collections.abc import Iterator, Sequence
from typing import Protocol, Self, TypeVar, overload

from ccpipe.formats.lineprotocol.decoder import join


class Received(Protocol):
    """A message received from a broker."""

    @property
    def subject(self) -> str:
        """The subject it was published on."""

    @property
    def payload(self) -> bytes:
        """Its payload."""

    @property
    def arrival(self) -> int:
        """When the broker received it, in nanoseconds since the epoch."""


M = TypeVar("M", bound=Received)


class ReceivedColumns(Sequence[M]):
    """Messages received together, and what many small ones are decoded from at once."""

    def __init__(self, messages: Sequence[M]) -> None:
        self._messages = messages

    def __len__(self) -> int:
        return len(self._messages)

    def __iter__(self) -> Iterator[M]:
        return iter(self._messages)

    @overload
    def __getitem__(self, place: int) -> M: ...
    @overload
    def __getitem__(self, place: slice) -> Self: ...
    def __getitem__(self, place: int | slice) -> M | Self:
        if isinstance(place, slice):
            return type(self)(self._messages[place])
        return self._messages[place]

    @property
    def sizes(self) -> list[int]:
        """The size of each payload, in bytes."""
        return [len(message.payload) for message in self]

    @property
    def size(self) -> int:
        """The size of all payloads."""
        return sum(self.sizes)

    @property
    def subjects(self) -> list[str]:
        return [message.subject for message in self]

    def joined(self) -> "tuple[bytes, array[int]] | None":
        """Join the payloads, which are line protocol; see ``join``."""
        return join([message.payload for message in self])
