"""Rows of a table, read by the compiled kernel: lines that have as many delimiters as the header.

The kernel knows the usual shapes of a few kinds of cells; for all others it calls what the Python
code calls. Where it is missing, or a line is odd, ``columns`` reads with Python alone.
"""

from collections.abc import Callable, Sequence
from typing import Any

from ccpipe.errors import DataError
from ccpipe.formats.slurm.job_id import SlurmId
from ccpipe.formats.slurm.kernel import KERNEL
from ccpipe.formats.slurm.text.field import FieldReader
from ccpipe.formats.slurm.text.table import Header
from ccpipe.formats.slurm.timestamp import TimeReader
from ccpipe.formats.slurm.values import duration, volume

Sources = Sequence[tuple[FieldReader | None, Any]]
"""Of each field, where its values are, and its default."""


class PlainRows:
    """Reads plain rows into records."""

    def __init__(
        self, kernel: Any, record: Callable[..., Any], columns: Sequence[Any], header: Header
    ) -> None:
        """Read each field of a record by its column; ``of()`` finds them."""
        self._delimiter = header.delimiter.encode()
        self._count = header.last
        self._rows = kernel.Rows(record, columns, len(header.names), self._delimiter[0])

    @classmethod
    def of(cls, record: Callable[..., Any], sources: Sources, header: Header) -> "PlainRows | None":
        """Return a reader; None if there is no kernel, or none for such a table."""
        if KERNEL is None or len(header.delimiter.encode()) != 1 or not header.last:
            return None
        columns = [
            _column(KERNEL, source) if source else KERNEL.Value(value) for source, value in sources
        ]
        return None if None in columns else cls(KERNEL, record, columns, header)

    def read(self, payload: bytes) -> tuple[list[Any], int]:
        """Return the records of the complete lines but the last, and where that one begins.

        There are none where a line is odd or a cell cannot be read.
        """
        stop = max(payload.rfind(b"\n"), 0)
        begin = payload.rfind(b"\n", 0, stop) + 1
        if payload.count(self._delimiter, begin, stop) != self._count:
            return [], 0
        try:
            return self._rows.read(payload, begin) or [], begin
        except (DataError, UnicodeDecodeError):
            return [], 0


def _column(kernel: Any, source: FieldReader) -> Any:
    """Return what reads the cells of a source; None if nothing in the kernel does."""
    read, places = source.field.read, source.places
    if read == SlurmId.read:
        return kernel.Id(places, read, SlurmId)
    if len(places) > 1 or source.field.is_required:
        return None
    if source.remembered is not None:
        return kernel.Memo(places[0], source.remembered)
    if isinstance(read, TimeReader):
        return kernel.Time(places[0], read, read.hours)
    if read is duration:
        return kernel.Seconds(places[0], read)
    return (kernel.Volume if read is volume else kernel.Cells)(places[0], read)
