"""What the process that reads HDF5 does with requests, run in this process on sound files."""

import os
import signal
import subprocess
import sys

import h5py
import msgspec
import pytest

from ccpipe.formats.slurm_profile import hdf5_process
from ccpipe.formats.slurm_profile.hdf5 import (
    HEAD,
    Failure,
    GroupReply,
    ObjectRequest,
    RowsReply,
    TableReply,
)
from ccpipe.formats.slurm_profile.hdf5_process import Reader
from tests.formats.slurm_profile.samples import DATA, dump

ENERGY = "/c1/Energy"
PATHS = [DATA / "node-step" / "alice" / f"3_{step}_c1.h5" for step in (0, 1, 2, "batch")]


def request(number: int, name: str, stop: int | None = None) -> ObjectRequest:
    path = PATHS[number]
    status = path.stat()
    return ObjectRequest(number, os.fsencode(path), (status.st_dev, status.st_ino), name, 0, stop)


def test_objects_are_described_and_rows_are_read() -> None:
    reader = Reader()
    group = reader.answer(request(0, "/c1"))
    assert isinstance(group, GroupReply)
    assert group.attributes["Node Name"] == "c1"
    table = reader.answer(request(0, ENERGY))
    assert isinstance(table, TableReply)
    assert [field for field, _, _ in table.fields] == ["ElapsedTime", "EpochTime", "Power"]
    assert (table.width, table.rows) == (24, table.claimed)
    rows = reader.answer(request(0, ENERGY, table.rows))
    with h5py.File(PATHS[0]) as file:
        assert rows == RowsReply(dump(file)["c1"]["Energy"])
    assert isinstance(reader.answer(request(0, "/c1/Nothing")), Failure)


@pytest.mark.parametrize("limit", ["MAX_BYTES", "MAX_FILES"])
def test_few_files_are_open_at_a_time(monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    """The one that was not read for longest is closed, and opened again when it is needed."""
    monkeypatch.setattr(hdf5_process, limit, 2 if limit == "MAX_FILES" else 50_000)
    reader = Reader()
    sizes = [path.stat().st_size for path in PATHS]
    for number in [*range(len(PATHS)), 0, 1]:
        assert isinstance(reader.answer(request(number, ENERGY, 1)), RowsReply)
        open_files = list(reader._files)
        assert open_files[-1] == number
        assert len(open_files) <= 2 or sum(sizes[other] for other in open_files) <= 50_000
    assert 0 in reader._files
    reader.answer(request(1, ""))
    assert 1 not in reader._files


def test_large_files_are_read_piece_by_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Reader().answer(request(0, ENERGY, 20))
    monkeypatch.setattr(hdf5_process, "READ_WHOLE", 0)
    reader = Reader()
    assert reader.answer(request(0, ENERGY, 20)) == whole
    assert reader._files[0].file.driver == "sec2"


def run_instead(answer: str) -> subprocess.CompletedProcess[bytes]:
    program = f"""
from ccpipe.formats.slurm_profile import hdf5_process as process
process.SECONDS, process.MEMORY = 1, 2**29
def answer(self, request):
    {answer}
process.Reader.answer = answer
process.main()
"""
    body = msgspec.msgpack.encode(request(0, "/"))
    message = len(body).to_bytes(HEAD, "little") + body
    return subprocess.run(
        [sys.executable, "-c", program], input=message, check=False, capture_output=True
    )


def test_the_processor_time_of_a_request_is_limited() -> None:
    assert run_instead("while True: pass").returncode == -signal.SIGXCPU


def test_the_memory_of_the_process_is_limited() -> None:
    done = run_instead("return process.RowsReply(bytes(2**30))")
    assert b"MemoryError" in done.stderr
