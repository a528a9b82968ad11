"""Curves in the terminal and in figures."""

from pathlib import Path
from xml.etree import ElementTree as ET

import numpy as np
import pytest

from ccpipe.cli.hdf5.curves import curve, draw
from ccpipe.errors import CreateError, DataError, UsageError
from ccpipe.formats.slurm_profile.reader import open_profile
from tests.formats.slurm_profile.samples import DATA

JOB = DATA / "merged" / "job_17.h5"


@pytest.mark.parametrize(
    ("name", "begin"), [("a.png", b"\x89PNG"), ("a.svg", b"<?xml"), ("a.PDF", b"%PDF")]
)
def test_format_follows_suffix_of_figure(tmp_path: Path, name: str, begin: bytes) -> None:
    with open_profile(JOB) as profile:
        tasks = [table for table in profile.tables if table.series == "Tasks"]
        assert draw(tasks, ["RSS"], tmp_path / name) == len(tasks) > 1
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_bytes().startswith(begin)


def test_figure_has_panel_per_field_and_curve_per_table(tmp_path: Path) -> None:
    path = tmp_path / "curves.svg"
    with open_profile(JOB) as profile:
        tables = [table for table in profile.tables if table.series in ("Tasks", "Energy")]
        count = draw(tables, ["RSS", "Power"], path)
        assert count == len(tables)
    groups = [one.get("id", "") for one in ET.parse(path).iter("{http://www.w3.org/2000/svg}g")]  # noqa: S314 - our own
    assert sum(name.startswith("axes_") for name in groups) == 2


def test_undrawable_series_is_rejected(tmp_path: Path) -> None:
    with open_profile(JOB) as profile:
        with pytest.raises(UsageError, match=r"a\.gif"):
            draw(profile.tables, [], tmp_path / "a.gif")
        with pytest.raises(DataError, match="Speed"):
            draw(profile.tables, ["Speed"], tmp_path / "a.svg")
        with pytest.raises(DataError, match="constant"):
            draw([], [], tmp_path / "a.svg")
        with pytest.raises(CreateError, match="No such file"):
            draw(profile.tables, ["RSS"], tmp_path / "none" / "a.svg")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("elapsed", "values", "width", "drawn"),
    [
        ([0, 1, 2, 3], [0, 1, 2, 3], 8, "▁▃▆█"),
        ([0, 1, 3], [5, 5, 5], 8, "▁▁ ▁"),
        ([0, 0, 1], [1, 9, 1], 8, "█▁"),
        ([0, 10, 20, 30, 39], [0, 7, 0, 0, 7], 4, "▁█▁█"),
        ([7], [3], 8, "▁"),
    ],
)
def test_column_of_terminal_shows_largest_value(
    elapsed: list[int], values: list[int], width: int, drawn: str
) -> None:
    assert curve(np.array(elapsed, "<u8"), np.array(values, "<f8"), width) == drawn
