"""Errors name the file, the place in it and the reason."""

from pathlib import Path

import pytest

from ccpipe.errors import DataError
from ccpipe.formats.slurm_profile.errors import (
    DamagedProfileError,
    ForeignProfileError,
    LiveProfileError,
    ProfileError,
)

KINDS = [DamagedProfileError, ForeignProfileError, LiveProfileError]


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_has_its_parts_and_a_message_of_them(kind: type[ProfileError]) -> None:
    """Each is a DataError that says where and why, and can be caught as ProfileError."""
    error = kind(Path("job_17.h5"), "cut short", "/Steps/0")
    assert isinstance(error, ProfileError)
    assert isinstance(error, DataError)
    assert str(error) == "job_17.h5: /Steps/0: cut short"
    assert (error.path, error.where, error.reason) == ("job_17.h5", "/Steps/0", "cut short")


def test_an_error_of_a_whole_file_names_no_place() -> None:
    """Nothing stands between the file and the reason then."""
    error = ForeignProfileError("notes.txt", "not an HDF5 file")
    assert str(error) == "notes.txt: not an HDF5 file"
    assert error.where == ""
