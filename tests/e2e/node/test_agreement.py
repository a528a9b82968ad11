"""The real collectors on this machine, compared with programs that measure the same.

The other program runs between two readings of ours: its value must be between them, or within
the tolerance of the test.
"""

import json
import os
import subprocess
import time
from pathlib import Path

import pytest

from ccpipe.node.collectors.cpu import Cpu
from ccpipe.node.collectors.load import Load
from ccpipe.node.collectors.memory import Memory
from ccpipe.node.collectors.network import Network
from ccpipe.node.collectors.processes import Processes
from ccpipe.node.collectors.storage.disk import Disk
from tests.conftest import program
from tests.node.conftest import Reported, reported

KIB = 1024


def printed(name: str, package: str, *words: str) -> str:
    command = [str(program(name, package)), *words]
    plain = {**os.environ, "LC_ALL": "C"}
    return subprocess.run(command, check=True, capture_output=True, text=True, env=plain).stdout


def test_memory_agrees_with_free() -> None:
    """Totals exactly; values that change meanwhile within 5 % of the memory."""
    collector = Memory()
    before = reported(collector.collect(1))
    head, memory, swap, *_ = (line.split() for line in printed("free", "procps", "-b").splitlines())
    after = reported(collector.collect(2))
    free = dict(zip(head, map(int, memory[1:]), strict=True))
    assert before["mem_total", ""] == free["total"] / KIB
    assert before["swap_total", ""] == int(swap[1]) / KIB
    ours = {
        "free": ["mem_free"],
        "shared": ["mem_shared"],
        "buff/cache": ["mem_buffers", "mem_cached", "mem_sreclaimable"],
        "available": ["mem_available"],
    }
    for column, names in ours.items():
        both = [sum(float(values[name, ""]) for name in names) for values in (before, after)]
        tolerance = 0.05 * free["total"] / KIB
        assert min(both) - tolerance <= free[column] / KIB <= max(both) + tolerance, column


def test_load_agrees_with_uptime() -> None:
    """Exactly the kernel's value just before, or just after: it is updated every 5 s."""
    collector = Load()
    before = reported(collector.collect(1))
    averages = printed("uptime", "procps").rpartition("load average:")[2].split(",")
    after = reported(collector.collect(2))
    names = ("cpu_load", "load_five", "load_fifteen")
    shown = [float(average) for average in averages]
    ours = [[float(values[name, ""]) for name in names] for values in (before, after)]
    assert shown in ours


def test_processor_time_agrees_with_vmstat() -> None:
    """Shares of user, system and idle time, within the uncertainty of the interval.

    vmstat counts from slightly before to slightly after us; its share can differ from ours by the
    share of that time at most, and by 2 ticks of each hardware thread at each end.
    """
    collector, hwthreads = Cpu(), os.cpu_count() or 1
    begun = time.monotonic()
    first = _ticks()
    list(collector.collect(1))
    inner = time.monotonic()
    sum(range(10_000_000))
    time.sleep(max(0.0, 0.5 - (time.monotonic() - inner)))
    inner = time.monotonic() - inner
    ours = reported(collector.collect(2))
    last = _ticks()
    outer = time.monotonic() - begun
    gains = {key: last[key] - first[key] for key in first}
    total = sum(gains.values())
    tolerance = 100 * hwthreads * ((outer - inner) / outer + 4 * hwthreads / total)
    for name, keys in (
        ("cpu_user", ["non-nice user"]),
        ("cpu_nice", ["nice user"]),
        ("cpu_system", ["system"]),
        ("cpu_idle", ["idle"]),
        ("cpu_iowait", ["IO-wait"]),
    ):
        share = 100 * hwthreads * sum(gains[key] for key in keys) / total
        assert ours[name, ""] == pytest.approx(share, abs=tolerance), name


