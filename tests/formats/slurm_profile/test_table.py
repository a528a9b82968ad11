"""Tables: rows of one series of one node-step."""

import numpy as np
import pytest

from ccpipe.formats.slurm_profile.hdf5 import DamagedProfileError, Records
from ccpipe.formats.slurm_profile.series import EnergySeries
from ccpipe.formats.slurm_profile.table import NodeStep, RowsInMemory, Table, is_table
from tests.formats.slurm_profile.samples import rows, table_of


class DamagedRows(RowsInMemory):
    """Rows of which some chunks of ten cannot be read."""

    def __init__(self, rows: Records, bad: set[int]) -> None:
        super().__init__(rows)
        self._bad = bad

    def read(self, start: int, stop: int) -> Records:
        for chunk in range(start // 10, (stop - 1) // 10 + 1):
            if chunk in self._bad:
                raise DamagedProfileError("x.h5", f"row {chunk * 10}: bad")
        return super().read(start, stop)


@pytest.mark.parametrize("size", [1, 7, 100])
def test_table_blocks_join_to_whole(size: int) -> None:
    table = table_of("Energy", {"Power": list(range(50))})
    blocks = list(table.blocks(size))
    assert max(map(len, blocks)) <= size
    assert np.concatenate(blocks).tobytes() == table.read().tobytes()


def test_table_omits_rows_never_written() -> None:
    """A killed writer may leave rows of zeros at the end."""
    table = table_of("Energy", {"Power": [1, 2, 0, 4, 0, 0], "EpochTime": [7, 8, 0, 9, 0, 0]})
    assert table.read()["Power"].tolist() == [1, 2, 0, 4]
    assert table_of("Energy", {"Power": [0], "EpochTime": [0]}).read().tolist() == []


def test_table_salvages_rows_around_damage() -> None:
    made = np.zeros(95, EnergySeries.file_type())
    made["EpochTime"] = made["Power"] = np.arange(1, 96)
    table = Table(NodeStep(step="0", node="c1"), "Energy", DamagedRows(made, {2, 7}))
    damage: list[DamagedProfileError] = []
    found = np.concatenate(list(table.blocks(damage=damage)))["Power"].tolist()
    assert found == [*range(1, 21), *range(31, 71), *range(81, 96)]
    assert [error.reason for error in damage] == ["row 20: bad", "row 70: bad"]
    with pytest.raises(DamagedProfileError):
        table.read()


def test_table_converts_numbers_to_eight_bytes() -> None:
    made: Records = np.zeros(1, [("ElapsedTime", ">u4"), ("EpochTime", ">u8"), ("x", "<f4")])
    made["EpochTime"], made["x"] = 5, 0.5
    table = Table(NodeStep(step="0", node="c1"), "Other", RowsInMemory(made))
    assert table.read().dtype == np.dtype(
        [("ElapsedTime", "<u8"), ("EpochTime", "<u8"), ("x", "<f8")]
    )
    assert rows(table) == [(0, 5, 0.5)]


def test_table_reads_damaged_numbers_without_warning() -> None:
    made: Records = np.zeros(1, [("ElapsedTime", "<u8"), ("EpochTime", "<u8"), ("x", "<f4")])
    made["EpochTime"] = 5
    made["x"] = np.array([0x7FA00000], "<u4").view("<f4")
    table = Table(NodeStep(step="0", node="c1"), "Other", RowsInMemory(made))
    assert np.isnan(table.read()["x"][0])


def test_is_table_requires_two_times_and_numbers() -> None:
    assert is_table(EnergySeries.file_type())
    times = [("ElapsedTime", "<u8"), ("EpochTime", "<u8")]
    for fields in (times, [*times, ("x", "S5")], [("x", "<u8"), *times], [("x", "<u8")]):
        assert not is_table(np.dtype(fields))
