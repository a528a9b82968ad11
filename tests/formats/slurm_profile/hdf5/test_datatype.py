"""Datatypes of fields and attributes."""

import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.formats.slurm_profile.errors import (
    DamagedProfileError,
)
from ccpipe.formats.slurm_profile.hdf5.datatype import read_datatype
from ccpipe.formats.slurm_profile.hdf5.messages import (
    DATATYPE,
    read_header,
)
from ccpipe.formats.slurm_profile.hdf5.storage import Storage
from tests.formats.slurm_profile.hdf5.files import FORMAT, SAMPLE


def encoded(dtype: np.dtype[Any]) -> bytes:
    """Return a datatype as libhdf5 writes it in an object header."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "made.h5"
        with h5py.File(path, "w", libver=FORMAT) as file:
            place = file.create_dataset("t", (1,), dtype).id
            address = h5py.h5o.get_info(place).addr
        with Storage(path) as storage:
            messages = read_header(storage, address)
    return next(message.data for message in messages if message.type == DATATYPE)


@pytest.mark.parametrize("kind", ["u1", "<i2", ">u4", "<u8", "<f4", ">f8", "S1", "S300"])
def test_numbers_and_texts_have_numpys_type(kind: str) -> None:
    """Signed or not, in either byte order, of any size that profiles have."""
    data = encoded(np.dtype(kind))
    with Storage(SAMPLE) as storage:
        assert read_datatype(storage, data).dtype == np.dtype(kind)


def test_a_record_has_its_fields_at_their_offsets() -> None:
    """Names, types, offsets and the size of the record, with gaps between fields."""
    layout = {"names": ["a", "b"], "formats": ["<u4", ">f8"], "offsets": [2, 10], "itemsize": 24}
    dtype: np.dtype[Any] = np.dtype(layout)  # type: ignore[call-overload]
    data = encoded(dtype)
    with Storage(SAMPLE) as storage:
        assert read_datatype(storage, data).dtype == dtype


def test_types_that_no_profile_has_are_damaged() -> None:
    """Arrays, references, records in records, and texts of no length."""
    nested = np.dtype([("x", [("y", "<u8")])])
    array = np.dtype([("x", "<u8", (3,))])
    with Storage(SAMPLE) as storage:
        for data in (encoded(nested), encoded(array), encoded(h5py.ref_dtype), b"\x13" + bytes(7)):
            with pytest.raises(DamagedProfileError):
                read_datatype(storage, data)


@given(st.binary(max_size=80))
def test_any_bytes_are_a_type_or_damaged(data: bytes) -> None:
    """Nothing else is raised."""
    with Storage(SAMPLE) as storage:
        for start in (b"", b"\x16\x01\x00\x00\x08\x00\x00\x00"):
            with suppress(DamagedProfileError):
                assert read_datatype(storage, start + data).dtype.itemsize > 0
