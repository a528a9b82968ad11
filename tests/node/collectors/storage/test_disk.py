"""Disks: ``/proc/diskstats`` and the mounted file systems."""

import os
import shutil
from pathlib import Path

import psutil
import pytest

from ccpipe.node.collectors.storage.disk import Disk
from tests.node.conftest import TREES, Reported, Root, reported


def test_activity_is_what_was_gained_since_the_last_reading(root: Root) -> None:
    """All 17 counters of a device as integers, from the second reading on."""
    first, second = root.twice(Disk(root=str(root)), "captured")
    assert not _of(first, "vda")
    lines = [
        next(line.split() for line in path.read_text().splitlines() if " vda " in line)
        for path in (TREES / f"captured/{n}/proc/diskstats" for n in ("first", "second"))
    ]
    gained = [int(new) - int(old) for old, new in zip(lines[0][3:], lines[1][3:], strict=True)]
    gained[8] = int(lines[1][11])  # I/Os in progress: a level, no counter
    assert list(_of(second, "vda").values()) == gained
    assert list(_of(second, "vda"))[:3] == ["io_reads", "io_reads_merged", "io_read_sectors"]
    assert {type(value) for value in _of(second, "vda").values()} == {int}


def test_an_old_kernel_tells_of_no_discards_and_flushes(root: Root) -> None:
    """11 columns give 11 metrics, of which io_ioops is the number in progress now."""
    root.show("made-linux-3.10/first")
    collector = Disk(root=str(root))
    list(collector._activity(0))
    root.show("made-linux-3.10/second")
    assert _of(reported(collector._activity(0)), "sda") == {
        "io_reads": 5,
        "io_reads_merged": 0,
        "io_read_sectors": 40,
        "io_read_ms": 2,
        "io_writes": 0,
        "io_writes_merged": 0,
        "io_writes_sectors": 0,
        "io_writes_ms": 0,
        "io_ioops": 1,
        "io_ioops_ms": 2,
        "io_ioops_weighted_ms": 2,
    }


def test_disk_omits_device_after_reset_once(root: Root) -> None:
    """Where one counter decreased, and for a new device, no delta is known yet."""
    collector = Disk(root=str(root))
    root.show("made-reset/first")
    list(collector._activity(0))
    root.show("made-reset/second")
    second = reported(collector._activity(0))
    assert {device for _, device in second} == {"sdb"}
    assert _of(second, "sdb")["io_reads"] == 10
    assert _of(second, "sdb")["io_flushes_ms"] == 15
    third = reported(collector._activity(0))
    assert {device for _, device in third} == {"sda", "sdb", "sdc"}
    assert _of(third, "sda")["io_reads"] == 0


@pytest.mark.parametrize(
    ("column", "before", "now", "gain"),
    [
        (6, 2**32 - 5, 7, 12),  # ms of reads, after 49 days of them
        (13, 2**31, 0, 2**31),  # of anything, weighted
        (6, 2**31 - 1, 0, None),  # too early: the device was reset
        (5, 2**32 - 5, 7, None),  # sectors have 64 bits
        (6, 2**32, 7, None),
    ],
)
def test_disk_corrects_wraparound_of_milliseconds(
    tmp_path: Path, column: int, before: int, now: int, gain: int | None
) -> None:
    """The kernel prints them in 32 bits; the other counters of the device are unaffected."""
    (tmp_path / "proc").mkdir()
    collector = Disk(root=str(tmp_path))
    for reads, value in ((10, before), (13, now)):
        words = ["8", "0", "sda", *[str(reads)] * 19]  # two that only a later kernel has
        words[column] = str(value)
        (tmp_path / "proc/diskstats").write_text(" ".join(words))
        values = _of(reported(collector._activity(0)), "sda")
    if gain is None:
        assert values == {}
    else:
        assert list(values.values())[column - 3] == gain
        assert values["io_reads"] == 3
        assert values["io_ioops"] == 13


