"""Whole HDF5 files: complete contents, and named errors for damage."""

from pathlib import Path
from typing import Any

import h5py
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.formats.slurm_profile.hdf5 import (
    ProfileError,
)
from tests.formats.slurm_profile.samples import DATA, REAL, dump, named, read_bytes, read_file

SAMPLE = DATA / "node-step" / "alice" / "17_0_c1.h5"
MERGED = DATA / "merged" / "job_17.h5"


def outcome(data: bytes) -> dict[str, Any] | ProfileError:
    try:
        return read_bytes(data)
    except ProfileError as error:
        return error


def is_part(found: Any, whole: Any) -> bool:
    """Return whether `found` is a part of `whole`: fewer names, or fewer rows at the end."""
    if isinstance(found, dict):
        return all(name in whole and is_part(found[name], whole[name]) for name in found)
    return bool(found == whole or (isinstance(found, bytes) and whole.startswith(found)))


@pytest.mark.parametrize("path", REAL, ids=named(REAL))
def test_reader_agrees_with_h5py_on_real_files(path: Path) -> None:
    """Every attribute and every byte of every record must match."""
    with h5py.File(path) as file:
        assert read_file(path) == dump(file)


@pytest.mark.parametrize("step", [1, 7])
def test_reader_reports_truncated_file(step: int) -> None:
    """A truncated file never gives records that are not in the whole one, and never crashes."""
    data = SAMPLE.read_bytes()
    whole = read_bytes(data)
    for size in range(step - 1, len(data), 61):
        found = outcome(data[:size])
        assert found.reason if isinstance(found, ProfileError) else is_part(found, whole)


@given(st.binary(max_size=4000), st.sampled_from([b"", SAMPLE.read_bytes()[:96]]))
def test_reader_rejects_any_bytes_with_profile_error(data: bytes, head: bytes) -> None:
    """Only named errors are raised."""
    with pytest.raises(ProfileError):
        read_bytes(head + data)


@given(
    source=st.sampled_from([SAMPLE, MERGED]),
    changes=st.lists(st.tuples(st.integers(0, 9999), st.integers(0, 255)), min_size=1, max_size=8),
    spread=st.booleans(),
)
def test_reader_reads_changed_file_or_raises_profile_error(
    source: Path, changes: list[tuple[int, int]], spread: bool
) -> None:
    """Only named errors are raised; most structures are near the beginning."""
    data = bytearray(source.read_bytes())
    for place, value in changes:
        data[place * (37 if spread else 1) % len(data)] = value
    found = outcome(bytes(data))
    assert isinstance(found, dict) or (found.path and found.reason)
