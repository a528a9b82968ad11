"""Load averages: ``/proc/loadavg``."""

import os

import pytest

from ccpipe.node.collectors.load import Load
from tests.node.conftest import Root, reported


def test_what_the_file_says_is_told(root: Root) -> None:
    """Averages are floats, numbers of threads are integers, and cpu_load is the first average."""
    _, second = root.twice(Load(root=str(root)), "captured")
    assert second == {
        ("cpu_load", ""): 0.08,
        ("load_five", ""): 0.05,
        ("load_fifteen", ""): 0.02,
        ("proc_run", ""): 2,
        ("proc_total", ""): 88,
    }
    assert [type(value) for value in second.values()] == [float, float, float, int, int]


def test_this_machine_agrees_with_the_c_library() -> None:
    """The averages are those of getloadavg(3), which may move on between the readings."""
    before = os.getloadavg()
    values = reported(Load().collect(0))
    after = os.getloadavg()
    for place, name in enumerate(("cpu_load", "load_five", "load_fifteen")):
        assert values[name, ""] in (
            pytest.approx(before[place], abs=0.01),
            pytest.approx(after[place], abs=0.01),
        )
