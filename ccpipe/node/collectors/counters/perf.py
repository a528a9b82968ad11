"""Instructions, floating point operations and memory traffic: ``perf_event_open(2)``.

Instructions and cycles are counted on every processor that the kernel supports, floating point
operations on those below, and memory traffic if the kernel exposes the memory controllers, as
``uncore_imc*``, ``amd_umc_*`` or, up to Zen 3, ``amd_df``. Metrics that a machine does not support
are omitted; virtual machines mostly support none. Counting for all processes requires
``CAP_PERFMON``, or that ``kernel.perf_event_paranoid`` is 0 or less.

- Intel, Broadwell to Granite Rapids: ``FP_ARITH_INST_RETIRED``, as ``flops_dp`` and ``flops_sp``;
- AMD Zen: ``fp_ret_sse_avx_ops``, as ``flops_dp`` and ``flops_sp``;
- AMD Zen 2 to Zen 5: the same, which no longer distinguishes them, as ``flops_any``.

If there are not enough counters, the kernel multiplexes the events and the rates are scaled by
their share of time. Disable this collector if users of the node program the counters directly,
bypassing the kernel, as LIKWID does.
"""

import errno
import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from ccpipe.message import Message, metric
from ccpipe.node.linux import proc
from ccpipe.node.linux.perf_event import (
    HARDWARE,
    RAW,
    EventGroup,
    GroupReading,
    PerfEvent,
    raise_file_limit,
    rates,
    traffic,
)
from ccpipe.node.sampling.collector import Metric

_BOTH = ("node", "hwthread")
METRICS = (
    Metric("ipc", "", float, "instructions per cycle", _BOTH),
    Metric("flops_dp", "Flops/s", float, "double-precision operations", _BOTH),
    Metric("flops_sp", "Flops/s", float, "single-precision operations", _BOTH),
    Metric(
        "flops_any", "Flops/s", float,
        "flops_sp + 2 flops_dp; on Zen 2 and later, operations of both", _BOTH,
    ),
    Metric(
        "mem_bw", "MByte/s", float, "read from and written to the memory", ("node", "socket")
    ),
)  # fmt: skip

_MBYTE = 1e6
_NODE = ("node", "")
_NOT_OFFERED = frozenset({errno.ENOENT, errno.EOPNOTSUPP, errno.EINVAL, errno.ENODEV, errno.ENXIO})


class _Counted(NamedTuple):
    """An event, the rate that it contributes to, and its weight."""

    event: PerfEvent
    of: str
    weight: float = 1.0


_INSTRUCTIONS = (
    _Counted(PerfEvent(HARDWARE, 0), "cycles"),
    _Counted(PerfEvent(HARDWARE, 1), "instructions"),
)
_INTEL = {  # by code and mask: operations of one instruction, with 64, 128, 256 and 512 bits
    "flops_dp": ((0x01C7, 1), (0x04C7, 2), (0x10C7, 4), (0x40C7, 8)),
    "flops_sp": ((0x02C7, 1), (0x08C7, 4), (0x20C7, 8), (0x80C7, 16)),
}
_INTEL_MODELS = frozenset(
    {
        0x3D, 0x47, 0x4F, 0x56,  # Broadwell
        0x4E, 0x5E, 0x55, 0x8E, 0x9E, 0xA5, 0xA6,  # Skylake, Cascade Lake, Kaby to Comet Lake
        0x6A, 0x6C, 0x7D, 0x7E, 0xA7, 0x8C, 0x8D,  # Ice, Rocket and Tiger Lake
        0x8F, 0xCF, 0xAD, 0xAE,  # Sapphire, Emerald and Granite Rapids
    }
)  # fmt: skip
_INTEL_CORE = 6  # the family of all of these
_ZEN, _ZEN_3 = 0x17, 0x19
_FIRST_ZEN_2 = 0x30  # of the models of family 0x17
_ZEN_4_MODELS = (*range(0x10, 0x20), *range(0x60, 0x80), *range(0xA0, 0xB0))


class _CounterGroup(NamedTuple):
    """A group of counters, and the type and id of its metrics."""

    type: str
    id: str
    counted: tuple[_Counted, ...]
    group: EventGroup


