"""NUMA domains: ``numastat``."""

from pathlib import Path
from typing import Any

import pytest

from ccpipe.node.collectors.numa import Numa
from tests.node.conftest import PACKED, Root, reported


def test_pages_are_those_of_each_domain(root: Root, seconds: Any) -> None:
    """Counters as the kernel has them, and rates over the time between."""
    seconds(4)
    first, second = root.twice(Numa(root=str(root)), "captured-sys")
    hits = [int(line.split()[1]) for line in (PACKED / "captured-sys.txt").read_text().splitlines()
            if line.startswith("numa_hit ")]  # fmt: skip
    assert first["numastats_numa_hit", "0"] == hits[0]
    assert second["numastats_numa_hit_rate", "0"] == (hits[1] - hits[0]) / 4
    assert second["numastats_other_node", "0"] == 0


def test_this_machine_agrees_with_the_kernels_sum() -> None:
    if not Path("/sys/devices/system/node/node0/numastat").exists():
        pytest.skip("this kernel knows no NUMA domains")
    before = _vmstat("numa_hit")
    values = reported(Numa().collect(0))
    after = _vmstat("numa_hit")
    hits = sum(int(value) for (name, _), value in values.items() if name == "numastats_numa_hit")
    assert before - 100_000 <= hits <= after + 100_000  # counted for each processor, then summed


def _vmstat(key: str) -> int:
    lines = Path("/proc/vmstat").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{key} "))
