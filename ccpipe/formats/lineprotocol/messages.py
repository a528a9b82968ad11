"""``Messages``: messages as they travel through a pipe where they were made one by one."""

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, SupportsIndex, overload

from ccpipe.errors import EncodeError
from ccpipe.formats.lineprotocol.encoder import encode
from ccpipe.formats.lineprotocol.lines import Lines
from ccpipe.message import Message

_OVERHEAD = 512
"""Bytes that a message takes in memory, roughly."""


class Messages(list[Message]):
    """A list of messages; the type that parts name for records of line protocol.

    Records of that type are ``Lines`` where bytes were decoded, ``Messages`` where messages were
    made: both are sequences of ``Message``.
    """

    name: ClassVar[str] = "lines"

    def __init__(
        self, messages: Iterable[Message] = (), rejected: Sequence[Any] = (), payload: int = 0
    ) -> None:
        """Hold messages, what could not be read beside them, and the bytes they came from."""
        super().__init__(messages)
        self.rejected = rejected
        self.payload = payload

    @classmethod
    def of(cls, records: Iterable[Message]) -> "Messages | Lines":
        """Return records of line protocol; ``Lines`` and ``Messages`` stay what they are."""
        return records if isinstance(records, Lines | Messages) else cls(records)

    @classmethod
    def concat(cls, parts: Sequence[Any]) -> "Messages | Lines":
        """Join records; columns stay columns where all parts have them."""
        if len(parts) == 1:
            return cls.of(parts[0])
        filled = [part for part in parts if len(part)]
        if filled and all(isinstance(part, Lines) for part in filled):
            return Lines.concat(filled)
        return cls(message for part in filled for message in part)

    @overload
    def __getitem__(self, index: SupportsIndex) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> "Messages": ...
    def __getitem__(self, index: SupportsIndex | slice) -> "Message | Messages":
        """Return one message, or some as ``Messages``."""
        if isinstance(index, slice):
            return Messages(super().__getitem__(index))
        return super().__getitem__(index)

    @property
    def size(self) -> int:
        """Bytes that the messages take in memory, roughly."""
        texts = sum(len(each.value) for each in self if isinstance(each.value, str))
        return _OVERHEAD * len(self) + texts + self.payload

    def original(self, index: int) -> bytes:
        """Return one message as a line, or as Python writes it where no line can hold it."""
        return line_of(self[index])


def line_of(message: Message) -> bytes:
    """Return a message as a line without its end, or as Python writes it where that cannot be."""
    try:
        return encode([message], precision="auto").rstrip(b"\n")
    except EncodeError:
        return repr(message).encode()
