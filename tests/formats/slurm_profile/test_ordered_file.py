"""A file whose writer may be killed between any two writes."""

import io
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.formats.slurm_profile import ordered_file as ordered_file_module
from ccpipe.formats.slurm_profile.ordered_file import OrderedFile
from ccpipe.formats.slurm_profile.reader import open_profile
from ccpipe.formats.slurm_profile.table import NodeStep
from ccpipe.formats.slurm_profile.writer import NodeStepWriter
from tests.formats.slurm_profile.samples import START, Row, as_rows, rows

Counts = dict[str, int]
"""Rows of each table: of the energy, and of tasks by number."""


class Recorder:
    """Records what is written to a file, and does it."""

    def __init__(self) -> None:
        self.writes: list[tuple[int, bytes]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def pwrite(self, fd: int, data: bytes, address: int) -> int:
        self.writes.append((address, bytes(data)))
        return os.pwrite(fd, data, address)

    def ftruncate(self, fd: int, size: int) -> None:
        self.writes.append((size, b""))
        os.ftruncate(fd, size)

    def images(self, step: int) -> Iterator[tuple[int, bytes]]:
        image = bytearray()
        for number, (address, data) in enumerate(self.writes, 1):
            image.extend(bytes(max(0, address + len(data) - len(image))))
            image[address : address + len(data)] = data
            if number % step == 0:
                yield number, bytes(image)


def check(found: dict[str, list[Row]], minimum: Counts, maximum: Counts) -> None:
    for name, written in found.items():
        first = 0 if name == "Energy" else 3 * int(name)
        seconds = range(first, first + len(written))
        assert written == [(START + second, second) for second in seconds]
        assert len(written) <= maximum[name]
    assert {
        name: min(len(found.get(name, [])), count) for name, count in minimum.items()
    } == minimum


def read_with_h5py(path: Path) -> dict[str, list[Row]]:
    with h5py.File(path) as file:
        tables = {"Energy": file["c1"].get("Energy"), **dict(file["c1"].get("Tasks", {}))}
        return {
            name: as_rows(table[:][["EpochTime", "Power" if name == "Energy" else "RSS"]])
            for name, table in tables.items()
            if table is not None
        }


def read_with_ccpipe(path: Path) -> dict[str, list[Row]]:
    with open_profile(path) as profile:
        assert profile.damage == []
        return {
            table.task or "Energy": rows(table, ["EpochTime", "RSS" if table.task else "Power"])
            for table in profile.tables
        }


@pytest.mark.parametrize(
    ("polls", "tasks", "step"),
    [pytest.param(40, 4, 1, marks=pytest.mark.long), (120, 40, 41), (900, 1, 29)],
)
def test_ordered_file_is_readable_after_every_write(
    polls: int, tasks: int, step: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer killed by SIGKILL leaves everything up to its last flush.

    Every write of a run is replayed, and after each of them (or every `step`-th) the file is read
    as if the writer had been killed there: by ccpipe, and by libhdf5. Tasks start one by one, so
    that tables are created, names are added and trees are split throughout.
    """
    recorder = Recorder()
    monkeypatch.setattr(ordered_file_module, "os", recorder)
    counts: Counts = {}
    flushed: list[tuple[int, Counts]] = []
    writer = NodeStepWriter(tmp_path / "5_0_c1.h5", NodeStep(step="0", node="c1"), start=START)
    flushed.append((len(recorder.writes), {}))
    for second in range(polls):
        names = ["Energy", *map(str, range(min(1 + second // 3, tasks)))]
        for name in names:
            if name == "Energy":
                writer.append("Energy", {"Power": second}, START + second)
            else:
                writer.append("Tasks", {"RSS": second}, START + second, int(name))
            counts[name] = counts.get(name, 0) + 1
        writer.flush()
        flushed.append((len(recorder.writes), dict(counts)))
    writer.close()
    monkeypatch.undo()
    path = tmp_path / "6_0_c1.h5"
    checked = 0
    for number, image in recorder.images(step):
        if number >= flushed[0][0]:
            path.write_bytes(image)
            minimum = [count for writes, count in flushed if writes <= number][-1]
            later = [count for writes, count in flushed if writes > number] or [minimum]
            for read in (read_with_ccpipe, read_with_h5py):
                check(read(path), minimum, later[0])
            checked += 1
    assert checked > 100


operations = st.lists(
    st.tuples(
        st.sampled_from(["write", "write", "read", "flush", "truncate"]),
        st.integers(0, 300),
        st.binary(min_size=1, max_size=90),
    ),
    max_size=40,
)


@given(operations)
def test_ordered_file_behaves_like_regular_file(steps: list[tuple[str, int, bytes]]) -> None:
    model = bytearray()
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "file"
        file = OrderedFile(os.open(path, os.O_RDWR | os.O_CREAT))
        for kind, place, data in steps:
            if kind == "write":
                file.seek(place)
                file.write(data)
                model.extend(bytes(max(0, place + len(data) - len(model))))
                model[place : place + len(data)] = data
            elif kind == "read":
                file.seek(place)
                buffer = bytearray(50)
                file.readinto(buffer)
                assert buffer[: max(0, len(model) - place)] == model[place : place + 50]
            elif kind == "truncate":
                file.truncate(len(model) + place)
                model.extend(bytes(place))
            else:
                file.flush()
                assert path.read_bytes()[: len(model)] == model
        assert file.seek(0, io.SEEK_END) == len(model)
        file.close()
        assert path.read_bytes()[: len(model)] == model