class Perf:
    """The hardware counters; the first sample is empty.

    Parameters
    ----------
    hwthreads
        Metrics to report for each hardware thread as well, as shell patterns.
    root
        Root of the file system that describes the hardware; set it to read a captured tree.

    """

    def __init__(self, *, hwthreads: Sequence[str] = ("ipc", "flops_any"), root: str = "/") -> None:
        self._hwthreads = hwthreads
        self._root = Path(root)
        self._online = ""
        self._places: list[_CounterGroup] = []
        self._before: list[GroupReading] = []

    def collect(self, time: int) -> Iterator[Message]:
        path = self._root / "sys/devices/system/cpu/online"
        online = proc.text(path)
        if online != self._online:
            self._online, self._places, self._before = "", [], []  # the old ones are closed first
            self._places = self._open(proc.listed(str(path), online))
            self._online = online
        before = self._before
        self._before = [place.group.read() for place in self._places]
        if before:
            for (kind, number), sums in self._sums(before).items():
                tags = {"type": kind, "type-id": number} if number else {"type": kind}
                for name, value in _metrics(sums):
                    if kind != "hwthread" or proc.matches(name, self._hwthreads):
                        yield metric(name, value, time=time, tags=tags)

    def _sums(self, before: list[GroupReading]) -> dict[tuple[str, str], dict[str, float]]:
        """Add up the rates by type and id, and of the node; an unknown rate makes a sum NaN."""
        sums: dict[tuple[str, str], dict[str, float]] = defaultdict(lambda: defaultdict(float))
        for place, old, new in zip(self._places, before, self._before, strict=True):
            found = rates(old, new) or [math.nan] * len(place.counted)
            for counted, rate in zip(place.counted, found, strict=True):
                for where in (_NODE, (place.type, place.id)):
                    sums[where][counted.of] += counted.weight * rate
        return sums

    def _open(self, online: list[int]) -> list[_CounterGroup]:
        wanted = list(self._wanted(online))
        raise_file_limit(sum(len(counted) for *_, counted in wanted))
        places: list[_CounterGroup] = []
        refused: dict[str, OSError] = {}
        for kind, number, cpu, counted in wanted:
            if counted[0].of not in refused:
                try:
                    group = EventGroup([one.event for one in counted], cpu)
                except OSError as error:
                    if error.errno not in _NOT_OFFERED:
                        raise
                    refused[counted[0].of] = error
                else:
                    places.append(_CounterGroup(kind, number, counted, group))
        # A rate refused once is never reported: a sum over the others would be wrong.
        places = [place for place in places if place.counted[0].of not in refused]
        if not places:
            raise next(iter(refused.values()))
        return places

    def _wanted(self, online: list[int]) -> Iterator[tuple[str, str, int, tuple[_Counted, ...]]]:
        processor = _processor(self._root / "proc/cpuinfo")
        for counted in (_INSTRUCTIONS, *_flops(processor)):
            for cpu in online:
                yield "hwthread", str(cpu), cpu, counted
        devices = self._root / "sys/bus/event_source/devices"
        for found in traffic(devices, zen_3=_is_zen_3(processor)):
            counted = tuple(_Counted(event, "mem_bw", size) for event, size in found.events)
            topology = self._root / f"sys/devices/system/cpu/cpu{found.cpu}/topology"
            yield (
                "socket",
                proc.text(topology / "physical_package_id").strip(),
                found.cpu,
                counted,
            )


def _metrics(sums: Mapping[str, float]) -> Iterator[tuple[str, float]]:
    """Yield the metrics computed from rates; those with an unknown part are omitted."""
    values = {name: sums[name] for name in ("flops_dp", "flops_sp", "flops_any") if name in sums}
    if "flops_dp" in sums and "flops_sp" in sums:
        values["flops_any"] = 2 * sums["flops_dp"] + sums["flops_sp"]
    if sums.get("cycles"):
        values["ipc"] = sums["instructions"] / sums["cycles"]
    if "mem_bw" in sums:
        values["mem_bw"] = sums["mem_bw"] / _MBYTE
    return ((name, value) for name, value in values.items() if math.isfinite(value))


class _Processor(NamedTuple):
    """The first hardware thread in ``/proc/cpuinfo``; other vendors have other keys."""

    vendor: str
    family: int
    model: int
    flags: frozenset[str]


def _processor(path: Path) -> _Processor:
    reported = proc.pairs(path)
    family, model = (
        int(reported[key]) if re.fullmatch(r"\d{1,6}", reported.get(key, ""), re.ASCII) else -1
        for key in ("cpu family", "model")
    )
    return _Processor(
        reported.get("vendor_id", ""), family, model, frozenset(reported.get("flags", "").split())
    )


def _flops(processor: _Processor) -> Iterator[tuple[_Counted, ...]]:
    """Yield the events that count floating point operations, in groups that fit four counters."""
    vendor, family, model, flags = processor
    if vendor == "GenuineIntel" and family == _INTEL_CORE and model in _INTEL_MODELS:
        for name, events in _INTEL.items():
            used = events if "avx512f" in flags else events[:-1]
            yield tuple(_Counted(PerfEvent(RAW, config), name, weight) for config, weight in used)
    elif vendor == "AuthenticAMD" and family == _ZEN and model < _FIRST_ZEN_2:
        yield (_Counted(PerfEvent(RAW, 0xF003), "flops_dp"),)
        yield (_Counted(PerfEvent(RAW, 0x0F03), "flops_sp"),)
    elif vendor == "AuthenticAMD" and family >= _ZEN:
        yield (_Counted(PerfEvent(RAW, 0x0F03), "flops_any"),)


def _is_zen_3(processor: _Processor) -> bool:
    return processor.vendor == "AuthenticAMD" and (
        processor.family == _ZEN
        or (processor.family == _ZEN_3 and processor.model not in _ZEN_4_MODELS)
    )
