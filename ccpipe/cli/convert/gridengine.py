"""What ``ccpipe convert`` and ``ccpipe validate`` do with Grid Engine's accounting."""

import io
from collections.abc import Callable, Iterator
from typing import IO, cast

from ccpipe.formats.files import Stream, read_piece
from ccpipe.formats.gridengine import Reading, read_stream
from ccpipe.terminal import printable
from ccpipe.translate.gridengine.events import Mapping
from ccpipe.translate.gridengine.export import Format, open_writer, write


class _Pieces:
    """A stream as ``read_stream`` reads it; raises DataError where it cannot be unpacked."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream

    def read(self, size: int) -> bytes:  # noqa: ARG002 - a piece is as long as it is
        """Return the next piece; nothing at the end."""
        return read_piece(self.stream)


def read_accounting(stream: Stream) -> Iterator[Reading]:
    """Read a stream block by block; raises DataError where it cannot be read."""
    return read_stream(cast("IO[bytes]", _Pieces(stream)))


class FromGridEngine:
    """Accounting to anything; all files go into one output. It is a ``Way`` of ``convert``."""

    head = b""
    unit = "record"

    def __init__(self, to: Format, *, cluster: str, command_line: bool = False) -> None:
        """Convert to a format of ``accounting_to_files``; `cluster` is what events say."""
        self.is_held = to == "parquet"  # it goes back to what it has written
        self.command_line = command_line
        self.target = io.BytesIO()
        self.writer = open_writer(to, self.target, Mapping(cluster=cluster))

    def convert(
        self, stream: Stream, problem: Callable[[str], None]
    ) -> Iterator[tuple[bytes, int]]:
        """See ``Way``."""
        for reading in read_accounting(stream):
            left_out = write(self.writer, reading.records, command_line=self.command_line)
            for bad in (*reading.rejected, *left_out):
                excerpt = bad.original[:60].decode("utf-8", "replace")
                problem(f":{bad.line}: {printable(f'{bad.reason}: {excerpt}')}")
            yield self._taken(), len(reading.records) - len(left_out)

    def finish(self, problem: Callable[[str], None]) -> Iterator[tuple[bytes, int]]:  # noqa: ARG002
        """See ``Way``."""
        self.is_held = False
        # Parquet's writer closes what it writes to, and then nothing could be taken from it.
        close, self.target.close = self.target.close, lambda: None  # type: ignore[method-assign]
        self.writer.close()
        yield self._taken(), 0
        close()

    def _taken(self) -> bytes:
        """Take what was written."""
        if self.is_held:
            return b""
        piece = self.target.getvalue()
        self.target.seek(0)
        self.target.truncate()
        return piece
