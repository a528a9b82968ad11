"""The load of hardware threads: ``/proc/schedstat``."""

from pathlib import Path
from typing import Any

import pytest

from ccpipe.errors import DataError
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


def test_a_kernel_that_does_not_count_says_so(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        list(Schedstat(root=str(tmp_path)).collect(1))


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("cpu0 1 2 3", "line 1: 0 counters, not 2"),
        ("cpu0 1 2 3 4 5 6 x 8 9", "line 1: 'x' is not a counter"),
    ],
)
def test_an_invalid_line_is_named(tmp_path: Path, line: str, reason: str) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/schedstat").write_text(line + "\n")
    with pytest.raises(DataError, match=f"schedstat: {reason}"):
        list(Schedstat(root=str(tmp_path)).collect(1))
