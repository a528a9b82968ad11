"""Groups, their links, and the superblock."""

from pathlib import Path

import h5py
import numpy as np
import pytest

from ccpipe.formats.slurm_profile.errors import (
    DamagedProfileError,
    LiveProfileError,
    NewerFormatError,
)
from ccpipe.formats.slurm_profile.hdf5 import Dataset, open_root
from ccpipe.formats.slurm_profile.hdf5.storage import Storage
from tests.formats.slurm_profile.hdf5.files import FORMAT, SAMPLE, read, read_bytes
from tests.formats.slurm_profile.samples import DATA


def test_large_groups_and_tables_have_trees_of_several_levels(tmp_path: Path) -> None:
    """Names and chunks by the thousand are all found, in the order of their names."""
    with h5py.File(tmp_path / "made.h5", "w", libver=FORMAT) as file:
        for number in range(1500):
            file.create_group(str(number))
        rows = np.zeros(30_000, [("x", "<u8")])
        rows["x"] = np.arange(30_000)
        file.create_dataset("table", data=rows, chunks=(3,))
    with Storage(tmp_path / "made.h5") as storage:
        root = open_root(storage)
        assert list(root) == sorted([*map(str, range(1500)), "table"])
        table = root.open("table")
        assert isinstance(table, Dataset)
        assert table.read()["x"].tolist() == list(range(30_000))


def test_a_file_of_which_only_the_superblock_is_there_is_live() -> None:
    """Slurm's plug-in keeps 96 bytes on disk until the step ends."""
    with pytest.raises(LiveProfileError, match="the step still runs"):
        read(DATA / "live" / "35_0_c1.h5")
    with pytest.raises(LiveProfileError, match="empty"):
        read_bytes(b"")


def test_no_other_file_is_opened(tmp_path: Path) -> None:
    """Links and storage that lead elsewhere would let a user read what is not theirs."""
    secret = tmp_path / "secret"
    secret.write_bytes(b"password" * 10)
    with h5py.File(tmp_path / "made.h5", "w", libver=FORMAT) as file:
        file["soft"] = h5py.SoftLink("/somewhere")
        file.create_dataset("raw", (10,), [("x", "<u8")], external=[(str(secret), 0, 80)])
    with Storage(tmp_path / "made.h5") as storage:
        root = open_root(storage)
        assert list(root) == ["raw"]
        with pytest.raises(DamagedProfileError, match="in another file"):
            root.open("raw")


def test_newer_structures_are_named(tmp_path: Path) -> None:
    """They are for libhdf5, in another process."""
    with h5py.File(tmp_path / "made.h5", "w", libver="latest") as file:
        file["t"] = np.zeros(5, [("x", "<u8")])
    with pytest.raises(NewerFormatError, match="superblock of version"):
        read(tmp_path / "made.h5")


def test_a_group_knows_its_names() -> None:
    """It can be asked for a name, and for a group of that name; a table is no group."""
    with Storage(SAMPLE) as storage:
        root = open_root(storage)
        assert list(root) == ["c1"]
        node = root.group("c1")
        assert node is not None
        assert node.path == "/c1"
        assert len(node) == len(list(node))
        assert "Energy" in node
        assert "Power" not in node
        assert node.group("Energy") is None
        assert node.group("Power") is None
        assert node.open("Energy") is node.open("Energy")
        with pytest.raises(KeyError):
            node.open("Power")
