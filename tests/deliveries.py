"""Records as a broker delivers them: with their messages."""

from array import array
from collections.abc import Iterable

from ccpipe.formats.lineprotocol import Lines, to_lines
from ccpipe.message import Message
from ccpipe.records import Provenance


def provenance_of(
    consumers: list[str], numbers: "array[int]", times: "array[int]", ends: "array[int]"
) -> Provenance:
    return Provenance([""] * len(consumers), consumers, numbers, times, ends)


def delivered(records: Iterable[Message], provenance: Provenance | None) -> Lines:
    lines = to_lines(list(records))
    lines.provenance = provenance
    return lines
