"""``ccpipe.formats.files``: block by block gives what decoding at once gives."""

import functools
import gzip
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ccpipe.errors import DataError, UsageError
from ccpipe.formats.files import open_stream, read_blocks
from ccpipe.formats.lineprotocol import Dialect, Lines, Rejected, Rule, decode
from ccpipe.message import Message

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


class Dribble:
    """A stream that returns blocks of given sizes, as a pipe may."""

    def __init__(self, payload: bytes, sizes: list[int]) -> None:
        self.rest = payload
        self.sizes = sizes

    def read1(self, size: int, /) -> bytes:
        """Return up to `size` bytes, or up to the next of the sizes told."""
        size = min(size, self.sizes.pop(0) if self.sizes else size)
        fresh, self.rest = self.rest[:size], self.rest[size:]
        return fresh


def collect(
    stream: Dribble, read: Callable[[bytes], Lines], **limits: int
) -> tuple[list[Message], list[Rejected], list[int]]:
    """Read to the end: messages, rejected lines, and the number of each message's line."""
    messages: list[Message] = []
    rejected: list[Rejected] = []
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
def test_any_blocks_give_what_one_decode_gives(
    payload: bytes, sizes: list[int], block: int, dialect: Dialect, lenient: bool
) -> None:
    """Wherever a stream is cut: the same messages, the same rejected lines and positions."""
    read = functools.partial(decode, dialect=dialect, lenient=lenient)
    whole = read(payload)
    messages, rejected, numbers = collect(Dribble(payload, sizes), read, block=block)
    assert messages == list(whole)
    assert rejected == whole.rejected
    assert numbers == [payload.count(b"\n", 0, start) + 1 for start in whole.starts]


def test_a_block_is_handed_over_before_the_next_is_read() -> None:
    """One block is in memory, not the file."""
    stream = Dribble(b"m value=1 1\n" * 100, [])
    block = next(read_blocks(stream, decode, block=120))
    assert len(block.lines) == 10
    assert len(stream.rest) == 1200 - 120


def test_an_open_string_is_waited_for_and_no_longer() -> None:
    """A line with a missing quote costs only itself; what is buffered for it is bounded."""
    bad, good = b'm f="open\n', b"m value=1 1740027951\n"
    stream = Dribble(bad + good * 99, [])
    blocks = list(read_blocks(stream, decode, block=50, max_length=200))
    assert sum(len(block.lines) for block in blocks) == 99
    rejected = [bad for block in blocks for bad in block.lines.rejected]
    assert [(bad.line, bad.column, bad.rule) for bad in rejected] == [(1, 5, Rule.QUOTE)]
    assert max(len(block.lines.payload) for block in blocks) <= 2 * 200


def test_a_string_over_many_blocks_is_read_whole() -> None:
    """A job script is thousands of lines inside one pair of quotes."""
    text = "echo line\n" * 500
    payload = f'job,function=x event="{text}" 1740027951\nm value=1 1740027951\n'.encode()
    messages, rejected, numbers = collect(Dribble(payload, []), decode, block=64)
    assert [m.value for m in messages] == [text, 1.0]
    assert (rejected, numbers) == ([], [1, 502])


def test_a_line_without_end_is_refused() -> None:
    """A file of something else must not fill the memory."""
    with pytest.raises(DataError, match="line 2 is longer than 1000 bytes"):
        collect(Dribble(b"m value=1 1\n" + b"x" * 5000, []), decode, block=100, max_length=1000)


def test_compressed_files_are_unpacked_and_damage_is_told(tmp_path: Path) -> None:
    """The suffix means gzip; what is before the damage is still read."""
    payload = b"".join(b"m,hostname=n%d value=1 1740027951\n" % i for i in range(20_000))
    whole, cut = tmp_path / "a.line.gz", tmp_path / "b.line.gz"
    whole.write_bytes(gzip.compress(payload))
    cut.write_bytes(gzip.compress(payload)[:-5000])
    with open_stream(whole) as stream:
        assert sum(len(block.lines) for block in read_blocks(stream, decode)) == 20_000
    read = 0
    with open_stream(cut) as stream, pytest.raises(DataError, match="damaged gzip"):  # noqa: PT012
        for block in read_blocks(stream, decode, block=4096):
            read += len(block.lines)
    assert 0 < read < 20_000


@pytest.mark.parametrize("name", ["missing.line", ".", "--wrong"])
def test_what_cannot_be_opened_is_refused_by_name(name: str, tmp_path: Path) -> None:
    """A missing file, a folder, a mistyped option."""
    path = Path(name) if name.startswith("-") else tmp_path / name
    with pytest.raises(UsageError, match=re.escape(str(path))), open_stream(path):
        pytest.fail("it was opened")
