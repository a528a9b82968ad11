"""The kernel's performance counters: ``perf_event_open(2)``, called without a library.

Events that are opened as one group are counted together or not at all, so their ratios are valid.
If there are not enough counters for all groups, the kernel multiplexes them and reports for how
long each was counted.

The traffic of the main memory is counted by the memory controllers, as devices below
``/sys/bus/event_source/devices``:

- Intel, ``uncore_imc*``: the kernel describes, in ``events``, how to count reads and writes
  and how many bytes each is;
- AMD Zen 4 and later, ``amd_umc_*`` (Linux 6.8): ``umc_cas_cmd.all``, of 64 bytes each;
- AMD Zen to Zen 3, ``amd_df``: ``dram_channel_data_controller_0`` to ``_7``, of 64 bytes each.

AMD's event codes are taken from Linux, ``tools/perf/pmu-events/arch/x86/amdzen*`` (``perf list``).
"""

import ctypes
import errno
import os
import platform
import re
import resource
import struct
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from ccpipe.errors import DataError
from ccpipe.node.linux import proc

HARDWARE, SOFTWARE, RAW = 0, 1, 4
"""Types of events (``linux/perf_event.h``); other devices have theirs in the file ``type``."""

_NUMBERS = {"x86_64": 298, "aarch64": 241, "riscv64": 241, "ppc64le": 319, "s390x": 331}
_ATTRIBUTE = struct.Struct("=IIQQQQQIIQQ")  # perf_event_attr up to config2 (PERF_ATTR_SIZE_VER1)
_WITH_TIMES = 1 | 2  # PERF_FORMAT_TOTAL_TIME_ENABLED, PERF_FORMAT_TOTAL_TIME_RUNNING
_AS_GROUP = 8  # PERF_FORMAT_GROUP
_ALL_PROCESSES = -1
_CLOSE_ON_EXEC = 8  # PERF_FLAG_FD_CLOEXEC
_SPARE = 256  # file descriptors left to the rest of the process

_libc = ctypes.CDLL(None, use_errno=True)


class PerfEvent(NamedTuple):
    """An event in the kernel's terms: the device's type, and its configuration."""

    type: int
    config: int


class GroupReading(NamedTuple):
    """The counts of a group since it was opened."""

    enabled: int  # nanoseconds enabled
    running: int  # nanoseconds counted
    counts: tuple[int, ...]


class EventGroup:
    """Events that are counted together on one hardware thread, for all processes."""

    def __init__(self, events: Sequence[PerfEvent], cpu: int) -> None:
        """Start counting; raises OSError if the counters are missing or not permitted."""
        self._files: list[int] = []
        self._close = weakref.finalize(self, _close, self._files)
        self._answer = struct.Struct(f"={3 + len(events)}Q")
        try:
            for event in events:
                leader = self._files[0] if self._files else -1
                self._files.append(_open(event, cpu, leader))
        except OSError:
            self.close()
            raise

    def read(self) -> GroupReading:
        answer = os.read(self._files[0], self._answer.size)
        if len(answer) < self._answer.size:
            raise OSError(errno.EIO, "the kernel counts no more")
        _, enabled, running, *counts = self._answer.unpack(answer)
        return GroupReading(enabled, running, tuple(counts))

    def close(self) -> None:
        """Stop counting; happens by itself when the group is garbage-collected."""
        self._close()


def rates(before: GroupReading | None, now: GroupReading) -> list[float] | None:
    """Return the rate of each event per second between two readings of one group.

    If the group was multiplexed with others, rates are scaled to the whole time. Returns None
    without a first reading, or if the group was not counted at all.
    """
    if before is None:
        return None
    seconds = (now.running - before.running) / 1e9
    if seconds <= 0 or any(new < old for old, new in zip(before.counts, now.counts, strict=True)):
        return None
    return [(new - old) / seconds for old, new in zip(before.counts, now.counts, strict=True)]


