"""``FileSink``: whole batches, safe on disk, whatever happens to the file."""

import asyncio
import csv
import json
import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.errors import CreateError, EncodeError, UnavailableError
from ccpipe.formats.lineprotocol import Precision, decode, encode, to_lines
from ccpipe.formats.rows import CSV_HEADER, encode_csv, encode_json
from ccpipe.message import Message
from ccpipe.sinks.file import FileSink, RowFile
from tests.conftest import eventually
from tests.sinks.conftest import (
    NOON,
    Given,
    carry_again,
    forbidden,
    full_disk,
    messages_with,
    metric,
)


def lines_of(path: Path) -> list[Message]:
    """Read a file back; all of it must be readable."""
    lines = decode(path.read_bytes(), precision="ns")
    assert lines.rejected == []
    return list(lines)


@given(st.lists(st.lists(messages_with(), max_size=4), max_size=3))
def test_file_contains_all_records_in_order(batches: list[list[Message]]) -> None:
    """And nothing else."""

    async def write(path: Path) -> None:
        async with FileSink(path=str(path), precision="ns") as sink:
            for batch in batches:
                await sink.write(to_lines(batch))

    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "new" / "directories" / "records.lp"
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
async def test_file_sink_writes_valid_lines_unchanged(
    tmp_path: Path, precision: Precision, written: bytes
) -> None:
    """Byte for byte, unless another precision is set."""
    lines = decode(b'a,b=2,a=1 value=1 1740052800123\r\nbad\nlog log="x" 1740052800000')
    path = tmp_path / "records.lp"
    async with FileSink(path=str(path), precision=precision) as sink:
        await sink.write(lines)
    assert path.read_bytes() == written


async def test_file_is_synced_before_write_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the whole batch, and the directory if the file is new."""
    synced: list[tuple[bool, int]] = []
    fsync = os.fsync

    def watch(descriptor: int) -> None:
        status = os.fstat(descriptor)
        is_directory = (status.st_dev, status.st_ino) == (directory.st_dev, directory.st_ino)
        synced.append((is_directory, 0 if is_directory else status.st_size))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", watch)
    directory = tmp_path.stat()
    path = tmp_path / "records.lp"
    async with FileSink(path=str(path)) as sink:
        await sink.write(to_lines([metric(1.5)]))
    assert synced == [(True, 0), (False, path.stat().st_size)]


async def test_file_sink_follows_external_rotation(tmp_path: Path) -> None:
    """After the file was renamed, removed or truncated, the next write uses the right file."""
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


@given(st.lists(messages_with(), min_size=1, max_size=3), st.data())
def test_torn_line_is_invalidated(torn: list[Message], data: st.DataObject) -> None:
    """Wherever a crash cut the last line, it is invalid afterwards, and others are intact."""
    payload = encode(torn, precision="ns")
    cut = payload[: data.draw(st.integers(1, len(payload) - 1))]
    whole = list(decode(cut[: cut.rfind(b"\n") + 1], precision="ns"))
    after = metric(7.0)

    async def go_on(path: Path) -> None:
        async with FileSink(path=str(path), precision="ns") as sink:
            await sink.write(to_lines([after]))

    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "records.lp"
        path.write_bytes(cut)
        asyncio.run(go_on(path))
        lines = decode(path.read_bytes(), precision="ns")
    assert list(lines) == [*whole, after]
    assert len(lines.rejected) == (0 if cut.endswith(b"\n") else 1)


async def test_torn_line_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The log reports that the last run ended in a crash."""
    path = tmp_path / "records.lp"
    path.write_bytes(b"cpu_load,hostname=n1 value=123")
    async with FileSink(path=str(path)):
        assert path.read_bytes() == b"cpu_load,hostname=n1 value=123 torn\n"
    assert f"{path} ended in the middle of a line" in caplog.text


async def test_full_disk_leaves_no_part_of_batch(tmp_path: Path) -> None:
    """So a retry does not duplicate it."""
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


async def test_check_fails_if_directory_cannot_exist(tmp_path: Path) -> None:
    """The bridge does not start, and the error names the path."""
    (tmp_path / "file").touch()
    with pytest.raises(CreateError, match=r"file/records\.lp: not a directory"):
        async with FileSink(path=str(tmp_path / "file" / "records.lp")):
            pass


async def test_check_fails_without_write_permission(tmp_path: Path) -> None:
    """The bridge does not start."""
    with forbidden(tmp_path / "directory") as directory:
        sink = FileSink(path=str(directory / "records.lp"))
        with pytest.raises(CreateError, match="no write permission"):
            await sink.check()
        with pytest.raises(CreateError, match="Permission denied"):
            async with sink:
                pass


