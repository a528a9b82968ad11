"""The reader of HDF5 structures: right where h5py is right, and safe where libhdf5 is not."""

import os
import tempfile
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ccpipe.formats.slurm_profile.errors import (
    DamagedProfileError,
    ForeignProfileError,
    LiveProfileError,
    NewerFormatError,
    ProfileError,
)
from ccpipe.formats.slurm_profile.hdf5 import Dataset, Group, open_root
from ccpipe.formats.slurm_profile.hdf5 import storage as storage_module
from ccpipe.formats.slurm_profile.hdf5.storage import Storage
from tests.formats.slurm_profile.samples import DATA, REAL, dump, named

FORMAT: Any = ("earliest", "v110")
SAMPLE = DATA / "node-step" / "alice" / "17_0_c1.h5"
MERGED = DATA / "merged" / "job_17.h5"


def ours(group: Group) -> dict[str, Any]:
    """Return what this reader reads of a group, as ``dump`` does with h5py."""
    found: dict[str, Any] = {f"@{name}": value for name, value in group.attributes.items()}
    for name in group:
        item = group.open(name)
        found[name] = ours(item) if isinstance(item, Group) else item.read().tobytes()
    return found


def read(path: Path) -> dict[str, Any]:
    """Read a whole file."""
    with Storage(path) as storage:
        return ours(open_root(storage))


def read_bytes(data: bytes) -> dict[str, Any]:
    """Read a whole file that has these bytes."""
    with tempfile.NamedTemporaryFile(suffix=".h5") as file:
        file.write(data)
        file.flush()
        return read(Path(file.name))


def outcome(data: bytes) -> dict[str, Any] | ProfileError:
    """Read bytes, or return the error with which that ends."""
    try:
        return read_bytes(data)
    except ProfileError as error:
        return error


def is_part(found: Any, whole: Any) -> bool:
    """Return whether all that was found is in the whole: fewer names, or rows less at the end."""
    if isinstance(found, dict):
        return all(name in whole and is_part(found[name], whole[name]) for name in found)
    return bool(found == whole or (isinstance(found, bytes) and whole.startswith(found)))


def datasets(group: Group) -> Iterator[Dataset]:
    """Return all datasets below a group."""
    for name in group:
        item = group.open(name)
        if isinstance(item, Group):
            yield from datasets(item)
        else:
            yield item


@pytest.mark.parametrize("path", REAL, ids=named(REAL))
def test_real_files_read_as_h5py_reads_them(path: Path) -> None:
    """Every attribute and every byte of every record is what libhdf5 says it is."""
    with h5py.File(path) as file:
        assert read(path) == dump(file)


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


@pytest.mark.parametrize("step", [1, 7])
def test_any_beginning_of_a_file_is_an_error_with_a_name(step: int) -> None:
    """A truncated file never gives records that are not in the whole one, and never crashes."""
    data = SAMPLE.read_bytes()
    whole = read_bytes(data)
    for size in range(step - 1, len(data), 61):
        found = outcome(data[:size])
        assert found.reason if isinstance(found, ProfileError) else is_part(found, whole)


@given(st.binary(max_size=4000), st.sampled_from([b"", SAMPLE.read_bytes()[:96]]))
def test_any_bytes_are_an_error_with_a_name(data: bytes, head: bytes) -> None:
    """What is no profile says so; whatever it is, nothing else is raised."""
    with pytest.raises(ProfileError):
        read_bytes(head + data)


@given(
    source=st.sampled_from([SAMPLE, MERGED]),
    changes=st.lists(st.tuples(st.integers(0, 9999), st.integers(0, 255)), min_size=1, max_size=8),
    spread=st.booleans(),
)
def test_changed_bytes_are_an_error_or_read(
    source: Path, changes: list[tuple[int, int]], spread: bool
) -> None:
    """Damaged files raise nothing but named errors; most structures are near the beginning."""
    data = bytearray(source.read_bytes())
    for place, value in changes:
        data[place * (37 if spread else 1) % len(data)] = value
    found = outcome(bytes(data))
    assert isinstance(found, dict) or (found.path and found.reason)


def test_a_changed_record_is_found_by_its_checksum() -> None:
    """What deflate's checksum covers is checked, on the fast path too."""
    data = bytearray(SAMPLE.read_bytes())
    place = data.index((1_795_170_874).to_bytes(8, "little"))
    data[place] ^= 1
    with pytest.raises(DamagedProfileError, match=r"/c1/\w+(/\d)?: row 0: .*incorrect data check"):
        read_bytes(bytes(data))


def test_a_file_of_which_only_the_superblock_is_there_is_live() -> None:
    """Slurm's plug-in keeps 96 bytes on disk until the step ends."""
    with pytest.raises(LiveProfileError, match="the step still runs"):
        read(DATA / "live" / "35_0_c1.h5")
    with pytest.raises(LiveProfileError, match="empty"):
        read_bytes(b"")


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


def test_newer_structures_are_named(tmp_path: Path) -> None:
    """They are for libhdf5, in another process."""
    with h5py.File(tmp_path / "made.h5", "w", libver="latest") as file:
        file["t"] = np.zeros(5, [("x", "<u8")])
    with pytest.raises(NewerFormatError, match="superblock of version"):
        read(tmp_path / "made.h5")
