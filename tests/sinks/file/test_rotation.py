"""Closed files: when there is one, what it is called, and how long it stays."""

import asyncio
import gzip
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from ccpipe.config import Duration, Interval, Size
from ccpipe.errors import ConfigError
from ccpipe.formats.lineprotocol import decode, to_lines
from ccpipe.sinks.file import FileSink, Rotation
from tests.conftest import eventually
from tests.sinks.conftest import metric

NIGHT = 1_740_096_000
"""2025-02-21T00:00:00Z"""


def values(path: Path) -> list[Any]:
    data = path.read_bytes()
    if path.suffix == ".gz":
        data = gzip.decompress(data)
    lines = decode(data)
    assert lines.rejected == []
    return [message.value for message in lines]


def closed(directory: Path) -> list[str]:
    rotation = Rotation(directory / "m.lp", size=0, every=0)
    return [file.path.name for file in rotation.closed()]


async def test_file_is_rotated_by_size(tmp_path: Path) -> None:
    """No file exceeds it, except for one batch that is larger itself, and nothing is lost."""
    path = tmp_path / "m.lp"
    async with FileSink(path=str(path), rotate_size=Size(200)) as sink:
        for number in range(20):
            await sink.write(to_lines([metric(float(number))]))
        await sink.write(to_lines([metric(float(number)) for number in range(20, 30)]))
    names = closed(tmp_path)
    assert len(names) > 5
    assert all((tmp_path / name).stat().st_size <= 200 for name in names)
    found = [value for name in [*names, "m.lp"] for value in values(tmp_path / name)]
    assert found == [float(number) for number in range(30)]


async def test_file_is_rotated_by_time(tmp_path: Path) -> None:
    """Days end at midnight in UTC for every process; the name has the time of the last write."""
    path = tmp_path / "m.lp"
    async with FileSink(path=str(path), rotate_interval=Duration(86400)) as sink:
        await sink.write(to_lines([metric(1.0)]))
        await sink.write(to_lines([metric(2.0)]))
        assert closed(tmp_path) == []
        os.utime(path, (NIGHT - 1, NIGHT - 1))
    async with FileSink(path=str(path), rotate_interval=Duration(86400)) as sink:
        await sink.write(to_lines([metric(3.0)]))
    assert closed(tmp_path) == ["m-20250220T235959Z.lp"]
    assert values(tmp_path / "m-20250220T235959Z.lp") == [1.0, 2.0]
    assert values(path) == [3.0]


def test_closed_files_of_one_second_are_in_order(tmp_path: Path) -> None:
    """A name is never reused, even after an earlier file was compressed."""
    rotation = Rotation(tmp_path / "m.lp", size=0, every=0)
    for number in range(12):
        rotation.path.write_text(f"m value={number}\n")
        os.utime(rotation.path, (NIGHT, NIGHT))
        rotation.rotate(rotation.path.stat())
        if number == 3:
            rotation.compress(threading.Event())
    names = closed(tmp_path)
    assert names[:2] == ["m-20250221T000000Z.lp.gz", "m-20250221T000000Z_001.lp.gz"]
    assert names == sorted(names)
    assert [values(tmp_path / name) for name in names] == [[float(n)] for n in range(12)]


def test_rotation_leaves_other_files_alone(tmp_path: Path) -> None:
    """Only names in the sink's own format count."""
    others = ["m-old.lp", "m2-20250220T235959Z.lp", "m-20250220T235959Z.txt", "mx20250220T235959Z"]
    for name in others:
        (tmp_path / name).touch()
    rotation = Rotation(tmp_path / "m.lp", size=0, every=0)
    rotation.remove_old(keep=0, retention=1.0)
    rotation.compress(threading.Event())
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(others)


