"""The load of hardware threads: ``/proc/schedstat``."""

from typing import Any

import pytest

from ccpipe.node.collectors.schedstat import Schedstat
from tests.node.conftest import Root


def test_the_load_is_time_run_and_waited_over_time_passed(root: Root, seconds: Any) -> None:
    """9 s run and 6 s waited in 10 s are 1.5; a hardware thread that is new has none yet."""
    seconds(10)
    first, second = root.twice(Schedstat(root=str(root)), "schedstat")
    assert first == {}
    assert second == {
        ("cpu_load_core", "0"): pytest.approx(1.5), ("cpu_load_core", "1"): pytest.approx(0.15),
    }  # fmt: skip
