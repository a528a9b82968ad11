"""``Envelopes``: Sonar's envelopes as they travel through a pipe."""

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, SupportsIndex, overload

from ccpipe.errors import EncodeError
from ccpipe.formats.sonar.encoder import encode
from ccpipe.formats.sonar.envelope import Envelope

_OVERHEAD = 512
"""Bytes of an envelope in memory, where its payload's size is not known."""


class Envelopes(list[Envelope]):
    """A list of envelopes."""

    name: ClassVar[str] = "envelopes"

    def __init__(
        self, envelopes: Iterable[Envelope] = (), rejected: Sequence[Any] = (), payload: int = 0
    ) -> None:
        """Hold envelopes, what could not be read, and how many bytes they came from."""
        super().__init__(envelopes)
        self.rejected = rejected
        self.payload = payload

    @classmethod
    def of(cls, records: Iterable[Envelope]) -> "Envelopes":
        """Return envelopes as this type."""
        return records if isinstance(records, Envelopes) else cls(records)

    @classmethod
    def concat(cls, parts: Sequence[Any]) -> "Envelopes":
        """Join envelopes."""
        payload = sum(part.payload for part in parts)
        return cls((envelope for part in parts for envelope in part), payload=payload)

    @overload
    def __getitem__(self, index: SupportsIndex) -> Envelope: ...
    @overload
    def __getitem__(self, index: slice) -> "Envelopes": ...
    def __getitem__(self, index: SupportsIndex | slice) -> "Envelope | Envelopes":
        """Return one envelope, or some as ``Envelopes``."""
        if isinstance(index, slice):
            return Envelopes(super().__getitem__(index))
        return super().__getitem__(index)

    @property
    def size(self) -> int:
        """Bytes that the envelopes take in memory, roughly."""
        return _OVERHEAD * len(self) + self.payload

    def original(self, index: int) -> bytes:
        """Return one envelope as JSON, or as Python writes it where that cannot be."""
        try:
            return encode(self[index]).rstrip(b"\n")
        except EncodeError:
            return repr(self[index]).encode()
