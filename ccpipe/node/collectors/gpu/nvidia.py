"""NVIDIA GPUs, through the driver's library NVML and ``nvidia-ml-py``.

A GPU is identified by its PCI address, ``00000000:C1:00.0``, which does not change when another
GPU fails. Metric names follow cc-metric-collector, and so does the unit of memory, 2²⁰ bytes. If a
GPU is partitioned (MIG), each instance is also reported, with ``stype=mig`` and its UUID. Values
that a GPU does not support are omitted; a lost GPU does not affect the others. Performance state
and ECC mode, which cc-metric-collector sends as text, are numbers.

Utilization, memory, temperature, power, energy, clocks of the graphics engine and the
multiprocessors, throttling, NVLink traffic and encoders and decoders in use are read at each
sample. All else is read once a minute, and samples in between repeat it. From Hopper on, GPUs and
instances also report the driver's profiling counters (GPM), as means since the last sample.
"""

import functools
from collections.abc import Callable, Iterator, Sequence
from time import monotonic
from typing import Any, NamedTuple

from ccpipe.message import Message, Uint, metric
from ccpipe.node.collectors.gpu import nvidia_gathered
from ccpipe.node.collectors.gpu.nvidia_gathered import Gpm, XidErrors
from ccpipe.node.collectors.gpu.nvidia_readings import (
    PROCESSES,
    READINGS,
    READINGS_OF_PARTS,
    SLOW_READINGS,
    VIDEO,
    Reading,
    Values,
    active_links,
    nvlink_error,
    parts,
    power,
    violation,
)
from ccpipe.node.linux import proc
from ccpipe.node.linux.nvml import FATAL, Driver, Note, codes, supported
from ccpipe.node.sampling.collector import Metric, SoftErrors

_row = functools.partial(Metric, types=("accelerator",))
_VIOLATIONS = {
    "nv_violation_power": ("POWER", "the power limit"),
    "nv_violation_thermal": ("THERMAL", "the temperature"),
    "nv_violation_sync_boost": ("SYNC_BOOST", "another GPU of its group"),
    "nv_violation_board_limit": ("BOARD_LIMIT", "the board's limit"),
    "nv_violation_low_util": ("LOW_UTILIZATION", "low utilization"),
    "nv_violation_reliability": ("RELIABILITY", "the voltage"),
    "nv_violation_below_app_clock": ("TOTAL_APP_CLOCKS", "anything, below the requested clock"),
    "nv_violation_below_base_clock": ("TOTAL_BASE_CLOCKS", "anything, below the base clock"),
}
_NVLINK_ERRORS = {
    "nv_nvlink_crc_flit_errors": ("CRC_FLIT", "CRC errors in flits"),
    "nv_nvlink_crc_errors": ("CRC_DATA", "CRC errors in data"),
    "nv_nvlink_ecc_errors": ("ECC_DATA", "ECC errors in data"),
    "nv_nvlink_replay_errors": ("REPLAY", "retransmissions"),
    "nv_nvlink_recovery_errors": ("RECOVERY", "link recoveries"),
}
_NVLINK_TRAFFIC = {"nv_nvlink_recv": ("RX", "received"), "nv_nvlink_xmit": ("TX", "sent")}
_CLOCKED = {
    "graphics": "graphics engine",
    "sm": "multiprocessors",
    "mem": "memory",
    "video": "video engines",
}

