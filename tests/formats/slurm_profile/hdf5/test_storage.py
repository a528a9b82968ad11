"""The bytes of a file by address, and the limits on what is read of them."""

import os
from pathlib import Path

import h5py
import numpy as np
import pytest

from ccpipe.formats.slurm_profile.errors import (
    DamagedProfileError,
    ForeignProfileError,
)
from ccpipe.formats.slurm_profile.hdf5 import storage as storage_module
from ccpipe.formats.slurm_profile.hdf5.storage import Storage
from tests.formats.slurm_profile.hdf5.files import FORMAT, read, read_bytes


def test_other_files_are_foreign(tmp_path: Path) -> None:
    """Text, folders and pipes are no profiles, and a pipe does not block."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ForeignProfileError, match="not an HDF5 file"):
        read_bytes(b"Step,Node\n" * 20)
    for path in (tmp_path, tmp_path / "pipe"):
        with pytest.raises(ForeignProfileError, match="not a regular file"):
            read(path)
    with pytest.raises(FileNotFoundError):
        read(tmp_path / "missing.h5")


def test_a_table_may_not_be_linked_to_twice(tmp_path: Path) -> None:
    """Else a small file could expand without bound."""
    with h5py.File(tmp_path / "made.h5", "w", libver=FORMAT) as file:
        first = file.create_group("first")
        first["table"] = np.zeros(5, [("x", "<u8")])
        first["again"] = first["table"]
        first["circle"] = first
    with pytest.raises(DamagedProfileError, match="linked to twice"):
        read(tmp_path / "made.h5")


def test_chunks_may_not_share_their_bytes(tmp_path: Path) -> None:
    """Memory and time are bounded by the size of the file."""
    with h5py.File(tmp_path / "made.h5", "w", libver=FORMAT) as file:
        rows = np.zeros(20_000, [("x", "<u8")])
        table = file.create_dataset("t", data=rows, chunks=(1000,))
        places = [table.id.get_chunk_info(number).byte_offset for number in range(20)]
    data = (tmp_path / "made.h5").read_bytes()
    for place in places[1:]:
        data = data.replace(place.to_bytes(8, "little"), places[0].to_bytes(8, "little"))
    with pytest.raises(DamagedProfileError, match="claim more bytes"):
        read_bytes(data[: places[0] + 8000])


@pytest.mark.parametrize("limit", [0, 2**20])
def test_bytes_are_read_by_address(
    limit: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Places, close or far apart, of a file in memory or on disk; none beyond its end."""
    monkeypatch.setattr(storage_module, "READ_WHOLE", limit)
    monkeypatch.setattr(storage_module, "GAPS", 10)
    data = bytes(range(256))
    (tmp_path / "file").write_bytes(data)
    with Storage(tmp_path / "file") as storage:
        assert storage.read(7, 5) == data[7:12]
        assert storage.read_many([(9, 2), (3, 4)]) == [data[9:11], data[3:7]]
        assert storage.read_many([(250, 6), (0, 1)]) == [data[250:], data[:1]]
        with pytest.raises(DamagedProfileError, match="beyond the end of the file at 256"):
            storage.read(250, 7)


def test_a_file_that_shrinks_is_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file too large for memory may be truncated while it is read."""
    monkeypatch.setattr(storage_module, "READ_WHOLE", 0)
    path = tmp_path / "file"
    path.write_bytes(bytes(100))
    with Storage(path) as storage:
        os.truncate(path, 40)
        with pytest.raises(DamagedProfileError, match="truncated at 40 while it was read"):
            storage.read(30, 20)


def test_a_file_that_was_released_is_read_again(tmp_path: Path) -> None:
    """As it is then; what it has lost is damage."""
    path = tmp_path / "file"
    path.write_bytes(bytes(100))
    with Storage(path) as storage:
        storage.release()
        assert storage.read(30, 20) == bytes(20)
        storage.release()
        path.write_bytes(b"x" * 40)
        assert storage.read_many([(30, 5)]) == [b"xxxxx"]
        with pytest.raises(DamagedProfileError, match="truncated at 40 while it was read"):
            storage.read(30, 20)
