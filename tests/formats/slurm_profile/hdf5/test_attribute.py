"""Attributes: one number or text each."""

import struct
from pathlib import Path

import h5py
import numpy as np
import pytest

from ccpipe.formats.slurm_profile.errors import (
    DamagedProfileError,
)
from ccpipe.formats.slurm_profile.hdf5 import open_root
from ccpipe.formats.slurm_profile.hdf5.attribute import count_elements, read_attributes
from ccpipe.formats.slurm_profile.hdf5.messages import (
    ATTRIBUTE,
    HeaderMessage,
)
from ccpipe.formats.slurm_profile.hdf5.storage import Storage
from tests.formats.slurm_profile.hdf5.files import FORMAT, SAMPLE


def test_attributes_of_one_value_are_read(tmp_path: Path) -> None:
    """Numbers and texts are read, as scalars or arrays of one; other values are left out."""
    with h5py.File(tmp_path / "made.h5", "w", libver=FORMAT) as file:
        attributes = file.attrs
        attributes["scalar"] = np.int32(-7)
        attributes["array"] = np.array([2**40], "<i8")
        attributes["float"] = np.array([0.5], ">f8")
        attributes["text"] = np.bytes_("Mon\N{LATIN SMALL LETTER A WITH RING ABOVE}".encode())
        attributes["several"] = np.arange(3)
        attributes["record"] = np.zeros(1, [("x", "<u8")])
    with Storage(tmp_path / "made.h5") as storage:
        found = open_root(storage).attributes
    assert found == {"scalar": -7, "array": 2**40, "float": 0.5, "text": "Mon\xe5"}


def test_an_attribute_that_is_cut_short_is_damaged() -> None:
    """Sizes that lead beyond the message are errors; one without any type is left out."""
    number = bytes.fromhex("10 08 00 00 04 00 00 00 00 00 20 00")
    scalar = bytes.fromhex("01 00 00 00 00 00 00 00")
    head = struct.pack("<BxHHH", 2, 2, len(number), len(scalar))
    whole = head + b"n\0" + number + scalar + (7).to_bytes(4, "little")
    with Storage(SAMPLE) as storage:
        assert read_attributes(storage, [HeaderMessage(ATTRIBUTE, whole)]) == {"n": 7}
        for size in (*range(len(head)), *range(len(head) + 3, len(whole))):
            with pytest.raises(DamagedProfileError):
                read_attributes(storage, [HeaderMessage(ATTRIBUTE, whole[:size])])
        for size in range(len(head), len(head) + 3):
            assert read_attributes(storage, [HeaderMessage(ATTRIBUTE, whole[:size])]) == {}
        with pytest.raises(DamagedProfileError, match="an attribute of version 4"):
            read_attributes(storage, [HeaderMessage(ATTRIBUTE, b"\4" + whole[1:])])


def test_a_dataspace_has_one_dimension_at_most() -> None:
    """A scalar has one element, an array the number that it says."""
    with Storage(SAMPLE) as storage:
        assert count_elements(storage, bytes([1, 0])) == 1
        assert count_elements(storage, bytes([1, 1, *bytes(6), 5, *bytes(7)])) == 5
        assert count_elements(storage, bytes([2, 1, 0, 0, 6, *bytes(7)])) == 6
        with pytest.raises(DamagedProfileError, match="with 2 dimensions"):
            count_elements(storage, bytes([1, 2, *bytes(22)]))
