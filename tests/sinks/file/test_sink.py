"""``FileSink``: whole batches, safe on disk, whatever happens to the file."""

import asyncio
import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccpipe.errors import DeniedError, UnavailableError
from ccpipe.formats.lineprotocol import Precision, decode, encode, to_lines
from ccpipe.message import Message
from ccpipe.sinks.file import FileSink
from tests.sinks.conftest import Given, carry_again, forbidden, full_disk, messages_with, metric


def lines_of(path: Path) -> list[Message]:
    """Read a file back; all of it must be readable."""
    lines = decode(path.read_bytes(), precision="ns")
    assert lines.rejected == []
    return list(lines)


@settings(max_examples=60)
@given(st.lists(st.lists(messages_with(), max_size=4), max_size=3))
def test_what_is_written_can_be_read(batches: list[list[Message]]) -> None:
    """The file holds the records of all batches in their order, and nothing else."""

    async def write(path: Path) -> None:
        async with FileSink(path=str(path), precision="ns") as sink:
            for batch in batches:
                await sink.write(to_lines(batch))

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "new" / "folders" / "records.lp"
        asyncio.run(write(path))
        assert encode(lines_of(path), precision="ns") == b"".join(
            encode(batch, precision="ns") for batch in batches
        )


@pytest.mark.parametrize(
    ("precision", "written"),
    [
        ("auto", b'a,b=2,a=1 value=1 1740052800123\nlog log="x" 1740052800000\n'),
        ("ms", b'a,b=2,a=1 value=1 1740052800123\nlog log="x" 1740052800000\n'),
        ("s", b'a,a=1,b=2 value=1.0 1740052800\nlog log="x" 1740052800\n'),
    ],
)
async def test_bytes_pass_through(tmp_path: Path, precision: Precision, written: bytes) -> None:
    """Valid lines are written byte for byte, unless another precision is set."""
    lines = decode(b'a,b=2,a=1 value=1 1740052800123\r\nbad\nlog log="x" 1740052800000')
    path = tmp_path / "records.lp"
    async with FileSink(path=str(path), precision=precision) as sink:
        await sink.write(lines)
    assert path.read_bytes() == written


async def test_it_is_on_the_disk_before_write_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is synced with the whole batch, and the folder when it is new."""
    synced: list[tuple[bool, int]] = []
    fsync = os.fsync

    def watch(descriptor: int) -> None:
        status = os.fstat(descriptor)
        is_folder = (status.st_dev, status.st_ino) == (folder.st_dev, folder.st_ino)
        synced.append((is_folder, 0 if is_folder else status.st_size))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", watch)
    folder = tmp_path.stat()
    path = tmp_path / "records.lp"
    async with FileSink(path=str(path)) as sink:
        await sink.write(to_lines([metric(1.5)]))
    assert synced == [(True, 0), (False, path.stat().st_size)]


async def test_rotation(tmp_path: Path) -> None:
    """After the file was renamed, removed or truncated, the next write goes to the right file."""
    path, old = tmp_path / "records.lp", tmp_path / "records.lp.1"
    async with FileSink(path=str(path), precision="ns") as sink:
        await sink.write(to_lines([metric(1.0)]))
        path.rename(old)
        await sink.write(to_lines([metric(2.0)]))
        assert [message.value for message in lines_of(old)] == [1.0]
        assert [message.value for message in lines_of(path)] == [2.0]
        path.unlink()
        await sink.write(to_lines([metric(3.0)]))
        assert [message.value for message in lines_of(path)] == [3.0]
        path.rename(old)
        path.touch()
        await sink.write(to_lines([metric(4.0)]))
        assert [message.value for message in lines_of(path)] == [4.0]
        os.truncate(path, 0)
        await sink.write(to_lines([metric(5.0)]))
        assert [message.value for message in lines_of(path)] == [5.0]


@settings(max_examples=60)
@given(st.lists(messages_with(), min_size=1, max_size=3), st.data())
def test_a_torn_line(torn: list[Message], data: st.DataObject) -> None:
    """Wherever a crash cut off the last line, it is invalid afterwards, and others are intact."""
    payload = encode(torn, precision="ns")
    cut = payload[: data.draw(st.integers(1, len(payload) - 1))]
    whole = list(decode(cut[: cut.rfind(b"\n") + 1], precision="ns"))
    after = metric(7.0)

    async def go_on(path: Path) -> None:
        async with FileSink(path=str(path), precision="ns") as sink:
            await sink.write(to_lines([after]))

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "records.lp"
        path.write_bytes(cut)
        asyncio.run(go_on(path))
        lines = decode(path.read_bytes(), precision="ns")
    assert list(lines) == [*whole, after]
    assert len(lines.rejected) == (0 if cut.endswith(b"\n") else 1)


async def test_a_torn_line_is_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The log says that the last run ended in a crash."""
    path = tmp_path / "records.lp"
    path.write_bytes(b"cpu_load,hostname=n1 value=123")
    async with FileSink(path=str(path)):
        assert path.read_bytes() == b"cpu_load,hostname=n1 value=123 torn\n"
    assert f"{path} ended in the middle of a line" in caplog.text


async def test_a_full_disk(tmp_path: Path) -> None:
    """A batch that did not fit leaves nothing, so that a retry does not duplicate it."""
    path = tmp_path / "records.lp"
    many = [metric(float(n), hostname=f"n{n}") for n in range(20_000)]
    async with FileSink(path=str(path), precision="ns") as sink:
        await sink.write(to_lines(many[:100]))
        before = path.read_bytes()
        with full_disk(2**20), pytest.raises(UnavailableError, match="too large"):
            await sink.write(to_lines(many[100:]))
        assert path.read_bytes() == before
        await sink.write(to_lines(many[100:]))
    assert lines_of(path) == many


async def test_a_folder_that_cannot_be(tmp_path: Path) -> None:
    """Where no file can be created, the bridge does not start, and the error names the path."""
    (tmp_path / "file").touch()
    with pytest.raises(UnavailableError, match=r"file/records\.lp: "):
        async with FileSink(path=str(tmp_path / "file" / "records.lp")):
            pass


async def test_a_folder_that_is_forbidden(tmp_path: Path) -> None:
    """Without write permission ``check()`` fails, and the bridge does not start."""
    with forbidden(tmp_path / "folder") as folder:
        sink = FileSink(path=str(folder / "records.lp"))
        with pytest.raises(DeniedError, match="no write permission"):
            await sink.check()
        with pytest.raises(DeniedError, match="Permission denied"):
            async with sink:
                pass


async def test_it_is_tried_again(tmp_path: Path) -> None:
    """A store that fails for a while gets every batch once it is back, each of them once."""
    folder = tmp_path / "folder"
    path = folder / "records.lp"

    def break_it() -> None:
        path.unlink()
        folder.rmdir()
        folder.touch()

    source = Given([metric(1.0)], [metric(2.0)], first=break_it)
    await carry_again(source, FileSink(path=str(path), precision="ns"), folder.unlink)
    assert [message.value for message in lines_of(path)] == [1.0, 2.0]
