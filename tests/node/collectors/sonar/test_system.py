"""The node as a whole: processors, memory, load, disks and boot."""

from datetime import UTC, datetime
from pathlib import Path

import psutil
import pytest

from ccpipe.errors import DataError
from ccpipe.formats.sonar import SampleDisk, SampleSystem
from ccpipe.node.collectors.sonar.envelope import Errors
from ccpipe.node.collectors.sonar.sample import System
from tests.node.conftest import Root, unpack


def read(system: System) -> SampleSystem:
    errors = Errors()
    reported = system.read([], errors)
    assert not errors.texts
    return reported


def test_a_node_tells_of_itself(root: Root) -> None:
    """Seconds of processors without idle and waiting; memory is what is not available."""
    root.show("sonar/first")
    reported = read(System(root=str(root)))
    assert reported.cpus == (16, 26, 0, 1)
    assert reported.used_memory == 16_384_000 - 12_000_000
    assert (reported.load1, reported.load5, reported.load15) == (1.5, 0.75, 0.25)
    assert (reported.runnable_entities, reported.existing_entities) == (2, 345)
    assert datetime.fromisoformat(reported.boot) == datetime.fromtimestamp(1_740_000_000, UTC)


def test_disks_are_told_in_the_numbers_of_the_kernel(root: Root) -> None:
    root.show("sonar/first")
    assert read(System(root=str(root))).disks == (
        SampleDisk("sda", 8, 0, (100, 10, 2000, 50, 200, 20, 4000, 80, 0, 90, 130, *range(1, 7))),
        SampleDisk("sda1", 8, 1, (90, 10, 1900, 45, 190, 20, 3900, 75, 0, 80, 120)),
    )


def test_a_hardware_thread_that_goes_offline_keeps_its_place(root: Root) -> None:
    root.show("sonar/first")
    system = System(root=str(root))
    read(system)
    root.show("sonar/second")
    assert read(system).cpus == (116, 26, 0, 1)


def test_the_epoch_is_the_boot_and_stays_when_the_clock_is_set_a_little(root: Root) -> None:
    """The second reading's boot is a second later; counted from 2020, and never zero."""
    root.show("sonar/first")
    system = System(root=str(root))
    assert system.epoch == 1
    first = read(system)
    assert system.epoch == 1_740_000_000 - 1_577_836_800
    root.show("sonar/second")
    assert read(system).boot == first.boot
    assert system.epoch == 1_740_000_000 - 1_577_836_800


def test_a_clock_that_was_wrong_by_far_gives_another_epoch(tmp_path: Path, root: Root) -> None:
    """As when a node starts in 1970 and hears of the time later."""
    root.show("sonar/first")
    text = (root.path / "proc/stat").read_text()
    (tmp_path / "proc").mkdir()
    for name in ("loadavg", "meminfo", "diskstats"):
        (tmp_path / "proc" / name).write_text((root.path / "proc" / name).read_text())
    system = System(root=str(tmp_path))
    for boot, epoch in ((70, 1), (1_740_000_000, 162_163_200), (1_740_000_060, 162_163_200)):
        (tmp_path / "proc/stat").write_text(text.replace("1740000000", str(boot)))
        read(system)
        assert system.epoch == epoch


def test_a_file_that_is_not_the_kernels_costs_itself_only(tmp_path: Path, root: Root) -> None:
    """Memory without MemAvailable is that of the collector; each bad file is named once."""
    root.show("sonar/first")
    (tmp_path / "proc").mkdir()
    contents = {
        "stat": (root.path / "proc/stat").read_text(),
        "meminfo": "MemTotal: 100 kB\nMemFree: 40 kB\nBuffers: 5 kB\nCached: 15 kB\n",
        "diskstats": " 8 0 sda 1 2 3\n",
        "loadavg": "much\n",
    }
    for name, text in contents.items():
        (tmp_path / "proc" / name).write_text(text)
    errors = Errors()
    reported = System(root=str(tmp_path)).read([], errors)
    assert (reported.used_memory, reported.load1, reported.disks) == (40, 0, ())
    assert len(reported.cpus) == 4
    load, disks = errors.texts
    assert "proc/loadavg: 'much\\n' are not load averages" in load
    assert "proc/diskstats: line 1: 3 counters, not 11" in disks


@pytest.mark.parametrize(
    ("stat", "reason"),
    [
        ("cpu 1 2 3 4\n", "proc/stat: the line 'btime' is missing"),
        ("btime 5\n", "proc/stat: the line 'cpu' is missing"),
        ("btime 5\ncpu 1 2 x 4\n", "proc/stat: line 2: 'x' is not a counter"),
    ],
)
def test_without_processors_there_is_no_sample(tmp_path: Path, stat: str, reason: str) -> None:
    unpack(f"@ first\n## /proc/stat\n{stat}@ second\n", tmp_path)
    with pytest.raises(DataError, match=reason):
        System(root=str(tmp_path)).read([], Errors())


def test_uptime_is_read_or_refused(root: Root, tmp_path: Path) -> None:
    root.show("sonar/first")
    assert System(root=str(root)).uptime() == 1000
    unpack("@ first\n## /proc/uptime\nlong\n@ second\n", tmp_path)
    with pytest.raises(DataError, match="uptime: 'long.n' is not an uptime"):
        System(root=str(tmp_path)).uptime()


def test_this_machine_agrees_with_psutil() -> None:
    before = psutil.cpu_times(percpu=True)
    reported = read(System())
    after = psutil.cpu_times(percpu=True)
    assert len(reported.cpus) == psutil.cpu_count()
    for minimum, seconds, maximum in zip(before, reported.cpus, after, strict=True):
        busy = [t.user + t.nice + t.system + t.irq + t.softirq for t in (minimum, maximum)]
        assert busy[0] - 1 <= seconds <= busy[1]
    assert abs(datetime.fromisoformat(reported.boot).timestamp() - psutil.boot_time()) <= 1
    memory = psutil.virtual_memory()
    assert reported.used_memory == pytest.approx((memory.total - memory.available) / 1024, rel=0.2)
    assert {disk.name for disk in reported.disks} <= set(psutil.disk_io_counters(perdisk=True))