def _ticks() -> dict[str, int]:
    """Return the ticks since the start by state, but for guests', which are users' too."""
    ticks = {}
    for line in printed("vmstat", "procps", "-s").splitlines():
        count, _, what = line.strip().partition(" ")
        if what.endswith(" cpu ticks") and "guest" not in what:
            ticks[what.removesuffix(" cpu ticks")] = int(count)
    return ticks


def test_disks_agree_with_iostat(tmp_path: Path) -> None:
    """Bytes read and written: at least our inner difference, at most our outer one.

    iostat counts in KiB from the start and rounds, so a difference of 2 KiB is allowed.
    """
    collector = Disk()
    list(collector.collect(1))
    first = _iostat()
    lead = reported(collector.collect(2))
    with (tmp_path / "written").open("wb") as file:
        file.write(os.urandom(8 * KIB * KIB))
        os.fsync(file.fileno())
    between = reported(collector.collect(3))
    last = _iostat()
    tail = reported(collector.collect(4))
    devices = {device for name, device in between if name == "io_reads"} & first.keys()
    assert devices
    for device in devices:
        for name, column in (("io_read_sectors", "kB_read"), ("io_writes_sectors", "kB_wrtn")):
            gained = last[device][column] - first[device][column]
            minimum = _kib(between, name, device)
            maximum = minimum + _kib(lead, name, device) + _kib(tail, name, device)
            assert minimum - 2 <= gained <= maximum + 2, (device, column)


def _kib(values: Reported, name: str, device: str) -> float:
    return float(values[name, device]) / 2


def _iostat() -> dict[str, dict[str, int]]:
    found = json.loads(printed("iostat", "sysstat", "-d", "-k", "-o", "JSON"))
    [statistics] = found["sysstat"]["hosts"][0]["statistics"]
    return {row["disk_device"]: row for row in statistics["disk"]}


def test_capacity_agrees_with_df() -> None:
    """Sizes exactly; free space within 1 % of the size."""
    collector = Disk()
    list(collector.collect(1))
    before = reported(collector.collect(1))
    lines = printed("df", "coreutils", "-B1", "--output=size,used,target").splitlines()[1:]
    after = reported(collector.collect(2))
    points = {point for name, point in before if name == "disk_total"}
    shown = {line.split(None, 2)[2]: line.split(None, 2)[:2] for line in lines}
    assert points & shown.keys()
    for point in points & shown.keys():
        size, used = (int(word) / 1e9 for word in shown[point])
        assert before["disk_total", point] == pytest.approx(size)
        free = [float(values["disk_free", point]) for values in (before, after)]
        assert min(free) - 0.01 * size <= size - used <= max(free) + 0.01 * size


def test_traffic_agrees_with_statistics_of_interfaces() -> None:
    """``/sys/class/net/*/statistics`` is another source in the kernel."""
    collector = Network(exclude=[])
    before = reported(collector.collect(1))
    files = {
        "net_bytes_in": "rx_bytes", "net_pkts_in": "rx_packets",
        "net_bytes_out": "tx_bytes", "net_pkts_out": "tx_packets",
    }  # fmt: skip
    told_there = {
        (name, directory.name): int((directory / "statistics" / file).read_text())
        for directory in Path("/sys/class/net").iterdir()
        for name, file in files.items()
        if (directory / "statistics").is_dir()
    }
    after = reported(collector.collect(2))
    assert ("net_bytes_in", "lo") in told_there
    for key in told_there.keys() & before.keys() & after.keys():
        assert float(before[key]) <= told_there[key] <= float(after[key]), key


def test_processes_agree_with_ps() -> None:
    """The number that ps lists, within 20 plus 10 %, as processes start and end."""
    collector = Processes()
    before = reported(collector.collect(1))
    listed = len(printed("ps", "procps", "-e", "-o", "pid=").splitlines())
    after = reported(collector.collect(2))
    both = [float(values["procs_total", ""]) for values in (before, after)]
    tolerance = 20 + listed / 10
    assert min(both) - tolerance <= listed <= max(both) + tolerance