def test_file_and_its_compressed_copy_count_once(tmp_path: Path) -> None:
    """Both exist during compression, and after a kill in that time; `max_files` removes both."""
    rotation = Rotation(tmp_path / "m.lp", size=0, every=0)
    for day in (1, 2, 3):
        (tmp_path / f"m-2025010{day}T000000Z.lp").write_text(f"m value={day}\n")
    for name in closed(tmp_path)[1:]:
        (tmp_path / f"{name}.gz").write_bytes(gzip.compress((tmp_path / name).read_bytes()))
    assert closed(tmp_path) == [f"m-2025010{day}T000000Z.lp" for day in (1, 2, 3)]
    rotation.remove_old(keep=2, retention=0)
    assert closed(tmp_path) == [f"m-2025010{day}T000000Z.lp" for day in (2, 3)]
    rotation.compress(threading.Event())
    assert closed(tmp_path) == [f"m-2025010{day}T000000Z.lp.gz" for day in (2, 3)]
    rotation.remove_old(keep=1, retention=0)
    assert [file.name for file in tmp_path.iterdir()] == ["m-20250103T000000Z.lp.gz"]


async def test_closed_files_are_compressed_and_kept(tmp_path: Path) -> None:
    """After a rotation, and at start files of a killed process; `max_files` limits their number."""
    path, left = tmp_path / "m.lp", tmp_path / "m-20250101T000000Z.lp"
    left.write_text("m value=7\n")
    options: dict[str, Any] = {"rotate_size": Size(1), "compression": "gzip"}
    async with FileSink(path=str(path), **options) as sink:
        await eventually(lambda: closed(tmp_path) == ["m-20250101T000000Z.lp.gz"])
        assert values(tmp_path / "m-20250101T000000Z.lp.gz") == [7.0]
        await sink.write(to_lines([metric(1.0)]))
        await sink.write(to_lines([metric(2.0)]))
        await eventually(lambda: len(closed(tmp_path)) == 2 and closed(tmp_path)[1].endswith(".gz"))
        assert values(tmp_path / closed(tmp_path)[1]) == [1.0]
    async with FileSink(path=str(path), max_files=2, **options) as sink:
        for number in range(3, 7):
            await sink.write(to_lines([metric(float(number))]))
        await eventually(
            lambda: (
                len(closed(tmp_path)) == 2
                and all(each.endswith(".gz") for each in closed(tmp_path))
            )
        )
        kept = [value for name in closed(tmp_path) for value in values(tmp_path / name)]
        assert kept == [4.0, 5.0]


async def test_old_files_are_removed(tmp_path: Path) -> None:
    """By the time of their last write, which is in their names."""
    for day in ("20250101", f"{time.strftime('%Y%m%d', time.gmtime())}"):
        (tmp_path / f"m-{day}T000000Z.lp").touch()
    async with FileSink(path=str(tmp_path / "m.lp"), retention=Duration(7 * 86400)):
        await eventually(lambda: len(closed(tmp_path)) == 1)
    assert "m-20250101T000000Z.lp" not in closed(tmp_path)


@pytest.mark.parametrize("fsync", ["always", "interval", "never"])
async def test_file_is_synced_as_configured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fsync: Any
) -> None:
    """Before each write returns, at an interval and at the end, or not at all."""
    path = tmp_path / "m.lp"
    path.touch()
    sizes: list[int] = []
    real = os.fsync

    def watch(descriptor: int) -> None:
        if os.path.samestat(os.fstat(descriptor), path.stat()):
            sizes.append(os.fstat(descriptor).st_size)
        real(descriptor)

    monkeypatch.setattr(os, "fsync", watch)
    options: dict[str, Any] = {"fsync": fsync, "fsync_interval": Interval(0.2)}
    async with FileSink(path=str(path), **options) as sink:
        await sink.write(to_lines([metric(1.0)]))
        first = path.stat().st_size
        if fsync == "interval":
            await eventually(lambda: first in sizes)
        else:
            await asyncio.sleep(0.3)  # no (further) sync may follow
            assert sizes == ([first] if fsync == "always" else [])
        await sink.write(to_lines([metric(2.0)]))
    assert (path.stat().st_size in sizes) == (fsync != "never")


def test_file_sink_refuses_invalid_numbers(tmp_path: Path) -> None:
    """The error names the option before anything starts."""
    with pytest.raises(ConfigError, match="max_files is -1"):
        FileSink(path=str(tmp_path / "m.lp"), max_files=-1)
