"""``ccpipe convert --from gridengine``."""

import io
from collections.abc import Callable, Iterator

from ccpipe.formats.files import ReadableStream
from ccpipe.formats.gridengine import read_stream
from ccpipe.terminal import printable
from ccpipe.translate.gridengine.export import Format, open_writer, write_records
from ccpipe.translate.gridengine.jobs import Mapping


class FromGridEngine:
    """A ``Converter`` of accounting to any format; all files go into one output."""

    head = b""
    unit = "record"

    def __init__(self, to: Format, *, cluster: str, command_line: bool = False) -> None:
        """Convert to a format of ``export``; `cluster` is the name in events."""
        self.is_held = to == "parquet"  # its writer needs the file's positions
        self.command_line = command_line
        self.target = io.BytesIO()
        self.writer = open_writer(to, self.target, Mapping(cluster=cluster))

    def convert(
        self, stream: ReadableStream, problem: Callable[[str], None]
    ) -> Iterator[tuple[bytes, int]]:
        for reading in read_stream(stream):
            left_out = write_records(self.writer, reading.records, command_line=self.command_line)
            for bad in (*reading.rejected, *left_out):
                excerpt = bad.original[:60].decode("utf-8", "replace")
                problem(f":{bad.line}: {printable(f'{bad.reason}: {excerpt}')}")
            yield self._take_output(), len(reading.records) - len(left_out)

    def finish(self, problem: Callable[[str], None]) -> Iterator[tuple[bytes, int]]:  # noqa: ARG002
        self.is_held = False
        # Parquet's writer closes what it writes to, and then nothing could be taken from it.
        close, self.target.close = self.target.close, lambda: None  # type: ignore[method-assign]
        self.writer.close()
        yield self._take_output(), 0
        close()

    def _take_output(self) -> bytes:
        if self.is_held:
            return b""
        piece = self.target.getvalue()
        self.target.seek(0)
        self.target.truncate()
        return piece
