"""Disk activity and file system usage: ``/proc/diskstats`` and the mounted file systems.

The metrics ``io_*`` are deltas since the last sample (only ``io_ioops`` is a current value) and are
omitted if a counter decreased because the device was reset. Milliseconds, which the kernel prints
in 32 bits, may wrap around once between two samples. Capacity is reported for local file
systems on a device or ZFS, not for network file systems, which could hang. A file system with
several mount points is reported once, at the first one.
"""

import functools
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from ccpipe.message import Message, metric
from ccpipe.node.linux import proc
from ccpipe.node.linux.proc import Mount, mounts
from ccpipe.node.sampling.collector import Metric, SoftErrors, emit

_row = functools.partial(Metric, stype="device")
_IO = (  # in the order of /proc/diskstats
    _row("io_reads", "", int, "reads completed"),
    _row("io_reads_merged", "", int, "reads merged"),
    _row("io_read_sectors", "512 bytes", int, "read"),
    _row("io_read_ms", "ms", int, "total time of all reads"),
    _row("io_writes", "", int, "writes completed"),
    _row("io_writes_merged", "", int, "writes merged"),
    _row("io_writes_sectors", "512 bytes", int, "written"),
    _row("io_writes_ms", "ms", int, "total time of all writes"),
    _row("io_ioops", "", int, "reads and writes in progress now"),
    _row("io_ioops_ms", "ms", int, "time with at least one request in progress"),
    _row("io_ioops_weighted_ms", "ms", int, "time of all requests in progress, summed"),
    _row("io_discards", "", int, "discards completed (Linux 4.18)"),
    _row("io_discards_merged", "", int, "discards merged"),
    _row("io_discards_sectors", "512 bytes", int, "discarded"),
    _row("io_discards_ms", "ms", int, "total time of all discards"),
    _row("io_flushes", "", int, "flushes completed (Linux 5.5)"),
    _row("io_flushes_ms", "ms", int, "total time of all flushes"),
)
_IN_PROGRESS = 8
_MILLISECONDS = [row.unit == "ms" for row in _IO if row.name != "io_ioops"]
_WRAP = 2**32
MIN_COLUMNS = 11  # that every kernel writes after a device's name

EXCLUDE = ("loop*", "ram*", "zram*", "sr*", "fd*")  # devices that are not disks

CAPACITY = (
    Metric("disk_total", "GBytes", float, "size of a file system", stype="filesystem"),
    Metric("disk_free", "GBytes", float, "free space, root's reserve included", stype="filesystem"),
    Metric("part_max_used", "percent", float, "usage of the fullest of these file systems"),
)

METRICS = (*_IO, *CAPACITY)

_GBYTE = 1e9


class Disk:
    """The disks of the node; the first sample has no ``io_*``.

    Parameters
    ----------
    include
        Devices whose activity to report, as shell patterns.
    exclude
        Devices to exclude, as shell patterns.
    exclude_mounts
        Mount points to exclude, as shell patterns.
    root
        Root of the file system to read; set it to read a captured tree.

    """

    def __init__(
        self,
        *,
        include: Sequence[str] = ("*",),
        exclude: Sequence[str] = EXCLUDE,
        exclude_mounts: Sequence[str] = ("/boot", "/boot/*"),
        root: str = "/",
    ) -> None:
        self._include = tuple(include)
        self._exclude = tuple(exclude)
        self._exclude_mounts = tuple(exclude_mounts)
        self._root = root
        self._path = str(Path(root, "proc/diskstats"))
        self._before: dict[str, list[int]] = {}
        self.soft = SoftErrors("disk")

    def collect(self, time: int) -> Iterator[Message]:
        with self.soft.noted():
            yield from self._activity(time)
        mounted: tuple[Mount, ...] = ()
        with self.soft.noted():
            mounted = mounts(self._root)
        yield from capacity(time, mounted, self._exclude, self._exclude_mounts, self._root)
        self.soft.report(self._before or mounted)

    def _activity(self, time: int) -> Iterator[Message]:
        before, self._before = self._before, {}
        for place, line in proc.lines(self._path):
            words = line.split()
            device = "".join(words[2:3])  # empty in a line that is too short
            if proc.matches(device, self._exclude) or not proc.matches(device, self._include):
                continue
            counters: list[int] = []
            with self.soft.noted():
                counters = proc.counters(place, words[3:], minimum=MIN_COLUMNS)
            if not counters:
                continue
            in_progress = counters.pop(_IN_PROGRESS)
            self._before[device] = counters
            last = before.get(device)
            gains = proc.gained(last, _unwrapped(last or (), counters))
            if gains is not None:
                gains.insert(_IN_PROGRESS, in_progress)
                tags = {"type": "node", "stype": "device", "stype-id": proc.tag(device)}
                yield from emit(_IO, gains, time, tags)


def _unwrapped(before: Sequence[int], now: Sequence[int]) -> list[int]:
    """Return the counters now, corrected for wraparound at 32 bits."""
    found = list(now)
    for i, (is_ms, old, new) in enumerate(zip(_MILLISECONDS, before, now, strict=False)):
        if is_ms and new < old and _WRAP // 2 <= old < _WRAP:
            found[i] += _WRAP
    return found


def capacity(
    time: int,
    mounted: tuple[Mount, ...],
    exclude: Sequence[str],
    exclude_mounts: Sequence[str],
    root: str = "/",
) -> Iterator[Message]:
    used = []
    for point in _mount_points(mounted, tuple(exclude), tuple(exclude_mounts)):
        try:
            space = os.statvfs(os.path.join(root, point.lstrip("/")))  # noqa: PTH118 - a third
        except (OSError, ValueError):
            continue  # unmounted since, or not readable for us
        if space.f_blocks:
            tags = {"type": "node", "stype": "filesystem", "stype-id": proc.tag(point)}
            total, free = space.f_blocks * space.f_frsize, space.f_bfree * space.f_frsize
            yield metric("disk_total", total / _GBYTE, time=time, tags=tags)
            yield metric("disk_free", free / _GBYTE, time=time, tags=tags)
            used.append(100 * (total - free) / total)
    if used:
        yield metric("part_max_used", max(used), time=time, tags={"type": "node"})


@functools.lru_cache(maxsize=1)
def _mount_points(
    mounted: tuple[Mount, ...], exclude: tuple[str, ...], exclude_mounts: tuple[str, ...]
) -> tuple[str, ...]:
    """Return where each local file system was mounted first."""
    # The last one mounted at a point hides the others.
    visible = {point: (device, kind) for device, point, kind in mounted}
    first: dict[str, str] = {}
    for point, (device, kind) in visible.items():
        is_local = (
            device.startswith("/dev/") and kind.partition(".")[0] != "fuse"
        ) or kind == "zfs"
        name = device.removeprefix("/dev/")
        if is_local and not (proc.matches(name, exclude) or proc.matches(point, exclude_mounts)):
            first.setdefault(device, point)
    return tuple(first.values())
