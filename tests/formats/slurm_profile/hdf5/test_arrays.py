"""The types of numpy arrays that the reader returns."""

from ccpipe.formats.slurm_profile.hdf5 import Array, Dataset, Records, open_root
from ccpipe.formats.slurm_profile.hdf5.storage import Storage
from tests.formats.slurm_profile.hdf5.files import SAMPLE


def test_rows_are_records_with_named_fields() -> None:
    """What a table returns is of one dimension, and each row has the table's fields."""
    with Storage(SAMPLE) as storage:
        node = open_root(storage).group("c1")
        assert node is not None
        table = node.open("Energy")
        assert isinstance(table, Dataset)
        rows: Records = table.read()
        power: Array = rows["Power"]
    assert (rows.ndim, rows.dtype.kind) == (1, "V")
    assert rows.dtype.names == ("ElapsedTime", "EpochTime", "Power")
    assert power.shape == rows.shape
