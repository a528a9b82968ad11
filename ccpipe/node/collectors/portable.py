"""Metrics of systems without ``/proc``, such as a macOS laptop, through psutil.

Names, units and tags are the same as in the collectors `load`, `cpu`, `memory`, `network`, `disk`
and `temperature`, which read ``/proc`` and ``/sys`` instead. This collector is enabled by default
only on systems without ``/proc``; values that a system does not report are omitted.
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from ccpipe.message import Message, metric
from ccpipe.node.collectors import cpu, load, memory, network, temperature
from ccpipe.node.collectors.storage import disk
from ccpipe.node.linux import proc
from ccpipe.node.linux.proc import Mount
from ccpipe.node.sampling.collector import Metric, Previous, SoftErrors, emit, rates

_MEMORY = {  # attributes of psutil.virtual_memory()
    "mem_total": "total", "mem_free": "free", "mem_available": "available",
    "mem_buffers": "buffers", "mem_shared": "shared", "mem_active": "active",
    "mem_inactive": "inactive", "mem_slab": "slab",
}  # fmt: skip
_SWAP = {"swap_total": "total", "swap_free": "free", "swap_used": "used"}
_DISK = {  # attributes of psutil.disk_io_counters(), and the bytes of one unit
    "io_reads": ("read_count", 1), "io_writes": ("write_count", 1),
    "io_reads_merged": ("read_merged_count", 1), "io_writes_merged": ("write_merged_count", 1),
    "io_read_sectors": ("read_bytes", 512), "io_writes_sectors": ("write_bytes", 512),
    "io_read_ms": ("read_time", 1), "io_writes_ms": ("write_time", 1),
    "io_ioops_ms": ("busy_time", 1),
}  # fmt: skip
_NETWORK = ("bytes_recv", "packets_recv", "bytes_sent", "packets_sent")
_LOAD = 3  # averages, the first rows of the collector `load`


def _sent(module: Any, names: Mapping[str, Any]) -> tuple[Metric, ...]:
    return tuple(row for row in module.METRICS if row.name in names)


def _of_node(row: Metric) -> Metric:
    return row._replace(types=("node",))


_DISK_ROWS = _sent(disk, _DISK)
METRICS = (
    *load.METRICS[:_LOAD],
    *cpu.METRICS,
    *map(_of_node, _sent(memory, {**_MEMORY, **_SWAP, "mem_used": ""})),
    *network.METRICS,
    *_DISK_ROWS,
    *disk.CAPACITY,
    *map(_of_node, _sent(temperature, {"temperature": ""})),
)

_KIB = 1024
_NODE = {"type": "node"}


class Portable:
    """Load, processors, memory, network, disks and temperatures of any system.

    Parameters
    ----------
    hwthreads
        Metrics of `cpu` to report for each hardware thread as well, as shell patterns.
    exclude_interfaces
        Network interfaces to exclude, as shell patterns.
    exclude_devices
        Disks to exclude, as shell patterns.
    exclude_mounts
        Mount points to exclude, as shell patterns.

    """

    def __init__(
        self,
        *,
        hwthreads: Sequence[str] = ("cpu_user", "cpu_used"),
        exclude_interfaces: Sequence[str] = ("lo", "lo0"),
        exclude_devices: Sequence[str] = disk.EXCLUDE,
        exclude_mounts: Sequence[str] = ("/boot", "/boot/*", "/System/Volumes/*"),
    ) -> None:
        self._of_hwthreads = {row.name for row in cpu.METRICS if proc.matches(row.name, hwthreads)}
        self._exclude_interfaces = exclude_interfaces
        self._exclude_devices = exclude_devices
        self._exclude_mounts = exclude_mounts
        self._cpu_before: dict[str, list[float]] = {}
        self._network = Previous[list[int]]()
        self._disks = Previous[list[int]]()
        self.soft = SoftErrors("portable")

    def collect(self, time: int) -> Iterator[Message]:
        """Yield the metrics; an area that fails does not affect the others."""
        import psutil

        areas: tuple[Callable[[Any, int], Iterable[Message]], ...] = (
            _load, self._cpu, _memory, self._traffic, self._activity, self._capacity, _temperatures,
        )  # fmt: skip
        for area in areas:
            try:
                yield from area(psutil, time)
            except (psutil.Error, OSError, RuntimeError) as error:
                self.soft.note(f"{area.__name__.strip('_')}: {error}")

    def _cpu(self, psutil: Any, time: int) -> Iterator[Message]:
        each = psutil.cpu_times(percpu=True)
        now = {"": psutil.cpu_times(), **{str(number): times for number, times in enumerate(each)}}
        states = [row.name.removeprefix("cpu_") for row in cpu.STATES]
        known = {f"cpu_{state}" for state in now[""]._fields} | {"cpu_used"}
        before = self._cpu_before
        self._cpu_before = {
            number: [getattr(times, state, 0.0) for state in states]
            for number, times in now.items()
        }
        yield metric("num_cpus", len(each), time=time, tags=_NODE)
        for number, times in self._cpu_before.items():
            if number in before:
                tags = {"type": "hwthread", "type-id": number} if number else _NODE
                wanted = known & self._of_hwthreads if number else known
                online = 1 if number else len(each)
                for name, share in cpu.shares(before[number], times, online, wanted):
                    yield metric(name, share, time=time, tags=tags)

    def _traffic(self, psutil: Any, time: int) -> Iterator[Message]:
        now = {
            interface: [getattr(counters, name) for name in _NETWORK]
            for interface, counters in psutil.net_io_counters(pernic=True, nowrap=False).items()
            if not proc.matches(interface, self._exclude_interfaces)
        }
        before, seconds = self._network.swap(now)
        for interface, counters in now.items():
            tags = {**_NODE, "stype": "network", "stype-id": proc.tag(interface)}
            yield from emit(network.COUNTERS, counters, time, tags)
            gained = rates(before.get(interface), counters, seconds)
            yield from emit(network.RATES, gained, time, tags)

    def _activity(self, psutil: Any, time: int) -> Iterator[Message]:
        disks = psutil.disk_io_counters(perdisk=True, nowrap=False) or {}
        attributes = {name for counters in disks.values() for name in counters._fields}
        rows = [row for row in _DISK_ROWS if _DISK[row.name][0] in attributes]
        now = {
            device: [getattr(counters, _DISK[row.name][0]) for row in rows]
            for device, counters in disks.items()
            if not proc.matches(device, self._exclude_devices)
        }
        before, _ = self._disks.swap(now)
        for device, counters in now.items():
            gains = proc.gained(before.get(device), counters) or []
            units = [gain // _DISK[row.name][1] for row, gain in zip(rows, gains, strict=False)]
            tags = {**_NODE, "stype": "device", "stype-id": proc.tag(device)}
            yield from emit(rows, units, time, tags)

    def _capacity(self, psutil: Any, time: int) -> Iterator[Message]:
        mounted = tuple(Mount(*partition[:3]) for partition in psutil.disk_partitions(all=True))
        return disk.capacity(time, mounted, self._exclude_devices, self._exclude_mounts)


def _load(psutil: Any, time: int) -> list[Message]:
    return emit(load.METRICS[:_LOAD], psutil.getloadavg(), time, _NODE)


def _memory(psutil: Any, time: int) -> Iterator[Message]:
    known = psutil.virtual_memory()
    for names, source in ((_MEMORY, known), (_SWAP, psutil.swap_memory())):
        for name, attribute in names.items():
            if hasattr(source, attribute):
                yield metric(name, getattr(source, attribute) // _KIB, time=time, tags=_NODE)
    used = known.used
    if hasattr(known, "buffers"):  # as the collector `memory` defines it: without caches
        used = known.total - known.free - known.buffers - (known.cached - known.shared)
    yield metric("mem_used", used // _KIB, time=time, tags=_NODE)


def _temperatures(psutil: Any, time: int) -> Iterator[Message]:
    if sys.platform == "darwin":  # psutil has no such function there
        return
    for chip, sensors in psutil.sensors_temperatures().items():
        for number, sensor in enumerate(sensors):
            name = f"{chip}/{sensor.label or number}"
            tags = {**_NODE, "stype": "sensor", "stype-id": proc.tag(name)}
            yield metric("temperature", sensor.current, time=time, tags=tags)