def raise_file_limit(files: int) -> None:
    """Raise the process's soft limit of open files for so many events, as far as permitted.

    Each event is an open file. A login shell's limit, 1024, is only needed for ``select()``.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = len(os.listdir("/proc/self/fd")) + files + _SPARE  # noqa: PTH208
    if soft != resource.RLIM_INFINITY and wanted > soft:
        maximum = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, maximum), hard))


def _open(event: PerfEvent, cpu: int, leader: int) -> int:
    number = _NUMBERS.get(platform.machine())
    if number is None:
        raise OSError(errno.ENOSYS, f"perf_event_open has no known number on {platform.machine()}")
    attribute = _ATTRIBUTE.pack(
        event.type, _ATTRIBUTE.size, event.config, 0, 0, _WITH_TIMES | _AS_GROUP, 0, 0, 0, 0, 0
    )
    file: int = _libc.syscall(
        ctypes.c_long(number),
        attribute,
        ctypes.c_int(_ALL_PROCESSES),
        ctypes.c_int(cpu),
        ctypes.c_int(leader),
        ctypes.c_ulong(_CLOSE_ON_EXEC),
    )
    if file < 0:
        code = ctypes.get_errno()
        raise OSError(code, _HINTS.get(code, os.strerror(code)))
    return file


_HINTS = {
    errno.EACCES: "counters of all processes need CAP_PERFMON, or kernel.perf_event_paranoid = 0",
    errno.EPERM: "counters of all processes need CAP_PERFMON, or kernel.perf_event_paranoid = 0",
    errno.ENOENT: "the hardware has no such counters (virtual machines mostly have none)",
    errno.EMFILE: "too many open files: each event on each hardware thread is one; raise the limit",
}


def _close(files: list[int]) -> None:
    while files:
        os.close(files.pop())


class Traffic(NamedTuple):
    """Events that are counted together, and the bytes of each."""

    cpu: int
    """The hardware thread to count on: one of the controller's socket."""
    events: list[tuple[PerfEvent, float]]


_LINE = 64  # bytes
_UNITS = {"MiB": 2**20, "Bytes": 1, "bytes": 1}
_COUNTED = ("cas_count_read", "cas_count_write"), ("data_read", "data_write")
_SCALE = re.compile(r"\d+(?:\.\d+)?(?:e-?\d+)?", re.ASCII)
_BITS = re.compile(r"config:(\d+)(?:-(\d+))?", re.ASCII)

_UMC = 0x0A
_DF = (0x07, 0x47, 0x87, 0xC7, 0x107, 0x147, 0x187, 0x1C7)
_DF_MASK = 0x38


def traffic(devices: Path, *, zen_3: bool) -> Iterator[Traffic]:
    """Yield the events of all memory controllers below `devices`.

    `zen_3` is whether the data fabric, ``amd_df``, belongs to AMD's Zen to Zen 3: later ones count
    differently.
    """
    for device in sorted(devices.glob("amd_umc_*")):
        yield from _everywhere(device, [(_event(device, _UMC), _LINE)])
    if zen_3:
        for device in sorted(devices.glob("amd_df")):
            # One by one: the device has four counters, and all of a group must count at once.
            for code in _DF:
                config = code & 0xFF | _DF_MASK << 8 | code >> 8 << 32
                yield from _everywhere(device, [(_event(device, config), _LINE)])
    controllers = [(device, _described(device)) for device in sorted(devices.glob("uncore_imc*"))]
    # If the commands to the memory are counted, other counters would count the traffic twice.
    for wanted in _COUNTED:
        found = False
        for device, events in controllers:
            if chosen := [event for name, event in events.items() if name.startswith(wanted)]:
                yield from _everywhere(device, chosen)
                found = True
        if found:
            return


def _everywhere(device: Path, events: list[tuple[PerfEvent, float]]) -> Iterator[Traffic]:
    """Count on the hardware thread of each socket that the device names."""
    mask = device / "cpumask"
    for cpu in proc.listed(str(mask), proc.text(mask)):
        yield Traffic(cpu, events)


def _event(device: Path, config: int) -> PerfEvent:
    kind = proc.number(device / "type")
    if kind is None:
        raise DataError(f"{device}: the type is missing")
    return PerfEvent(kind, config)


def _described(device: Path) -> dict[str, tuple[PerfEvent, float]]:
    """Return the events that a device describes, with the bytes of one of each."""
    events = {}
    directory = device / "events"
    for path in sorted(directory.glob("*")) if directory.is_dir() else []:
        unit = proc.word(directory / f"{path.name}.unit")
        scale = proc.word(directory / f"{path.name}.scale")
        if unit in _UNITS and scale:
            if not _SCALE.fullmatch(scale):
                raise DataError(f"{path}.scale: {scale!r:.40} is not a number")
            event = _event(device, _config(device, path))
            events[path.name] = event, float(scale) * _UNITS[unit]
    return events


def _config(device: Path, path: Path) -> int:
    """Encode the terms of an event, such as ``event=0x04,umask=0x03``, by ``format``."""
    config = 0
    for term in proc.text(path).strip().split(","):
        name, _, value = term.partition("=")
        bits = _BITS.fullmatch(proc.word(device / "format" / name) or "")
        try:
            number = int(value or "1", 0)
        except ValueError:
            bits = None
        if bits is None:
            raise DataError(f"{path}: {term!r:.40} is not understood")
        config |= number << int(bits[1])
    return config