def test_disk_excludes_devices_by_pattern(root: Root) -> None:
    """Loop devices and RAM disks are excluded by default."""
    root.show("captured/first")
    collector = Disk(exclude=["vd*", "zram*"], root=str(root))
    list(collector.collect(0))
    devices = {device for name, device in reported(collector.collect(0)) if name == "io_reads"}
    assert devices == {f"loop{n}" for n in range(8)}


def test_disk_reports_capacity_of_local_file_systems_once(tmp_path: Path) -> None:
    """No pseudo, network or FUSE file system, /boot, second mount, hidden or missing directory."""
    shutil.copytree(TREES / "made-mounts/first/proc", tmp_path / "proc")
    points = ("/", "/scratch disk", "/data/subvolume", "/tank", "/odd\nname")
    others = (
        "/boot/efi", "/home/a", "/home/nfs", "/lustre", "/run/user/0/portal", "/snap/core",
        "/hidden", "/overlay",
    )  # fmt: skip
    for point in (*points, *others):
        (tmp_path / point[1:]).mkdir(parents=True, exist_ok=True)
    values = reported(Disk(root=str(tmp_path)).collect(0))
    assert {point for name, point in values if name == "disk_total"} == {
        "/", "/data/subvolume", "/tank", "/odd%0Aname", "/scratch disk",
    }  # fmt: skip
    assert ("part_max_used", "") in values


def test_disk_skips_invalid_mount_point(tmp_path: Path) -> None:
    """Other file systems are unaffected."""
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/diskstats").write_text("")
    lines = ["/dev/sda1 /" + "a" * 300 + " ext4 rw 0 0", "/dev/sda2 / ext4 rw 0 0"]
    (tmp_path / "proc/self/mounts").write_text("\n".join(lines))
    assert {point for _, point in reported(Disk(root=str(tmp_path)).collect(0))} == {"/", ""}


def test_disk_excludes_mount_points_by_pattern(tmp_path: Path) -> None:
    shutil.copytree(TREES / "made-mounts/first/proc", tmp_path / "proc")
    collector = Disk(exclude_mounts=["/[!t]*"], root=str(tmp_path))
    (tmp_path / "tank").mkdir()
    assert {point for _, point in reported(collector.collect(0))} == {"/", "/tank", ""}


def test_disk_agrees_with_psutil_and_statvfs() -> None:
    """Deltas are between psutil's readings inside and around ours; sizes are exact."""
    collector = Disk()
    around = [psutil.disk_io_counters(perdisk=True, nowrap=False)]
    first = reported(collector.collect(0))
    inside = [psutil.disk_io_counters(perdisk=True, nowrap=False)]
    inside.append(psutil.disk_io_counters(perdisk=True, nowrap=False))
    second = reported(collector.collect(0))
    around.append(psutil.disk_io_counters(perdisk=True, nowrap=False))
    for (name, device), value in second.items():
        if column := {"io_reads": "read_count", "io_writes_ms": "write_time"}.get(name):
            minimum, maximum = (
                getattr(after[device], column) - getattr(before[device], column)
                for before, after in (inside, around)
            )
            assert minimum <= value <= maximum
    for (name, point), value in first.items():
        if name == "disk_total":
            assert value == shutil.disk_usage(point).total / 1e9
            assert point in {part.mountpoint for part in psutil.disk_partitions(all=True)}


def test_disk_reports_free_space_and_fullest_file_system(tmp_path: Path) -> None:
    """disk_free includes root's reserve, and part_max_used is the largest share in use."""
    shutil.copytree(TREES / "captured/first/proc", tmp_path / "proc")
    before = os.statvfs(tmp_path)
    values = reported(Disk(root=str(tmp_path)).collect(0))
    after = os.statvfs(tmp_path)
    free = float(values["disk_free", "/"])
    bounds = sorted(space.f_bfree * space.f_frsize / 1e9 for space in (before, after))
    assert bounds[0] - 0.5 <= free <= bounds[1] + 0.5
    total = float(values["disk_total", "/"])
    assert values["part_max_used", ""] == pytest.approx(100 * (total - free) / total)


def _of(values: Reported, device: str) -> dict[str, object]:
    return {name: value for (name, of), value in values.items() if of == device}
