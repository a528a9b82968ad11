"""A batch of envelopes, as it travels through a pipe."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self, SupportsIndex, overload

from msgspec.structs import replace

from ccpipe.errors import EncodeError
from ccpipe.formats.sonar.encoder import encode
from ccpipe.formats.sonar.rules import Problem
from ccpipe.formats.sonar.types.envelope import Envelope, JobsEnvelope

if TYPE_CHECKING:
    import pyarrow as pa

ESTIMATED_SIZE = 512
"""Bytes counted for an envelope whose payload is not known, without its ``start_metadata``."""


class RejectedEnvelope(NamedTuple):
    """A part of the stream that is not an envelope."""

    line: int
    """Line of the error, from 1."""
    offset: int
    """Position of the error in the stream: the first bad byte, or the start of the envelope."""
    problems: tuple[Problem, ...]
    """The rules that are broken, at least one."""
    original: bytes
    """All bytes of the part."""
    start: int
    """Position of the part in the stream."""

    @property
    def reason(self) -> str:
        """Everything that is wrong, in one text."""
        return "; ".join(map(str, self.problems))

    @property
    def path(self) -> str:
        """Path of the first broken rule: ``$.data.attributes.jobs[3].user``."""
        return self.problems[0].path

    @property
    def rule(self) -> str:
        """The first broken rule."""
        return self.problems[0].rule

    @property
    def value(self) -> Any:
        """The value that breaks the first rule; None if the bytes are not JSON."""
        return self.problems[0].value

    @property
    def excerpt(self) -> str:
        """Up to 60 bytes around the error, made printable."""
        start = max(0, self.offset - self.start - 30)
        piece = self.original[start : start + 60].decode(errors="backslashreplace")
        return ("…" if start else "") + "".join(
            c if c.isprintable() else repr(c)[1:-1] for c in piece
        )

    def __str__(self) -> str:
        return f"line {self.line}, byte {self.offset}: {self.problems[0]}"


class Envelopes(list[Envelope]):
    """Envelopes, with what was rejected beside them and the size of what they came from.

    Parameters
    ----------
    envelopes
        The good ones, in order.
    size
        Bytes of the payloads they were decoded from; None if they were not decoded.
    rejected
        What those payloads held that is no envelope.

    """

    name: ClassVar[str] = "envelopes"

    def __init__(
        self,
        envelopes: Iterable[Envelope] = (),
        *,
        size: int | None = None,
        rejected: Sequence[RejectedEnvelope] = (),
    ) -> None:
        super().__init__(envelopes)
        self.size = sum(map(_estimated_size, self)) if size is None else size
        self.rejected = list(rejected)

    @overload
    def __getitem__(self, index: SupportsIndex) -> Envelope: ...
    @overload
    def __getitem__(self, index: slice) -> "Envelopes": ...
    def __getitem__(self, index: SupportsIndex | slice) -> "Envelope | Envelopes":
        found = super().__getitem__(index)
        return Envelopes(found) if isinstance(found, list) else found

    @classmethod
    def of(cls, records: Iterable[Envelope]) -> Self:
        """Return `records` as a batch: itself where it is one."""
        return records if isinstance(records, cls) else cls(records)

    @classmethod
    def concat(cls, parts: Iterable[Sequence[Envelope]]) -> Self:
        """Join batches in order."""
        batches = [cls.of(part) for part in parts]
        return cls(
            (envelope for batch in batches for envelope in batch),
            size=sum(batch.size for batch in batches),
            rejected=[bad for batch in batches for bad in batch.rejected],
        )

    def clusters(self) -> set[str]:
        """Return the clusters that the envelopes are of; an unnamed one is the empty string."""
        found: set[str] = set()
        for envelope in self:
            if envelope.data is not None:
                found.add(envelope.data.attributes.cluster or "")
            found.update(error.cluster or "" for error in envelope.errors or ())
        return found

    def to_arrow(self) -> "pa.Table":
        """Return an Arrow table, with a row for each envelope.

        Columns: ``type``, ``time``, ``cluster``, ``node``; ``producer``, ``version`` and the other
        fields of ``meta``; the fields of the data, nested as in the specification; ``errors``.

        Raises
        ------
        MissingExtra
            if pyarrow is not installed.
        DataError
            if a field is not of one type in all envelopes.

        """
        from ccpipe.formats.sonar.arrow import to_arrow

        return to_arrow(self)

    def original(self, index: int) -> bytes:
        """Return an envelope as a dead letter holds it: its JSON, else its ``repr``."""
        envelope = self[index]
        try:
            return encode(envelope).rstrip(b"\n")
        except EncodeError:
            if isinstance(envelope, JobsEnvelope):
                envelope = replace(envelope, start_metadata={})
            return repr(envelope).encode(errors="backslashreplace")


def _estimated_size(envelope: Envelope) -> int:
    if not isinstance(envelope, JobsEnvelope):
        return ESTIMATED_SIZE
    texts = (text for each in envelope.start_metadata.values() for text in each.values())
    return ESTIMATED_SIZE + sum(map(len, texts))