async def test_file_sink_is_retried_after_failure(tmp_path: Path) -> None:
    """A store that fails for a while gets every batch afterwards, each of them once."""
    directory = tmp_path / "directory"
    path = directory / "records.lp"

    def break_it() -> None:
        path.unlink()
        directory.rmdir()
        directory.touch()

    source = Given([metric(1.0)], [metric(2.0)], first=break_it)
    await carry_again(source, FileSink(path=str(path), precision="ns"), directory.unlink)
    assert [message.value for message in lines_of(path)] == [1.0, 2.0]


TEXT = st.text(st.sampled_from(list('a,"\n\r')), max_size=8)
ENCODE = {"csv": encode_csv, "json": encode_json}


@given(
    st.sampled_from(["csv", "json"]),
    st.lists(st.builds(metric, TEXT) | messages_with(), min_size=1, max_size=4),
    st.data(),
)
def test_torn_row_is_removed(
    form: Literal["csv", "json"], messages: list[Message], data: st.DataObject
) -> None:
    """Also one of several lines; rows before it stay, and later ones begin on a new line."""
    try:
        rows = [ENCODE[form]([message]) for message in messages]
    except EncodeError:
        return  # NaN, or a time that RFC 3339 has no year for
    payload = b"".join(rows)
    cut = data.draw(st.integers(0, len(payload)))
    whole = [row for n, row in enumerate(rows) if len(b"".join(rows[: n + 1])) <= cut]
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "rows"
        path.write_bytes(payload[:cut])
        file = RowFile(path, quote=b'"' if form == "csv" else b"")
        file.append(rows[0])
        file.close()
        assert path.read_bytes() == b"".join(whole) + rows[0]


async def test_csv_has_one_header(tmp_path: Path) -> None:
    """Also if another process continues the file, or a crash cut the header."""
    path = tmp_path / "rows.csv"
    path.write_bytes(CSV_HEADER[:20])
    for value in (1.0, 2.0):
        async with FileSink(path=str(path), format="csv") as sink:
            await sink.write(to_lines([metric(value)]))
    with path.open(newline="") as file:
        found = list(csv.DictReader(file))
    assert [(row["time"], row["hostname"], row["value"]) for row in found] == [
        ("2025-02-20T12:00:00Z", "n1", "1.0"),
        ("2025-02-20T12:00:00Z", "n1", "2.0"),
    ]


RECIPE = """
[source]
use = "stdin"
[sink]
use = "file"
path = "{path}"
format = "{form}"
rotate_size = "4MiB"
[batch]
max_wait = "0s"
"""


@pytest.mark.parametrize(
    "form", ["line", *(pytest.param(each, marks=pytest.mark.long) for each in ("json", "csv"))]
)
async def test_killed_bridge_leaves_readable_files(tmp_path: Path, form: str) -> None:
    """After the next start every file contains complete rows only, and no number is missing.

    The last ones read may be missing: standard input does not redeliver.
    """
    path, recipe = tmp_path / "rows.out", tmp_path / "recipe.toml"
    recipe.write_text(RECIPE.format(path=path, form=form))
    command = [sys.executable, "-m", "ccpipe", "bridge", str(recipe)]
    process = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
    )
    assert process.stdin is not None

    async def feed() -> None:
        assert process.stdin is not None
        number = 0
        while True:
            rows = range(number, number + 20_000)
            lines = (f"m,cluster=fox,hostname=n1 value={n} {NOON // 10**9 + n}\n" for n in rows)
            process.stdin.write("".join(lines).encode())
            await process.stdin.drain()
            number += 20_000

    feeding = asyncio.create_task(feed())
    try:
        await eventually(lambda: len([*tmp_path.glob("rows-*")]) >= 2 or feeding.done())
        await asyncio.sleep(int.from_bytes(os.urandom(1)) / 1000)  # the time is random
    finally:
        process.send_signal(signal.SIGKILL)
        await process.wait()
        feeding.cancel()
        await asyncio.gather(feeding, return_exceptions=True)
        process.stdin.close()
    sink = FileSink(path=str(path), format=form)  # type: ignore[arg-type] # one of the three
    async with sink:
        pass
    files = [*sorted(tmp_path.glob("rows-*")), path]
    numbers = [number for each in files if each.exists() for number in _numbers(each, form)]
    assert len(numbers) > 10_000
    assert numbers == list(range(len(numbers)))


def _numbers(path: Path, form: str) -> list[float]:
    """Read the values of a file; a line of line protocol that was cut off is marked as torn."""
    with path.open(newline="") as file:
        if form == "json":
            return [json.loads(line)["value"] for line in file]
        if form == "csv":
            return [float(row["value"]) for row in csv.DictReader(file, strict=True)]
        lines = [line for line in file if not line.endswith(" torn\n")]
        return [float(line.split()[1].removeprefix("value=")) for line in lines]
