"""Curves in the terminal."""

import numpy as np
import pytest

from ccpipe.cli.profile.curves import curve


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
def test_a_column_shows_the_largest_value_of_its_time(
    elapsed: list[int], values: list[int], width: int, drawn: str
) -> None:
    assert curve(np.array(elapsed, "<u8"), np.array(values, "<f8"), width) == drawn
