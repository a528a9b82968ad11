"""``ccpipe.formats.files``: decoding by blocks gives the same result as decoding at once."""

import functools
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ccpipe.errors import DataError, MissingExtra, MissingInputError, UsageError
from ccpipe.formats.files import ReadableStream, open_stream, read_blocks, read_full, read_piece
from ccpipe.formats.lineprotocol import Dialect, Lines, RejectedLine, Rule, decode
from ccpipe.message import Message
from tests.conftest import program

PIECES = st.sampled_from(
    [
        b"cpu,hostname=a value=1 1740027951",
        b'job,function=x event="two\nlines"',
        b'log,loglevel=info log="a \\" quote"',
        b"event={a} control=b",
        b'm f="',
        b'"',
        b"\\",
        b"\n",
        b"\r\n",
        b"\n\n",
        b"# comment",
        b' # "',
        b" ",
        b",",
        b"=",
        b"x=1",
        b"\xff",
        b"m event={q}\n",
        b",b=2i,c=T 17",
    ]
)
PAYLOADS = st.lists(PIECES | st.binary(max_size=3), max_size=40).map(b"".join)


class ChunkedStream:
    """A stream that returns chunks of given sizes, like a pipe."""

    def __init__(self, payload: bytes, sizes: list[int]) -> None:
        self.rest = payload
        self.sizes = sizes

    def read1(self, size: int, /) -> bytes:
        size = min(size, self.sizes.pop(0) if self.sizes else size)
        fresh, self.rest = self.rest[:size], self.rest[size:]
        return fresh


def collect(
    stream: ChunkedStream, read: Callable[[bytes], Lines], **limits: int
) -> tuple[list[Message], list[RejectedLine], list[int]]:
    messages: list[Message] = []
    rejected: list[RejectedLine] = []
    numbers: list[int] = []
    for block in read_blocks(stream, read, **limits):
        rejected += block.lines.rejected
        for number, message in block.numbered():
            numbers.append(number)
            messages.append(message)
    return messages, rejected, numbers


@given(
    PAYLOADS,
    st.lists(st.integers(1, 30), max_size=20),
    st.integers(1, 60),
    st.sampled_from(["cc", "influx"]),
    st.booleans(),
)
@example(b'm f="a\nb" 1\nm f="c\n', [1], 1, "cc", False)
def test_reader_decodes_blocks_of_any_size_like_whole_payload(
    payload: bytes, sizes: list[int], block: int, dialect: Dialect, lenient: bool
) -> None:
    read = functools.partial(decode, dialect=dialect, lenient=lenient)
    whole = read(payload)
    messages, rejected, numbers = collect(ChunkedStream(payload, sizes), read, block=block)
    assert messages == list(whole)
    assert rejected == whole.rejected
    assert numbers == [payload.count(b"\n", 0, start) + 1 for start in whole.starts]


def test_reader_yields_block_before_reading_next() -> None:
    stream = ChunkedStream(b"m value=1 1\n" * 100, [])
    block = next(read_blocks(stream, decode, block=120))
    assert len(block.lines) == 10
    assert len(stream.rest) == 1200 - 120


def test_reader_limits_wait_for_closing_quote() -> None:
    """A line without closing quote is rejected alone; the buffer for it is bounded."""
    bad, good = b'm f="open\n', b"m value=1 1740027951\n"
    stream = ChunkedStream(bad + good * 99, [])
    blocks = list(read_blocks(stream, decode, block=50, max_length=200))
    assert sum(len(block.lines) for block in blocks) == 99
    rejected = [bad for block in blocks for bad in block.lines.rejected]
    assert [(bad.line, bad.column, bad.rule) for bad in rejected] == [(1, 5, Rule.QUOTE)]
    assert max(len(block.lines.payload) for block in blocks) <= 2 * 200


def test_reader_decodes_string_spanning_many_blocks() -> None:
    """A job script has thousands of lines inside one pair of quotes."""
    text = "echo line\n" * 500
    payload = f'job,function=x event="{text}" 1740027951\nm value=1 1740027951\n'.encode()
    messages, rejected, numbers = collect(ChunkedStream(payload, []), decode, block=64)
    assert [m.value for m in messages] == [text, 1.0]
    assert (rejected, numbers) == ([], [1, 502])


