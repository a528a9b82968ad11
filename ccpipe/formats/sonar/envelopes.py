"""Batches of envelopes for the pipeline."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from ccpipe.errors import EncodeError
from ccpipe.formats.sonar.encoder import encode
from ccpipe.formats.sonar.rules import Problem
from ccpipe.formats.sonar.types.envelope import Envelope
from ccpipe.records import RecordList, excerpt

if TYPE_CHECKING:
    import pyarrow as pa


class RejectedEnvelope(NamedTuple):
    """A part of the stream that is not an envelope."""

    line: int
    offset: int
    """Position of the error in the stream: the first bad byte, or the start of the envelope."""
    problems: tuple[Problem, ...]
    """The rules that are broken, at least one."""
    original: bytes
    start: int

    @property
    def reason(self) -> str:
        """All broken rules as one text."""
        return "; ".join(map(str, self.problems))

    @property
    def path(self) -> str:
        return self.problems[0].path

    @property
    def rule(self) -> str:
        return self.problems[0].rule

    @property
    def value(self) -> Any:
        """The value that breaks the first rule; None if the bytes are not JSON."""
        return self.problems[0].value

    @property
    def excerpt(self) -> str:
        """Up to 60 bytes around the error, made printable."""
        return excerpt(self.original, self.offset - self.start)

    def __str__(self) -> str:
        return f"line {self.line}, byte {self.offset}: {self.problems[0]}"


class Envelopes(RecordList[Envelope]):
    """Decoded envelopes, with the rejected parts of their payloads."""

    name: ClassVar[str] = "envelopes"
    subjects: ClassVar[Sequence[str]] = ("sonar",)

    def clusters(self) -> set[str]:
        """Return the clusters of the envelopes; an unnamed cluster is the empty string."""
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
            if a field has different types in the envelopes.

        """
        from ccpipe.formats.sonar.arrow import to_arrow

        return to_arrow(self)

    def original(self, index: int) -> bytes:
        """Return an envelope for a dead letter: its JSON, or its ``repr`` if not encodable."""
        envelope = self[index]
        try:
            return encode(envelope).rstrip(b"\n")
        except EncodeError:
            return repr(envelope).encode(errors="backslashreplace")
