"""Memory: ``/proc/meminfo``; NUMA domains: ``numastat``."""

import os
import re
from pathlib import Path
from typing import Any

import psutil
import pytest

from ccpipe.errors import DataError
from ccpipe.node.collectors.memory import Memory
from ccpipe.node.collectors.numa import Numa
from tests.node.conftest import PACKED, Root, reported, unpack


def test_memory_used_includes_shared_memory_without_caches(root: Root) -> None:
    """mem_used is total - free - buffers - (cached - shared) - sreclaimable."""
    root.show("made-linux-3.10/first")
    values = reported(Memory(root=str(root)).collect(0))
    assert values["mem_used", ""] == 8000000 - 3000000 - 100000 - (2000000 - 500000) - 300000
    assert values["swap_used", ""] == 600000
    assert values["mem_hugepages_total", ""] == 4
    names = {name for name, _ in values}
    assert "mem_available" not in names  # which this old kernel does not report
    assert {"mem_total", "mem_free", "mem_cached", "mem_shared", "swap_total"} <= names


def test_memory_metrics_are_integers(root: Root) -> None:
    """The kernel's kB are integers and stay so."""
    _, values = root.twice(Memory(root=str(root)), "captured")
    assert {type(value) for value in values.values()} == {int}
    assert values["mem_total", ""] == 24684084


def test_memory_reports_domains_with_option(root: Root) -> None:
    """A NUMA domain has the values of its own file; a single domain nearly equals the node."""
    first, _ = root.twice(Memory(domains=True, root=str(root)), "captured-sys")
    for name in ("mem_active", "mem_anon_pages", "mem_shared", "mem_slab", "mem_hugepages_total"):
        assert first[name, "0"] == pytest.approx(first[name, ""], abs=16384), name
    assert ("mem_cached", "0") not in first
    assert ("swap_total", "0") not in first
    assert {domain for _, domain in reported(Memory(root=str(root)).collect(0))} == {""}


def test_memory_used_of_domain_includes_shared_memory(tmp_path: Path) -> None:
    sizes = {
        "MemTotal": 8000,
        "MemFree": 3000,
        "FilePages": 2000,
        "Shmem": 500,
        "SReclaimable": 300,
    }
    lines = "".join(f"Node 1 {key}:  {size} kB\n" for key, size in sizes.items())
    node = "".join(f"{key}: 100 kB\n" for key in ("MemTotal", "MemFree", "Buffers", "Cached"))
    path = "/sys/devices/system/node/node1/meminfo"
    unpack(f"@ first\n## /proc/meminfo\n{node}## {path}\n{lines}@ second\n", tmp_path)
    values = reported(Memory(domains=True, root=str(tmp_path)).collect(0))
    assert values["mem_used", "1"] == 8000 - 3000 - (2000 - 500) - 300


def test_memory_agrees_with_psutil_and_c_library() -> None:
    values = reported(Memory().collect(0))
    total = values["mem_total", ""]
    assert isinstance(total, int)
    assert total * 1024 == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    theirs = psutil.virtual_memory()
    for name, value in {
        "mem_total": theirs.total,
        "mem_free": theirs.free,
        "mem_available": theirs.available,
        "mem_buffers": theirs.buffers,
        "mem_shared": theirs.shared,
        "mem_used": theirs.total - theirs.free - theirs.buffers - theirs.cached + theirs.shared,
        "swap_used": psutil.swap_memory().used,
    }.items():
        assert values[name, ""] == pytest.approx(value / 1024, abs=total / 20), name


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "MemTotal is missing"),
        ("MemTotal: 5 kB\nMemFree: 3 kB\nCached: 1 kB\n", "Buffers is missing"),
        ("MemTotal: 5 kB\nMemFree: -3 kB\n", "line 2: 'MemFree: -3 kB' is not a size"),
        ("MemTotal: 9223372036854775808 kB\n", "line 1: 'MemTotal: 9223.* is not a size"),
        ("MemTotal: 5 MB\n", "line 1: 'MemTotal: 5 MB' is not a size"),
    ],
)
def test_memory_names_invalid_lines(
    tmp_path: Path, text: str, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Each invalid line of /proc/meminfo is named, and the rest is still read."""
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text(text)
    names: list[str] = []
    try:
        names += [message.name for message in Memory(root=str(tmp_path)).collect(0)]
    except DataError as error:
        assert re.search(f"proc/meminfo: {reason}", str(error))  # noqa: PT017 - nothing was read
    else:
        assert re.search(f"proc/meminfo: {reason}", caplog.text)
    assert bool(names) == ("MemTotal: 5 kB" in text)
    assert "mem_used" not in names


def test_numa_reports_pages_of_each_domain(root: Root, seconds: Any) -> None:
    """Counters as in the kernel, and rates over the time between."""
    seconds(4)
    first, second = root.twice(Numa(root=str(root)), "captured-sys")
    hits = [int(line.split()[1]) for line in (PACKED / "captured-sys.txt").read_text().splitlines()
            if line.startswith("numa_hit ")]  # fmt: skip
    assert first["numastats_numa_hit", "0"] == hits[0]
    assert second["numastats_numa_hit_rate", "0"] == (hits[1] - hits[0]) / 4
    assert second["numastats_other_node", "0"] == 0


def test_numa_agrees_with_sum_of_kernel() -> None:
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
