"""What a reader hands back: records, and what fits nothing."""

from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

Record = TypeVar("Record")
MAX_EXCERPT = 200


class RejectedRecord(NamedTuple):
    """A row, record or JSON object that fits nothing; it costs nobody but itself."""

    line: int
    """The number of its first line, from 1; in JSON the object's position in its list, from 0."""
    reason: str
    original: bytes
    """As it was printed; only its beginning where it is longer than a record may be."""

    @property
    def excerpt(self) -> str:
        """The beginning of it, for messages."""
        text = self.original[: 4 * MAX_EXCERPT].decode("utf-8", "backslashreplace")
        return text if len(text) <= MAX_EXCERPT else text[: MAX_EXCERPT - 1] + "…"


@dataclass(slots=True)
class ParsedOutput(Generic[Record]):
    """What an output, or a chunk of it, held."""

    records: list[Record] = field(default_factory=list)
    rejected: list[RejectedRecord] = field(default_factory=list)

    def extend(self, other: "ParsedOutput[Record]") -> None:
        """Add what comes after it."""
        self.records += other.records
        self.rejected += other.rejected
