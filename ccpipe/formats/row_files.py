"""Files of JSON lines and CSV, as the sink ``file`` writes them, read block by block."""

from collections.abc import Callable, Iterator

from ccpipe.errors import DataError
from ccpipe.formats import csvlines, jsonlines
from ccpipe.formats.files import BLOCK, MAX_LINE_SIZE, ReadableStream, read_piece
from ccpipe.formats.lineprotocol import Lines, RejectedLine, to_lines
from ccpipe.message import Message

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"  # written by spreadsheets


def read_json(stream: ReadableStream, *, block: int = BLOCK) -> Iterator[Lines]:
    """Read JSON lines; empty ones are none. Raises as ``read_csv``."""
    return _Rows(stream, jsonlines.decode, _end_of_line, block).read()


def read_csv(stream: ReadableStream, *, block: int = BLOCK) -> Iterator[Lines]:
    """Read CSV with its header, which may come again where files were joined.

    A quotation mark that is missing makes the lines that follow part of its row. Where that has not
    the columns of a row, its first line is rejected and the next one begins a row. Raises DataError
    if the file does not begin with the header, a line is longer than ``MAX_LINE_SIZE``, or the rest
    cannot be read.
    """
    rows = _Rows(stream, csvlines.decode, _end_of_row, block)
    rows.expect_header()
    return rows.read()


def _end_of_line(text: bytes, start: int) -> int:
    """Return where the line ends that begins at `start`, after its LF; 0 if it has none."""
    return text.find(b"\n", start) + 1


def _end_of_row(text: bytes, start: int) -> int:
    """Return where the row ends that begins at `start`: at the first LF outside of quotes."""
    place, quotes = start, 0
    while end := text.find(b"\n", place) + 1:
        quotes += text.count(b'"', place, end)
        if quotes % 2 == 0:
            return end
        place = end
    return 0


class _Rows:
    """Buffered text of a file, and its position."""

    def __init__(
        self,
        stream: ReadableStream,
        decode: Callable[[bytes], Message],
        end_of: Callable[[bytes, int], int],
        block: int,
    ) -> None:
        self.stream = stream
        self.decode = decode
        self.end_of = end_of
        self.block = block
        self.text = b""
        self.is_over = False
        self.line, self.offset = 1, 0

    def fill(self) -> None:
        fresh = read_piece(self.stream, max(self.block, len(self.text)))
        self.text += fresh
        self.is_over = not fresh

    def drop(self, size: int) -> None:
        self.line += self.text.count(b"\n", 0, size)
        self.offset += size
        self.text = self.text[size:]

    def expect_header(self) -> None:
        """Skip the header; an empty file needs none."""
        while not (end := self.text.find(b"\n") + 1) and not self.is_over:
            if len(self.text) > MAX_LINE_SIZE:
                break
            self.fill()
        head = self.text[: end or None].removeprefix(_BYTE_ORDER_MARK)
        if self.text and not _is_header(head):
            raise DataError(f"does not begin with the header {csvlines.HEADER.decode().strip()}")
        self.drop(end or len(self.text))

    def read(self) -> Iterator[Lines]:
        """Yield the rows; other rows are not affected by one that is rejected."""
        while not self.is_over:
            self.fill()
            messages, rejected, size = list[Message](), list[RejectedLine](), 0
            line = self.line
            while end := self._end(size):
                row = self.text[size:end]
                try:
                    if row.strip() and not _is_header(row):
                        messages.append(self.decode(row))
                except DataError as error:
                    if isinstance(error, csvlines.NotARow):
                        end = self.text.find(b"\n", size) + 1 or len(self.text)
                        row = self.text[size:end]
                    place = self.offset + size
                    original = row.rstrip(b"\r\n")
                    rejected.append(RejectedLine(line, place, 0, str(error), original))
                line += row.count(b"\n")
                size = end
            yield to_lines(messages, rejected)
            self.drop(size)

    def _end(self, start: int) -> int:
        if start == len(self.text):
            return 0
        if end := self.end_of(self.text, start):
            return end
        if self.is_over:
            return len(self.text)
        if len(self.text) - start <= MAX_LINE_SIZE:
            return 0
        if not (end := self.text.find(b"\n", start) + 1):
            raise DataError(f"a line is longer than {MAX_LINE_SIZE} bytes")
        return end


def _is_header(row: bytes) -> bool:
    return row.rstrip(b"\r\n") == csvlines.HEADER.rstrip(b"\n")