METRICS = (
    _row("nv_util", "percent", float, "time at least one kernel was running", part="mig"),
    _row("nv_mem_util", "percent", float, "time memory was read or written"),
    _row("nv_encoder_util", "percent", float, "time the video encoder was active"),
    _row("nv_decoder_util", "percent", float, "time the video decoder was active"),
    _row("nv_fb_mem_total", "MByte", float, "memory of the GPU", part="mig"),
    _row("nv_fb_mem_used", "MByte", float, "memory allocated to programs", part="mig"),
    _row("nv_fb_mem_reserved", "MByte", float, "memory reserved by the driver", part="mig"),
    _row("nv_bar1_mem_total", "MByte", float, "memory reachable over the bus (BAR1)", part="mig"),
    _row(
        "nv_bar1_mem_used",
        "MByte",
        float,
        "mapped part of the memory reachable over the bus (BAR1)",
        part="mig",
    ),
    _row("nv_temp", "degC", float, "temperature"),
    _row("nv_fan", "percent", float, "intended fan speed"),
    _row("nv_power_usage", "W", float, "power drawn"),
    _row("nv_power_max_limit", "W", float, "power limit"),
    _row("nv_energy_abs", "J", float, "energy since the driver was loaded"),
    _row("nv_energy", "J", float, "energy since the last sample"),
    _row("nv_average_power", "W", float, "mean power since the last sample"),
    *(
        _row(f"nv_{which}{name}_clock", "MHz", float, f"{what} of the {part}")
        for which, what in (("", "clock"), ("max_", "highest clock"))
        for name, part in _CLOCKED.items()
    ),
    _row("nv_perf_state", "", int, "0 for the highest performance, 15 for the lowest"),
    _row("nv_ecc_mode", "", int, "1 if ECC is enabled, otherwise 0"),
    _row("nv_ecc_uncorrected_error", "", int, "uncorrectable errors over the GPU's lifetime"),
    _row("nv_ecc_corrected_error", "", int, "corrected errors over the GPU's lifetime"),
    _row(
        "nv_ecc_volatile_uncorrected_error",
        "",
        int,
        "uncorrectable errors since the driver was loaded",
    ),
    _row(
        "nv_ecc_volatile_corrected_error", "", int, "corrected errors since the driver was loaded"
    ),
    _row("nv_throttle_reasons", "", int, "why clocks are lowered, as bits of NVML"),
    _row("nv_remapped_rows_corrected", "", int, "rows remapped after correctable errors"),
    _row("nv_remapped_rows_uncorrected", "", int, "rows remapped after uncorrectable errors"),
    _row("nv_remapped_rows_pending", "", int, "1 if row remapping is pending a reset"),
    _row("nv_remapped_rows_failure", "", int, "1 if row remapping failed"),
    _row("nv_compute_processes", "", int, "compute processes", part="mig"),
    _row("nv_graphics_processes", "", int, "graphics processes"),
    _row("nv_mps_compute_processes", "", int, "compute processes that use MPS"),
    *(
        _row(name, "s", float, f"time throttled by {meaning}")
        for name, (_, meaning) in _VIOLATIONS.items()
    ),
    *(
        _row(name, "", int, meaning, stype="nvlink")
        for name, (_, meaning) in _NVLINK_ERRORS.items()
    ),
    *(
        _row(f"{name}_sum", "", int, f"{meaning}, of all links")
        for name, (_, meaning) in _NVLINK_ERRORS.items()
    ),
    *(
        _row(name, "bytes", int, f"data {meaning} since the driver was loaded", stype="nvlink")
        for name, (_, meaning) in _NVLINK_TRAFFIC.items()
    ),
    *nvidia_gathered.METRICS,
)

_KINDS = {row.name: row.kind for row in METRICS}
_Tagged = Iterator[tuple[str, dict[str, str], float]]
SLOW_SECONDS = 60
"""Time between two readings of what changes rarely; samples in between repeat it."""


