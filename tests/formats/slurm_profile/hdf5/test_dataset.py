"""Tables of records, in chunks or in one piece."""

import tempfile
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import h5py
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ccpipe.formats.slurm_profile.errors import (
    DamagedProfileError,
)
from ccpipe.formats.slurm_profile.hdf5 import Dataset, Group, open_root
from ccpipe.formats.slurm_profile.hdf5 import storage as storage_module
from ccpipe.formats.slurm_profile.hdf5.storage import Storage
from tests.formats.slurm_profile.hdf5.files import FORMAT, SAMPLE, read, read_bytes


def datasets(group: Group) -> Iterator[Dataset]:
    """Return all datasets below a group."""
    for name in group:
        item = group.open(name)
        if isinstance(item, Group):
            yield from datasets(item)
        else:
            yield item


@pytest.mark.parametrize("whole", [True, False])
def test_slices_are_those_of_the_whole(whole: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any part of a table can be read, from files in memory and from files too large for it."""
    monkeypatch.setattr(storage_module, "READ_WHOLE", 2**20 if whole else 0)
    with Storage(SAMPLE) as storage:
        for dataset in datasets(open_root(storage)):
            rows = dataset.read()
            assert len(rows) == len(dataset) == dataset.claimed
            for start, stop in ((0, 0), (0, 1), (3, 14), (9, 11), (15, 99), (40, 50)):
                assert dataset.read(start, stop).tobytes() == rows[start:stop].tobytes()


kinds = st.sampled_from(["<u8", "<f8", ">u4", "<i2", ">f8", "<f4", "u1", "S5"])


@given(
    kinds=st.lists(kinds, min_size=1, max_size=8),
    rows=st.integers(0, 60),
    chunk=st.integers(1, 25),
    level=st.none() | st.integers(0, 9),
    seed=st.integers(0, 2**32),
)
@example(kinds=["<u8"], rows=60, chunk=1, level=0, seed=0)
def test_what_h5py_writes_is_read(
    kinds: list[str], rows: int, chunk: int, level: int | None, seed: int
) -> None:
    """Records of any types of numbers, in chunks of any size, compressed or not."""
    dtype = np.dtype([(f"field {number}", kind) for number, kind in enumerate(kinds)])
    size = rows * dtype.itemsize
    data = np.frombuffer(np.random.default_rng(seed).bytes(size), dtype)
    deflate = {} if level is None else {"compression": "gzip", "compression_opts": level}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "made.h5"
        with h5py.File(path, "w", libver=FORMAT) as file:
            group = file.create_group("group")
            group.create_dataset("chunked", data=data, chunks=(chunk,), maxshape=(None,), **deflate)
            group.create_dataset("contiguous", data=data)
        found = read(path)["group"]
    assert found == {"chunked": data.tobytes(), "contiguous": data.tobytes()}


def test_a_changed_record_is_found_by_its_checksum() -> None:
    """What deflate's checksum covers is checked, on the fast path too."""
    data = bytearray(SAMPLE.read_bytes())
    place = data.index((1_795_170_874).to_bytes(8, "little"))
    data[place] ^= 1
    with pytest.raises(DamagedProfileError, match=r"/c1/\w+(/\d)?: row 0: .*incorrect data check"):
        read_bytes(bytes(data))


def test_rows_that_were_never_stored_cost_nothing(tmp_path: Path) -> None:
    """A table that claims more rows than it has chunks for has those that it has."""
    with h5py.File(tmp_path / "made.h5", "w", libver=FORMAT) as file:
        table = file.create_dataset(
            "t", data=np.ones(20, [("x", "<u8")]), chunks=(10,), maxshape=(None,)
        )
        table.resize((2**62,))
    with Storage(tmp_path / "made.h5") as storage:
        found = open_root(storage).open("t")
        assert isinstance(found, Dataset)
        assert (len(found), found.claimed) == (20, 2**62)
        assert found.read()["x"].tolist() == [1] * 20


def test_a_deflated_chunk_does_not_expand_beyond_its_size(tmp_path: Path) -> None:
    """A chunk that would unpack to more than the rows that it has is damaged, and not unpacked."""
    with h5py.File(tmp_path / "made.h5", "w", libver=FORMAT) as file:
        file.create_dataset(
            "t", data=np.zeros(4_000_000, [("x", "<u8")]), chunks=(4_000_000,), compression="gzip"
        )
    data = (tmp_path / "made.h5").read_bytes()
    small = data.replace((4_000_000).to_bytes(4, "little"), (10).to_bytes(4, "little"))
    assert small != data
    tracemalloc.start()
    with pytest.raises(DamagedProfileError, match="81 bytes in a chunk of 80"):
        read_bytes(small)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2 * 2**20
