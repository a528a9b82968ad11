"""The kernel's counters; software events are counted on any machine, for real."""

import errno
import gc
import os
import resource
import time
from collections.abc import Sequence

import pytest

from ccpipe.node.linux import perf_event
from ccpipe.node.linux.perf_event import (
    SOFTWARE,
    EventGroup,
    GroupReading,
    PerfEvent,
    make_room,
    rates,
)

CPU_CLOCK = PerfEvent(SOFTWARE, 0)
PAGE_FAULTS = PerfEvent(SOFTWARE, 2)
NO_SUCH = PerfEvent(0x7FFFFFF0, 0)


def group(events: Sequence[PerfEvent], cpu: int) -> EventGroup:
    try:
        return EventGroup(events, cpu)
    except PermissionError as error:
        pytest.skip(f"counting for all processes is not for us: {error}")


def test_a_clock_counts_the_time_that_passes() -> None:
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


def test_every_process_is_counted_on_every_hardware_thread() -> None:
    """Page faults of a child, whatever hardware thread it ran on."""
    groups = [group([PAGE_FAULTS], cpu) for cpu in os.sched_getaffinity(0)]
    before = sum(one.read().counts[0] for one in groups)
    pid = os.posix_spawn("/bin/true", ["true"], {})
    os.waitpid(pid, 0)
    assert sum(one.read().counts[0] for one in groups) - before >= 20


def test_no_such_event_is_named_by_the_kernel() -> None:
    """ENOENT, which leaves a collector out; what was opened before it is closed again."""
    group([PAGE_FAULTS], 0).close()  # or skip
    gc.collect()
    before = _open_files()
    with pytest.raises(FileNotFoundError, match="virtual machines mostly have none"):
        EventGroup([PAGE_FAULTS, NO_SUCH], 0)
    assert _open_files() == before


def test_a_group_that_nobody_holds_is_closed() -> None:
    """So that a configuration read again leaks no files."""
    gc.collect()
    before = _open_files()
    held = group([PAGE_FAULTS, PAGE_FAULTS], 0)
    assert _open_files() == before + 2
    del held
    gc.collect()
    assert _open_files() == before


def test_a_refusal_says_what_is_lacking(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever reads the log learns which capability or setting it takes."""
    monkeypatch.setattr(perf_event._libc, "syscall", lambda *_: -1)
    monkeypatch.setattr("ctypes.get_errno", lambda: errno.EACCES)
    with pytest.raises(PermissionError, match="CAP_PERFMON"):
        EventGroup([PAGE_FAULTS], 0)


def test_a_machine_of_another_kind_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of the system call differs; ENOSYS leaves a collector out."""
    monkeypatch.setattr("platform.machine", lambda: "vax")
    with pytest.raises(OSError, match="no known number on vax") as caught:
        EventGroup([PAGE_FAULTS], 0)
    assert caught.value.errno == errno.ENOSYS


def test_rates_are_reckoned_up_from_the_share_of_time() -> None:
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
def test_without_two_readings_nothing_is_known(
    before: GroupReading | None, now: GroupReading
) -> None:
    assert rates(before, now) is None


def test_room_is_made_for_many_files() -> None:
    """The soft limit grows as far as the hard one, and never shrinks."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    start = min(_open_files() + 400, hard)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (start, hard))
        make_room(0)
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == start
        make_room(600)
        grown = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        assert min(start + 344, hard) <= grown <= hard
        make_room(10**9)
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def _open_files() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208