class Nvidia:
    """NVIDIA GPUs; the first sample has no energy since the last.

    Parameters
    ----------
    exclude
        GPUs to exclude, as shell patterns for the PCI address or the UUID.
    release_when_idle
        Release the driver after each sample in which no process used a GPU, so that GPUs can be
        reset or partitioned at any time. Enable the driver's persistence mode with it.
    root
        Root of the file system in which the driver is searched.

    """

    def __init__(
        self, *, exclude: Sequence[str] = (), release_when_idle: bool = False, root: str = "/"
    ) -> None:
        self._exclude = exclude
        self._release_when_idle = release_when_idle
        # Whether a GPU is idle must then be known at each sample.
        now, rarely = (PROCESSES, ()) if release_when_idle else ((), PROCESSES)
        self._readings = (*READINGS, *now)
        self._slow_readings = (*SLOW_READINGS, *rarely)
        self._gpm = Gpm()
        self._xid = XidErrors()
        self._driver = Driver(root, before_reset=self._free)
        self._energy: dict[str, tuple[float, float]] = {}  # joules and time, by GPU
        self._known: dict[int, tuple[Any, str, str]] = {}  # handle, address and UUID, by index
        self._slow: dict[str, _Slow] = {}  # by GPU
        self._parts: dict[str, list[tuple[Any, dict[str, str]]]] = {}
        """Handles and tags of MIG instances, by GPU; read as rarely."""
        self.soft = SoftErrors("nvidia")

    def collect(self, time: int) -> Iterator[Message]:
        nvml, count = self._driver.gpus()
        if len(self._known) > count:
            self._known.clear()  # one was removed: the others have new indices
        is_lost, processes = False, 0.0
        self._poll_xid(nvml)
        for index in range(count):
            try:
                gpu, address, uuid = self._find(nvml, index)
                if any(proc.matches(name, self._exclude) for name in (address, uuid)):
                    continue
                for name, tags, value in self._gpu(nvml, gpu, address, time):
                    processes += value if name.endswith("_processes") else 0
                    complete = {"type": "accelerator", "type-id": address, **tags}
                    yield metric(name, _as_declared(name, value), time=time, tags=complete)
            except nvml.NVMLError as error:
                self.soft.note(f"GPU {index}: {error}")
                is_lost = is_lost or error.value in codes(nvml, FATAL)
        if is_lost:
            self._known.clear()
            self._slow.clear()
            self._driver.renew()  # after a reset only a new handle works
        elif self._release_when_idle and not processes:
            self._driver.reset()

    def _poll_xid(self, nvml: Any) -> None:
        try:
            self._xid.poll(nvml)
        except nvml.NVMLError as error:
            self.soft.note(f"Xid errors: {error}")

    def _find(self, nvml: Any, index: int) -> tuple[Any, str, str]:
        if index not in self._known:
            gpu = nvml.nvmlDeviceGetHandleByIndex(index)
            address = nvml.nvmlDeviceGetPciInfo(gpu).busId
            self._known[index] = gpu, address, nvml.nvmlDeviceGetUUID(gpu)
        return self._known[index]

    def _free(self, nvml: Any) -> None:
        self._known.clear()
        self._parts.clear()
        self._gpm.free(nvml)
        self._xid.free(nvml)

    def _gpu(self, nvml: Any, gpu: Any, address: str, time: int) -> _Tagged:
        def note(text: str) -> None:
            self.soft.note(f"GPU {address}: {text}")

        for reading in self._readings:
            for name, value in supported(nvml, reading, gpu, note):
                yield name, {}, value
        slow = self._slow.get(address)
        if slow is None or not 0 <= time - slow.time < SLOW_SECONDS * 10**9:
            slow = _read_slow(nvml, gpu, self._slow_readings, time, note)
            self._slow[address] = slow
            self._parts.pop(address, None)
        yield from slow.values
        for reading in slow.active:
            for name, value in supported(nvml, reading, gpu, note):
                yield name, {}, value
        yield from self._counters(nvml, gpu, address, slow.links, note)
        for source in (self._gpm.gpu, self._xid.read):
            yield from ((name, {}, value) for name, value in source(nvml, gpu, address, note))
        yield from self._of_parts(nvml, gpu, address, note)

    def _of_parts(self, nvml: Any, gpu: Any, address: str, note: Note) -> _Tagged:
        if address not in self._parts:
            self._parts[address] = [
                (part, {"stype": "mig", "stype-id": nvml.nvmlDeviceGetUUID(part)})
                for part in parts(nvml, gpu, note)
            ]
        found = self._parts[address]
        for part, tags in found:
            for reading in READINGS_OF_PARTS:
                for name, value in supported(nvml, reading, part, note):
                    yield name, tags, value
        tags_of = {id(part): tags for part, tags in found}
        handles = [part for part, _ in found]
        for part, name, value in self._gpm.instances(nvml, gpu, address, handles, note):
            yield name, tags_of[id(part)], value

    def _counters(
        self, nvml: Any, gpu: Any, address: str, links: Sequence[int], note: Note
    ) -> _Tagged:
        """Yield the counters, by one call; by single calls those that it does not return."""
        answers = dict(supported(nvml, functools.partial(_fields, links), gpu, note))
        energy = answers.get((nvml.NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION, 0))
        for name, value in supported(nvml, self._energy_of(address, energy), gpu, note):
            yield name, {}, value
        milliwatts = [answers[field, 0] for field in _power_fields(nvml) if (field, 0) in answers]
        if milliwatts:
            yield "nv_power_usage", {}, milliwatts[0] / 1000
        else:
            for name, value in supported(nvml, power, gpu, note):
                yield name, {}, value
        for name, (policy, _) in _VIOLATIONS.items():
            nanoseconds = answers.get((getattr(nvml, f"NVML_FI_DEV_PERF_POLICY_{policy}"), 0))
            if nanoseconds is not None:
                yield name, {}, nanoseconds / 1e9
            else:
                for _, value in supported(nvml, violation(name, policy), gpu, note):
                    yield name, {}, value
        for link in links:
            tags = {"stype": "nvlink", "stype-id": str(link)}
            for name, (way, _) in _NVLINK_TRAFFIC.items():
                field = getattr(nvml, f"NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_{way}")
                if (field, link) in answers:
                    yield name, tags, answers[field, link] * 1024

    def _energy_of(self, address: str, known: int | None) -> Callable[[Any, Any], Values]:
        def energy(nvml: Any, gpu: Any) -> Values:
            millijoules = known
            if millijoules is None:
                millijoules = nvml.nvmlDeviceGetTotalEnergyConsumption(gpu)
            joules, now = millijoules / 1000, monotonic()
            last = self._energy.get(address)
            self._energy[address] = joules, now
            yield "nv_energy_abs", joules
            if last is not None and joules >= last[0] and now > last[1]:
                yield "nv_energy", joules - last[0]
                yield "nv_average_power", (joules - last[0]) / (now - last[1])

        return energy