def test_reader_rejects_too_long_line() -> None:
    with pytest.raises(DataError, match="line 2 is longer than 1000 bytes"):
        collect(
            ChunkedStream(b"m value=1 1\n" + b"x" * 5000, []), decode, block=100, max_length=1000
        )


PAYLOAD = b"".join(b"m,hostname=n%d value=%d 1740027951\n" % (i, i * i) for i in range(20_000))
PACKERS = {"gz": ("gzip", "zcat"), "bz2": ("bzip2", "bzcat"), "xz": ("xz", "xzcat"),
           "zst": ("zstd", "zstdcat")}  # fmt: skip


def packed(directory: Path, suffix: str) -> Path:
    path, name = directory / f"a.{suffix}", PACKERS[suffix][0]
    with path.open("wb") as file:
        for part in (PAYLOAD[:1000], PAYLOAD[1000:]):
            subprocess.run([program(name, name), "-c"], input=part, stdout=file, check=True)
    return path


@pytest.mark.parametrize("suffix", PACKERS)
def test_stream_decompresses_files(tmp_path: Path, suffix: str) -> None:
    with open_stream(packed(tmp_path, suffix)) as stream:
        assert read_full(stream, 10 * len(PAYLOAD)) == PAYLOAD


@pytest.mark.parametrize("suffix", PACKERS)
@pytest.mark.parametrize("read", [read_piece, read_full])
def test_stream_reads_truncated_file_as_far_as_its_program(
    tmp_path: Path, suffix: str, read: Callable[[ReadableStream, int], bytes]
) -> None:
    path = packed(tmp_path, suffix)
    path.write_bytes(path.read_bytes()[:-3000])
    command: list[Path] = [program(PACKERS[suffix][1], PACKERS[suffix][0]), path]
    wanted = subprocess.run(command, capture_output=True, check=False).stdout
    pieces: list[bytes] = []
    with open_stream(path) as stream, pytest.raises(DataError, match="truncated"):
        pieces.extend(iter(lambda: read(stream, 1 << 20), b""))
    assert b"".join(pieces) == PAYLOAD[: len(b"".join(pieces))]
    assert len(b"".join(pieces)) >= len(wanted)


@pytest.mark.parametrize("suffix", PACKERS)
def test_stream_reports_damaged_file(tmp_path: Path, suffix: str) -> None:
    path = packed(tmp_path, suffix)
    whole = path.read_bytes()
    path.write_bytes(whole[:9000] + bytes(255 - byte for byte in whole[9000:9100]) + whole[9100:])
    with open_stream(path) as stream, pytest.raises(DataError, match="damaged compressed data"):
        list(iter(lambda: read_piece(stream), b""))


def test_stream_names_extra_for_zstd_when_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ccpipe.formats.files.zstd", None)
    with (
        pytest.raises(MissingExtra, match=r"pip install 'ccpipe\[zstd\]'"),
        open_stream(tmp_path / "a.zst"),
    ):
        pytest.fail("it was opened")


@pytest.mark.parametrize("name", ["missing.line", ".", "--wrong"])
def test_stream_names_path_that_cannot_be_opened(name: str, tmp_path: Path) -> None:
    path = Path(name) if name.startswith("-") else tmp_path / name
    with (
        pytest.raises((MissingInputError, UsageError), match=re.escape(str(path))),
        open_stream(path),
    ):
        pytest.fail("it was opened")


def test_stream_rejects_endless_inputs(tmp_path: Path) -> None:
    """Named pipes may have no writer and devices may be endless; an open pipe ends."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path, text in ((pipe, "a named pipe; give it as standard input"), (ZERO, "a device")):
        with pytest.raises(MissingInputError, match=text), open_stream(path):
            pass
    reading, writing = os.pipe()
    os.write(writing, b"m value=1 5\n")
    os.close(writing)
    with open_stream(Path(f"/dev/fd/{reading}")) as stream:
        assert read_full(stream, 100) == b"m value=1 5\n"
    os.close(reading)
    with open_stream(Path(os.devnull)) as stream:
        assert read_piece(stream) == b""


ZERO = Path("/dev/zero")
