"""Groups, attributes and tables as Slurm's plug-in writes them, read back with h5py."""

from pathlib import Path

import h5py
import numpy as np
import pytest

from ccpipe.formats.slurm_profile import NodeStep
from ccpipe.formats.slurm_profile.output.node_group import (
    TableWriter,
    create_file,
    make_path,
    write_attributes,
    write_number,
)
from tests.formats.slurm_profile.samples import dump

STEP = NodeStep(step="0", node="c1", node_index=3, tasks=2, start_time="Fri Nov 20 10:32:28 2026")


def test_what_is_not_known_of_a_node_step_is_left_out(tmp_path: Path) -> None:
    """Texts are written always, numbers where they are known."""
    with create_file(tmp_path / "made.h5") as file:
        write_attributes(make_path(file, ["c1"]), STEP)
    with h5py.File(tmp_path / "made.h5") as file:
        assert dump(file["c1"]) == {
            "@Node Name": "c1",
            "@Node Index": 3,
            "@Number of Tasks": 2,
            "@Start Time": "Fri Nov 20 10:32:28 2026",
        }


def test_a_number_is_replaced(tmp_path: Path) -> None:
    """The number of tasks grows while a step runs; the attribute is written again."""
    with create_file(tmp_path / "made.h5") as file:
        write_number(file, "Number of Tasks", 1)
        write_number(file, "Number of Tasks", 4)
        assert dump(file) == {"@Number of Tasks": 4}
        assert file.attrs.get_id("Number of Tasks").shape == (1,)


def test_a_path_is_made_where_it_is_missing(tmp_path: Path) -> None:
    """What is there already is used again."""
    with create_file(tmp_path / "made.h5") as file:
        first = make_path(file, ["Steps", "0", "Nodes"])
        again = make_path(file, ["Steps", "0"])
        assert (first.name, again.name) == ("/Steps/0/Nodes", "/Steps/0")
        assert list(again) == ["Nodes"]


@pytest.mark.parametrize(
    ("chunk", "rows", "deflate"), [(None, 10, 0), (50, 50, None)], ids=["as Slurm", "other"]
)
def test_rows_are_appended(
    chunk: int | None, rows: int, deflate: int | None, tmp_path: Path
) -> None:
    """Blocks of any size follow each other; Slurm's chunks have ten rows, deflated at level 0."""
    dtype = np.dtype([("EpochTime", "<u8"), ("Power", "<f8")])
    with create_file(tmp_path / "made.h5") as file:
        writer = TableWriter(file, "Energy", dtype, chunk=chunk)
        for size in (3, 0, 25):
            block = np.zeros(size, dtype)
            block["EpochTime"] = np.arange(writer.rows, writer.rows + size)
            writer.append(block)
        assert writer.rows == 28
    with h5py.File(tmp_path / "made.h5") as file:
        table = file["Energy"]
        assert table["EpochTime"].tolist() == list(range(28))
        assert (table.chunks, table.compression_opts) == ((rows,), deflate)
