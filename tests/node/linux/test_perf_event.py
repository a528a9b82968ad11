"""The kernel's counters, and what to count for the memory's traffic."""

import errno
import gc
import os
import resource
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from ccpipe.errors import DataError
from ccpipe.node.linux import perf_event
from ccpipe.node.linux.perf_event import (
    SOFTWARE,
    EventGroup,
    GroupReading,
    PerfEvent,
    Traffic,
    raise_file_limit,
    rates,
    traffic,
)
from tests.node.conftest import Root

CPU_CLOCK = PerfEvent(SOFTWARE, 0)
PAGE_FAULTS = PerfEvent(SOFTWARE, 2)
NO_SUCH = PerfEvent(0x7FFFFFF0, 0)


def group(events: Sequence[PerfEvent], cpu: int) -> EventGroup:
    try:
        return EventGroup(events, cpu)
    except PermissionError as error:
        pytest.skip(f"counting for all processes is not for us: {error}")


def test_event_group_counts_clock_at_elapsed_time() -> None:
    """The processor's clock advances 10⁹ a second: between the clocks read around it."""
    counted = group([CPU_CLOCK], 0)
    outer = time.monotonic()
    before = counted.read()
    inner = time.monotonic()
    while time.monotonic() < inner + 0.05:
        pass
    min_interval = time.monotonic() - inner
    now = counted.read()
    max_length = time.monotonic() - outer
    gained = (now.counts[0] - before.counts[0]) / 1e9
    assert min_interval * 0.99 <= gained <= max_length * 1.01
    found = rates(before, now)
    assert found is not None
    assert found == pytest.approx([1e9], rel=0.01)


def test_event_group_counts_all_processes_on_each_hwthread() -> None:
    """Page faults of a child, whatever hardware thread it ran on."""
    groups = [group([PAGE_FAULTS], cpu) for cpu in os.sched_getaffinity(0)]
    before = sum(one.read().counts[0] for one in groups)
    pid = os.posix_spawn("/bin/true", ["true"], {})
    os.waitpid(pid, 0)
    assert sum(one.read().counts[0] for one in groups) - before >= 20


def test_event_group_raises_enoent_for_unknown_event() -> None:
    """ENOENT disables a collector; events opened before it are closed again."""
    group([PAGE_FAULTS], 0).close()  # or skip
    gc.collect()
    before = _open_files()
    with pytest.raises(FileNotFoundError, match="virtual machines mostly have none"):
        EventGroup([PAGE_FAULTS, NO_SUCH], 0)
    assert _open_files() == before


def test_event_group_is_closed_when_unreferenced() -> None:
    """A configuration reload leaks no files."""
    gc.collect()
    before = _open_files()
    held = group([PAGE_FAULTS, PAGE_FAULTS], 0)
    assert _open_files() == before + 2
    del held
    gc.collect()
    assert _open_files() == before


