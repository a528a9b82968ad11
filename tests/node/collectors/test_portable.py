"""The portable collectors beside those that read ``/proc``: same names, same figures."""

import importlib
import os
import time
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from ccpipe.node.collectors import cpu, load, memory, network, temperature
from ccpipe.node.collectors.cpu import Cpu
from ccpipe.node.collectors.load import Load
from ccpipe.node.collectors.memory import Memory
from ccpipe.node.collectors.network import Network
from ccpipe.node.collectors.portable import METRICS, Portable
from ccpipe.node.collectors.storage import disk
from ccpipe.node.collectors.storage.disk import Disk
from tests.node.conftest import Reported, checked, reported

RAW = (load, cpu, memory, network, disk, temperature)


def test_portable_declares_metrics_of_linux_collectors() -> None:
    """Same name, unit, type of value and sub-type; never more node types."""
    known = {row.name: row for module in RAW for row in module.METRICS}
    for row in METRICS:
        other = known[row.name]
        assert (row.unit, row.kind, row.stype) == (other.unit, other.kind, other.stype)
        assert set(row.types) <= set(other.types)


def test_portable_sends_exactly_declared_metrics() -> None:
    """Names, types of values and tags; this machine may have no sensor and no disk."""
    collector = Portable(hwthreads=["*"])
    messages = list(collector.collect(1))
    time.sleep(0.05)  # a few ticks of the kernel: shares of processor time need one
    messages += collector.collect(2)
    sent = {
        (m.name, type(m.value), m.tags["type"], m.tags.get("stype", ""))
        for m in map(checked, messages)
    }
    declared = {(row.name, row.kind, of, row.stype) for row in METRICS for of in row.types}
    assert sent <= declared
    missing = {name for name, *_ in declared - sent}
    assert all(name.startswith(("io_", "temperature")) for name in missing), missing


def _between(
    ours: Reported, before: Reported, after: Reported, tolerance: float = 0.0
) -> list[str]:
    """Return the names of what does not lie between two readings of the raw collectors."""
    wrong = []
    for key, value in ours.items():
        if key in before and key in after:
            low, high = sorted((float(before[key]), float(after[key])))
            if not low - tolerance <= float(value) <= high + tolerance:
                wrong.append(f"{key}: {value} is not between {low} and {high}")
    return wrong


def test_portable_agrees_with_levels_and_counters_of_linux() -> None:
    """Load, memory, traffic and capacity are between a Linux reading before and one after."""
    raw = (Load(), Memory(), Network(), Disk())

    def read() -> Reported:
        values: Reported = {}
        for collector in raw:
            values |= reported(collector.collect(1))
        return values

    before = read()
    ours = reported(Portable().collect(1))
    after = read()
    names = {name for name, _ in ours.keys() & before.keys()}
    assert {"cpu_load", "mem_total", "mem_used", "net_bytes_in", "disk_total"} <= names
    levels = {key: value for key, value in ours.items() if key[0].startswith(("mem_", "swap_"))}
    slack = 0.03 * float(before["mem_total", ""])  # the machine works meanwhile
    assert _between(levels, before, after, slack) == []
    sizes = {key: value for key, value in ours.items() if key[0].startswith("disk_")}
    assert _between(sizes, before, after, 0.5) == []
    others = {key: ours[key] for key in ours.keys() - levels.keys() - sizes.keys()}
    others = {key: value for key, value in others.items() if not key[0].startswith("part_")}
    assert _between(others, before, after, 0.01) == []


def test_portable_agrees_with_disk_activity_of_linux() -> None:
    """A disk's deltas are between Linux readings inside and around ours."""
    outer, inner, ours = Disk(), Disk(), Portable()
    list(outer.collect(1)), list(ours.collect(1)), list(inner.collect(1))
    with open(__file__, "rb") as file:  # noqa: PTH123
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        file.read()
    low, mine, high = (reported(it.collect(2)) for it in (inner, ours, outer))
    keys = [key for key in mine if key[0].startswith("io_") and key in low and key in high]
    for key in keys:
        assert float(low[key]) - 1 <= float(mine[key]) <= float(high[key]) + 1, key


def test_portable_agrees_with_processor_time_of_linux() -> None:
    """Shares of the same second: within the few ticks that pass between the readings."""
    raw, ours = Cpu(), Portable()
    list(raw.collect(1)), list(ours.collect(1))
    time.sleep(1)
    theirs, mine = reported(raw.collect(2)), reported(ours.collect(2))
    names = {name for name, _ in mine if name.startswith("cpu_") and name != "cpu_load"}
    assert names == {row.name for row in cpu.METRICS} - {"num_cpus"}
    assert mine["num_cpus", ""] == theirs["num_cpus", ""]
    count = os.cpu_count() or 1
    for key, share in mine.items():
        if key[0] in names:
            assert float(share) == pytest.approx(float(theirs[key]), abs=15 * count), key


class MacOs:
    """The answers of psutil on macOS, as its documentation gives their fields."""

    Error = psutil.Error

    def __init__(self) -> None:
        self.user = 100.0

    def getloadavg(self) -> tuple[float, float, float]:
        return (1.5, 1.25, 1.0)

    def cpu_times(self, percpu: bool = False) -> Any:
        fields = {"user": self.user, "nice": 0.0, "system": 50.0, "idle": 200.0}
        times = SimpleNamespace(**fields, _fields=tuple(fields))
        return [times] if percpu else times

    def virtual_memory(self) -> Any:
        return SimpleNamespace(
            total=16 * 2**30, available=6 * 2**30, used=8 * 2**30, free=2**30,
            active=4 * 2**30, inactive=5 * 2**30, wired=4 * 2**30,
        )  # fmt: skip

    def swap_memory(self) -> Any:
        return SimpleNamespace(total=2**30, used=2**20, free=2**30 - 2**20)

    def net_io_counters(self, **_: bool) -> dict[str, Any]:
        counters = SimpleNamespace(bytes_recv=1, packets_recv=2, bytes_sent=3, packets_sent=4)
        return {"lo0": counters, "en0": counters}

    def disk_io_counters(self, **_: bool) -> None:
        """Return nothing: no disk is counted."""

    def disk_partitions(self, **_: bool) -> list[tuple[str, str, str, str]]:
        raise OSError(78, "not implemented")

    PROCFS_PATH = "/proc"


def test_portable_omits_unreported_values(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """With the answers of macOS: its four states, its own sum of used memory, no sensors.

    An area that fails costs its own metrics, and is logged once.
    """
    system = MacOs()
    monkeypatch.setitem(__import__("sys").modules, "psutil", system)
    module = importlib.import_module("ccpipe.node.collectors.portable")
    monkeypatch.setattr(module, "sys", SimpleNamespace(platform="darwin"))
    collector = Portable()
    first = reported(collector.collect(1))
    system.user += 1.0
    second = reported(collector.collect(2))
    assert first["cpu_load", ""] == 1.5
    assert first["mem_used", ""] == 8 * 2**20
    assert ("mem_buffers", "") not in first
    assert {name for name, of in second if of == "" and name.startswith("cpu_")} == {
        "cpu_load", "cpu_user", "cpu_nice", "cpu_system", "cpu_idle", "cpu_used",
    }  # fmt: skip
    assert second["cpu_user", "0"] == second["cpu_used", ""] == 100
    assert {of for name, of in first if name == "net_bytes_in"} == {"en0"}
    [line] = [record.message for record in caplog.records]
    assert line == "collector portable: capacity: [Errno 78] not implemented"
