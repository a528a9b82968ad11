"""Object headers."""

from pathlib import Path

import h5py
import numpy as np
import pytest

from ccpipe.formats.slurm_profile.errors import (
    DamagedProfileError,
)
from ccpipe.formats.slurm_profile.hdf5.messages import (
    ATTRIBUTE,
    DATATYPE,
    LAYOUT,
    SYMBOL_TABLE,
    read_header,
    unpack,
)
from ccpipe.formats.slurm_profile.hdf5.storage import Storage
from tests.formats.slurm_profile.hdf5.files import FORMAT, SAMPLE


def test_a_header_goes_on_in_other_blocks(tmp_path: Path) -> None:
    """All messages are returned, also those that were added after the first block was full."""
    with h5py.File(tmp_path / "made.h5", "w", libver=FORMAT) as file:
        group = file.create_group("group")
        for number in range(50):
            group.attrs[f"attribute {number}"] = number
        table = group.create_dataset("t", data=np.zeros(3, [("x", "<u8")]))
        addresses = [h5py.h5o.get_info(item.id).addr for item in (group, table)]
    with Storage(tmp_path / "made.h5") as storage:
        group_types, table_types = (
            [message.type for message in read_header(storage, address)] for address in addresses
        )
    assert (group_types.count(ATTRIBUTE), group_types.count(SYMBOL_TABLE)) == (50, 1)
    assert {DATATYPE, LAYOUT} <= set(table_types)


def test_what_is_no_header_is_damaged() -> None:
    """The first bytes of an object say which version its header has."""
    with Storage(SAMPLE) as storage, pytest.raises(DamagedProfileError, match="no object header"):
        read_header(storage, 0)


def test_a_structure_that_is_cut_short_is_damaged() -> None:
    """Integers are unpacked from as many bytes as they need."""
    with Storage(SAMPLE) as storage:
        assert unpack(storage, "<BH", b"\1\2\0", 0) == (1, 2)
        with pytest.raises(DamagedProfileError, match="a structure of 3 bytes is cut short"):
            unpack(storage, "<BH", b"\1\2\0", 1)
