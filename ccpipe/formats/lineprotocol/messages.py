"""``Messages``: records created as messages, as they travel from source to sink."""

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any, ClassVar, SupportsIndex, overload

from ccpipe.formats.lineprotocol.lines import Lines
from ccpipe.formats.lineprotocol.writer import original
from ccpipe.message import Message

_MESSAGE_SIZE = 512
"""Approximate size of a message with its tags in memory, without its text."""


class Messages(list[Message]):
    """A list of messages with the same interface as ``Lines``, so that a pipe can use either."""

    name: ClassVar[str] = "lines"
    """What error messages call these records."""

    def __init__(
        self,
        messages: Iterable[Message] = (),
        rejected: Sequence[Any] = (),
        payload_size: int = 0,
    ) -> None:
        """Take messages that a source created from another format.

        `rejected` are its unreadable parts, `payload_size` its size in bytes.
        """
        super().__init__(messages)
        self.rejected = rejected
        self.payload_size = payload_size

    @classmethod
    def of(cls, records: Iterable[Message]) -> "Lines | Messages":
        """Return ``Lines`` and ``Messages`` unchanged, any other messages as ``Messages``."""
        return records if isinstance(records, Lines | Messages) else cls(records)

    @classmethod
    def concat(cls, parts: Sequence[Sequence[Message]]) -> "Lines | Messages":
        """Concatenate records: ``Lines`` if all are, else ``Messages``.

        A part without messages does not count, unless it is ``Lines`` with rejected lines.
        """
        parts = [part for part in parts if len(part) or cls.of(part).rejected]
        lines = [part for part in parts if isinstance(part, Lines)]
        if lines and len(lines) == len(parts):
            return Lines.concat(lines)
        return cls(chain.from_iterable(parts))

    @overload
    def __getitem__(self, index: SupportsIndex) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> "Messages": ...
    def __getitem__(self, index: SupportsIndex | slice) -> "Message | Messages":
        found = super().__getitem__(index)
        return Messages(found) if isinstance(found, list) else found

    @property
    def size(self) -> int:
        """Approximate size of the messages in memory, in bytes."""
        texts = (message.value for message in self if isinstance(message.value, str))
        return self.payload_size + _MESSAGE_SIZE * len(self) + sum(map(len, texts))

    def original(self, index: int) -> bytes:
        """Return one message as a line without its end; its ``repr()`` if it cannot be encoded."""
        return original(self[index])