class _Slow(NamedTuple):
    """What is read once a minute of a GPU."""

    time: int  # the slot of the reading
    links: list[int]
    values: list[tuple[str, dict[str, str], float]]
    active: list[Reading]  # readings of video engines in use


def _read_slow(nvml: Any, gpu: Any, readings: Sequence[Reading], time: int, note: Note) -> _Slow:
    links = list(active_links(nvml, gpu, note))
    slow = _Slow(time, links, [*_slow_values(nvml, gpu, readings, links, note)], [])
    for reading in VIDEO:
        found = list(supported(nvml, reading, gpu, note))
        if any(value for _, value in found):
            slow.active.append(reading)
        else:
            slow.values.extend((name, {}, value) for name, value in found)
    return slow


def _slow_values(
    nvml: Any, gpu: Any, readings: Sequence[Reading], links: Sequence[int], note: Note
) -> _Tagged:
    for reading in readings:
        for name, value in supported(nvml, reading, gpu, note):
            yield name, {}, value
    counted: dict[str, list[float]] = {name: [] for name in _NVLINK_ERRORS}
    for link in links:
        tags = {"stype": "nvlink", "stype-id": str(link)}
        for error, (counter, _) in _NVLINK_ERRORS.items():
            of_link = functools.partial(nvlink_error(error, counter), link)
            for name, value in supported(nvml, of_link, gpu, note):
                counted[name].append(value)
                yield name, tags, value
    for name, values in counted.items():
        if links and len(values) == len(links):  # a sum over some of them would be wrong
            yield f"{name}_sum", {}, sum(values)


def _fields(links: Sequence[int], nvml: Any, gpu: Any) -> Iterator[tuple[tuple[int, int], int]]:
    """Yield the values of many fields from one call, by field and link."""
    wanted = [(nvml.NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION, 0)]
    wanted += [(field, 0) for field in _power_fields(nvml)]
    wanted += [
        (getattr(nvml, f"NVML_FI_DEV_PERF_POLICY_{policy}"), 0)
        for policy, _ in _VIOLATIONS.values()
    ]
    wanted += [
        (getattr(nvml, f"NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_{way}"), link)
        for link in links
        for way, _ in _NVLINK_TRAFFIC.values()
    ]
    for (field, scope), found in zip(
        wanted, nvml.nvmlDeviceGetFieldValues(gpu, wanted), strict=True
    ):
        if found.nvmlReturn == nvml.NVML_SUCCESS:
            is_short = found.valueType == nvml.NVML_VALUE_TYPE_UNSIGNED_INT
            yield (field, scope), found.value.uiVal if is_short else found.value.ullVal


def _power_fields(nvml: Any) -> list[int]:
    """Return the fields of what ``nvmlDeviceGetPowerUsage`` returns, the preferred one first.

    It is the mean of a second where a GPU has that, from Ampere on except GA100, else the power at
    that time. An older nvidia-ml-py has neither field.
    """
    found = (getattr(nvml, f"NVML_FI_DEV_POWER_{kind}", None) for kind in ("AVERAGE", "INSTANT"))
    return [field for field in found if field is not None]


def _as_declared(name: str, value: float) -> float:
    if _KINDS[name] is float:
        return float(value)
    return int(value) if value < 2**63 else Uint(value)