def test_event_group_names_missing_permission(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message names the required capability or setting."""
    monkeypatch.setattr(perf_event._libc, "syscall", lambda *_: -1)
    monkeypatch.setattr("ctypes.get_errno", lambda: errno.EACCES)
    with pytest.raises(PermissionError, match="CAP_PERFMON"):
        EventGroup([PAGE_FAULTS], 0)


def test_event_group_raises_enosys_on_unknown_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of the system call differs; ENOSYS disables a collector."""
    monkeypatch.setattr("platform.machine", lambda: "vax")
    with pytest.raises(OSError, match="no known number on vax") as caught:
        EventGroup([PAGE_FAULTS], 0)
    assert caught.value.errno == errno.ENOSYS


def test_rates_are_scaled_to_whole_time() -> None:
    """Counted for a quarter of 8 s: 600 in 2 s are 300 a second."""
    before = GroupReading(0, 0, (100, 0))
    assert rates(before, GroupReading(8 * 10**9, 2 * 10**9, (700, 4))) == [300, 2]


@pytest.mark.parametrize(
    ("before", "now"),
    [
        (None, GroupReading(10, 10, (1,))),
        (GroupReading(10, 10, (1,)), GroupReading(20, 10, (1,))),
        (GroupReading(10, 10, (5,)), GroupReading(20, 20, (1,))),
    ],
)
def test_rates_need_two_readings(before: GroupReading | None, now: GroupReading) -> None:
    assert rates(before, now) is None


def test_file_limit_is_raised_for_many_events() -> None:
    """The soft limit grows as far as the hard one, and never shrinks."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    start = min(_open_files() + 400, hard)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (start, hard))
        raise_file_limit(0)
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == start
        raise_file_limit(600)
        grown = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        assert min(start + 344, hard) <= grown <= hard
        raise_file_limit(10**9)
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def _open_files() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208


DEVICES = "sys/bus/event_source/devices"


def write(directory: Path, **files: str) -> Path:
    for name, content in files.items():
        path = directory / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content + "\n")
    return directory


def test_traffic_uses_events_described_for_intel(root: Root) -> None:
    """Reads and writes of 64 bytes, on each socket; the free-running device counts them again."""
    root.show("perf/first")
    read, write = PerfEvent(24, 0x0304), PerfEvent(24, 0x0C04)
    events = [(read, 64.0), (write, 64.0)]
    found = list(traffic(Path(str(root), DEVICES), zen_3=False))
    assert found == [Traffic(0, events), Traffic(1, events)]


def test_traffic_uses_free_running_counters_without_others(tmp_path: Path) -> None:
    """As on Intel's desktop processors; an unknown unit is skipped."""
    write(
        tmp_path / "uncore_imc_free_running_0", type="30", cpumask="0",
        format__event="config:0-7", format__umask="config:8-15",
        events__data_read="event=0xff,umask=0x20", events__data_total="event=0xff,umask=0x10",
        events__data_write="event=0xff,umask=0x30",
    )  # fmt: skip
    directory = tmp_path / "uncore_imc_free_running_0/events"
    for name, unit in (("data_read", "MiB"), ("data_write", "MiB"), ("data_total", "furlong")):
        (directory / f"{name}.unit").write_text(f"{unit}\n")
        (directory / f"{name}.scale").write_text("6.103515625e-5\n")
    events = [(PerfEvent(30, 0x20FF), 64.0), (PerfEvent(30, 0x30FF), 64.0)]
    assert list(traffic(tmp_path, zen_3=False)) == [Traffic(0, events)]


def test_traffic_counts_each_controller_of_amd(tmp_path: Path) -> None:
    """``umc_cas_cmd.all`` of Zen 4; its data fabric is not read."""
    write(tmp_path / "amd_umc_0", type="40", cpumask="0")
    write(tmp_path / "amd_umc_1", type="41", cpumask="96")
    write(tmp_path / "amd_df", type="11", cpumask="0,96")
    assert list(traffic(tmp_path, zen_3=False)) == [
        Traffic(0, [(PerfEvent(40, 0x0A), 64)]),
        Traffic(96, [(PerfEvent(41, 0x0A), 64)]),
    ]


def test_traffic_uses_data_fabric_before_zen_4(tmp_path: Path) -> None:
    """Eight channels on each socket; bits 8 to 11 of an event's number are bits 32 to 35."""
    write(tmp_path / "amd_df", type="11", cpumask="0,64")
    found = list(traffic(tmp_path, zen_3=True))
    assert [one.cpu for one in found] == [0, 64] * 8
    configs = [event.config for one in found if one.cpu == 0 for event, _ in one.events]
    assert configs == [
        0x3807, 0x3847, 0x3887, 0x38C7, 0x100003807, 0x100003847, 0x100003887, 0x1000038C7,
    ]  # fmt: skip


def test_traffic_is_empty_without_controllers(tmp_path: Path) -> None:
    assert list(traffic(tmp_path / "nowhere", zen_3=True)) == []


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("cpumask", "all", "'all' is not a list of hardware threads"),
        ("events__cas_count_read", "event=0x04,chmask=1", "'chmask=1' is not understood"),
        ("events__cas_count_read", "event=four", "'event=four' is not understood"),
        ("events__cas_count_read.scale", "much", "'much' is not a number"),
        ("type", "imc", "'imc' is not a number"),
    ],
)
def test_traffic_rejects_invalid_file(tmp_path: Path, name: str, content: str, reason: str) -> None:
    files = {
        "type": "24", "cpumask": "0", "format__event": "config:0-7",
        "events__cas_count_read": "event=0x04", "events__cas_count_read.unit": "MiB",
        "events__cas_count_read.scale": "1",
    }  # fmt: skip
    write(tmp_path / "uncore_imc_0", **files | {name: content})
    with pytest.raises(DataError, match=reason):
        list(traffic(tmp_path, zen_3=False))
