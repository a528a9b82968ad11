"""The counters of the memory controllers, for the traffic of the main memory.

- Intel, ``uncore_imc*``: the kernel describes, in ``events``, how to count reads and writes
  and how many bytes each is;
- AMD Zen 4 and later, ``amd_umc_*`` (Linux 6.8): ``umc_cas_cmd.all``, of 64 bytes each;
- AMD Zen to Zen 3, ``amd_df``: ``dram_channel_data_controller_0`` to ``_7``, of 64 bytes each.

AMD's event codes are those of ``perf list`` (Linux, ``tools/perf/pmu-events/arch/x86/amdzen*``).
All of these devices are below ``/sys/bus/event_source/devices``.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ccpipe.errors import DataError
from ccpipe.node.linux import proc
from ccpipe.node.linux.perf_event import PerfEvent


class Traffic(NamedTuple):
    """Events that are counted together, and the bytes that each of them moved."""

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
    """Yield what to count, of all memory controllers below `devices`.

    `zen_3` is whether the data fabric, ``amd_df``, is that of AMD's Zen to Zen 3: later ones count
    differently.
    """
    for device in sorted(devices.glob("amd_umc_*")):
        yield from _everywhere(device, [(_event(device, _UMC), _LINE)])
    if zen_3:
        for device in sorted(devices.glob("amd_df")):
            # One by one: the device has four counters, and those of a group must count at once.
            for code in _DF:
                config = code & 0xFF | _DF_MASK << 8 | code >> 8 << 32
                yield from _everywhere(device, [(_event(device, config), _LINE)])
    controllers = [(device, _described(device)) for device in sorted(devices.glob("uncore_imc*"))]
    # Where the commands to the memory are counted, the same traffic elsewhere counts it twice.
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
    """Return the events that a device names with how many bytes one of each is."""
    events = {}
    folder = device / "events"
    for path in sorted(folder.glob("*")) if folder.is_dir() else []:
        unit = proc.word(folder / f"{path.name}.unit")
        scale = proc.word(folder / f"{path.name}.scale")
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
