"""NVIDIA GPUs, through the driver's library NVML and ``nvidia-ml-py``.

A GPU is identified by its PCI address, ``00000000:C1:00.0``, which does not change when another
GPU fails. Metric names follow cc-metric-collector, and so does the unit of memory, 2²⁰ bytes. If a
GPU is partitioned (MIG), each instance is also reported, with ``stype=mig`` and its UUID. Values
that a GPU does not support are omitted; a lost GPU does not affect the others. Performance state
and ECC mode, which cc-metric-collector sends as text, are numbers. Limits, highest clocks, modes
and error counters are read once a minute; samples in between repeat them.
From Hopper on, GPUs and instances also report the driver's profiling counters (GPM), as means since
the last sample.
"""

import functools
from collections.abc import Callable, Iterator, Sequence
from time import monotonic
from typing import Any, NamedTuple

from ccpipe.message import Message, Uint, metric
from ccpipe.node.collectors.gpu import nvidia_gathered
from ccpipe.node.collectors.gpu.nvidia_gathered import Gpm, XidErrors
from ccpipe.node.linux import proc
from ccpipe.node.linux.nvml import FATAL, UNSUPPORTED, Driver, Note, codes, supported
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
_ECC_ERRORS = {
    "nv_ecc_uncorrected_error": ("UNCORRECTED", "AGGREGATE"),
    "nv_ecc_corrected_error": ("CORRECTED", "AGGREGATE"),
    "nv_ecc_volatile_uncorrected_error": ("UNCORRECTED", "VOLATILE"),
    "nv_ecc_volatile_corrected_error": ("CORRECTED", "VOLATILE"),
}
_CLOCKS = {"graphics": "GRAPHICS", "sm": "SM", "mem": "MEM", "video": "VIDEO"}
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

_MBYTE = 2**20
_KINDS = {row.name: row.kind for row in METRICS}
_Values = Iterator[tuple[str, float]]
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
        self._gpm = Gpm()
        self._xid = XidErrors()
        self._driver = Driver(root, before_reset=self._free)
        self._energy: dict[str, tuple[float, float]] = {}  # joules and time, by GPU
        self._slow: dict[str, _Slow] = {}  # by GPU
        self.soft = SoftErrors("nvidia")

    def collect(self, time: int) -> Iterator[Message]:
        nvml, count = self._driver.gpus()
        is_lost, processes = False, 0.0
        for index in range(count):
            try:
                gpu = nvml.nvmlDeviceGetHandleByIndex(index)
                address = nvml.nvmlDeviceGetPciInfo(gpu).busId
                uuid = nvml.nvmlDeviceGetUUID(gpu)
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
            self._slow.clear()
            self._driver.renew()  # after a reset only a new handle works
        elif self._release_when_idle and not processes:
            self._driver.reset()

    def _free(self, nvml: Any) -> None:
        self._gpm.free(nvml)
        self._xid.free(nvml)

    def _gpu(self, nvml: Any, gpu: Any, address: str, time: int) -> _Tagged:
        def note(text: str) -> None:
            self.soft.note(f"GPU {address}: {text}")

        for reading in _READINGS:
            for name, value in supported(nvml, reading, gpu, note):
                yield name, {}, value
        slow = self._slow.get(address)
        if slow is None or not 0 <= time - slow.time < SLOW_SECONDS * 10**9:
            links = list(_active_links(nvml, gpu, note))
            slow = _Slow(time, links, [*_slow_values(nvml, gpu, links, note)])
            self._slow[address] = slow
        yield from slow.values
        yield from self._counters(nvml, gpu, address, slow.links, note)
        for source in (self._gpm.gpu, self._xid.read):
            yield from ((name, {}, value) for name, value in source(nvml, gpu, address, note))
        found = list(parts(nvml, gpu, note))
        for part in found:
            for reading in _READINGS_OF_PARTS:
                for name, value in supported(nvml, reading, part, note):
                    yield name, _part_tags(nvml, part), value
        for part, name, value in self._gpm.instances(nvml, gpu, address, found, note):
            yield name, _part_tags(nvml, part), value

    def _counters(
        self, nvml: Any, gpu: Any, address: str, links: Sequence[int], note: Note
    ) -> _Tagged:
        """Yield the counters, by one call; by single calls those that it does not return."""
        answers = dict(supported(nvml, functools.partial(_fields, links), gpu, note))
        energy = answers.get((nvml.NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION, 0))
        for name, value in supported(nvml, self._energy_of(address, energy), gpu, note):
            yield name, {}, value
        for name, (policy, _) in _VIOLATIONS.items():
            nanoseconds = answers.get((getattr(nvml, f"NVML_FI_DEV_PERF_POLICY_{policy}"), 0))
            if nanoseconds is not None:
                yield name, {}, nanoseconds / 1e9
            else:
                for _, value in supported(nvml, _violation(name, policy), gpu, note):
                    yield name, {}, value
        for link in links:
            tags = {"stype": "nvlink", "stype-id": str(link)}
            for name, (way, _) in _NVLINK_TRAFFIC.items():
                field = getattr(nvml, f"NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_{way}")
                if (field, link) in answers:
                    yield name, tags, answers[field, link] * 1024

    def _energy_of(self, address: str, known: int | None) -> Callable[[Any, Any], _Values]:
        def energy(nvml: Any, gpu: Any) -> _Values:
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


def _part_tags(nvml: Any, part: Any) -> dict[str, str]:
    return {"stype": "mig", "stype-id": nvml.nvmlDeviceGetUUID(part)}


class _Slow(NamedTuple):
    """Values of a GPU that change rarely and take long to read."""

    time: int  # the slot of the reading
    links: list[int]
    values: list[tuple[str, dict[str, str], float]]


def _slow_values(nvml: Any, gpu: Any, links: Sequence[int], note: Note) -> _Tagged:
    for reading in _SLOW_READINGS:
        for name, value in supported(nvml, reading, gpu, note):
            yield name, {}, value
    counted: dict[str, list[float]] = {name: [] for name in _NVLINK_ERRORS}
    for link in links:
        tags = {"stype": "nvlink", "stype-id": str(link)}
        for of_link in map(_nvlink_error, _NVLINK_ERRORS):
            for name, value in supported(nvml, functools.partial(of_link, link), gpu, note):
                counted[name].append(value)
                yield name, tags, value
    for name, values in counted.items():
        if links and len(values) == len(links):  # a sum over some of them would be wrong
            yield f"{name}_sum", {}, sum(values)


def _fields(links: Sequence[int], nvml: Any, gpu: Any) -> Iterator[tuple[tuple[int, int], int]]:
    """Yield the values of many fields from one call, by field and link."""
    wanted = [(nvml.NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION, 0)]
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
            yield (field, scope), found.value.ullVal


def _as_declared(name: str, value: float) -> float:
    if _KINDS[name] is float:
        return float(value)
    return int(value) if value < 2**63 else Uint(value)


def _utilisation(nvml: Any, gpu: Any) -> _Values:
    rates = nvml.nvmlDeviceGetUtilizationRates(gpu)
    yield "nv_util", rates.gpu
    yield "nv_mem_util", rates.memory


def _encoder(nvml: Any, gpu: Any) -> _Values:
    yield "nv_encoder_util", nvml.nvmlDeviceGetEncoderUtilization(gpu)[0]


def _decoder(nvml: Any, gpu: Any) -> _Values:
    yield "nv_decoder_util", nvml.nvmlDeviceGetDecoderUtilization(gpu)[0]


def _memory(nvml: Any, gpu: Any) -> _Values:
    try:
        # Version 2 counts the driver's own memory as reserved, not as used.
        memory = nvml.nvmlDeviceGetMemoryInfo(gpu, version=nvml.nvmlMemory_v2)
        yield "nv_fb_mem_reserved", memory.reserved / _MBYTE
    except nvml.NVMLError as error:
        if error.value in codes(nvml, FATAL):
            raise
        memory = nvml.nvmlDeviceGetMemoryInfo(gpu)
    yield "nv_fb_mem_total", memory.total / _MBYTE
    yield "nv_fb_mem_used", memory.used / _MBYTE


def _bar1(nvml: Any, gpu: Any) -> _Values:
    memory = nvml.nvmlDeviceGetBAR1MemoryInfo(gpu)
    yield "nv_bar1_mem_total", memory.bar1Total / _MBYTE
    yield "nv_bar1_mem_used", memory.bar1Used / _MBYTE


def _temperature(nvml: Any, gpu: Any) -> _Values:
    yield "nv_temp", nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU)


def _fan(nvml: Any, gpu: Any) -> _Values:
    yield "nv_fan", nvml.nvmlDeviceGetFanSpeed(gpu)


def _power(nvml: Any, gpu: Any) -> _Values:
    yield "nv_power_usage", nvml.nvmlDeviceGetPowerUsage(gpu) / 1000


def _power_limit(nvml: Any, gpu: Any) -> _Values:
    yield "nv_power_max_limit", nvml.nvmlDeviceGetPowerManagementLimit(gpu) / 1000


def _clock(name: str, domain: str, which: str) -> Callable[[Any, Any], _Values]:
    def clock(nvml: Any, gpu: Any) -> _Values:
        read = nvml.nvmlDeviceGetMaxClockInfo if which else nvml.nvmlDeviceGetClockInfo
        yield f"nv_{which}{name}_clock", read(gpu, getattr(nvml, f"NVML_CLOCK_{domain}"))

    return clock


def _perf_state(nvml: Any, gpu: Any) -> _Values:
    state = nvml.nvmlDeviceGetPerformanceState(gpu)
    if state != nvml.NVML_PSTATE_UNKNOWN:
        yield "nv_perf_state", state


def _ecc_mode(nvml: Any, gpu: Any) -> _Values:
    yield "nv_ecc_mode", nvml.nvmlDeviceGetEccMode(gpu)[0]


def _ecc_errors(name: str, kind: str, counter: str) -> Callable[[Any, Any], _Values]:
    def ecc_errors(nvml: Any, gpu: Any) -> _Values:
        which = getattr(nvml, f"NVML_MEMORY_ERROR_TYPE_{kind}")
        yield (
            name,
            nvml.nvmlDeviceGetTotalEccErrors(gpu, which, getattr(nvml, f"NVML_{counter}_ECC")),
        )

    return ecc_errors


def _throttle_reasons(nvml: Any, gpu: Any) -> _Values:
    yield "nv_throttle_reasons", nvml.nvmlDeviceGetCurrentClocksThrottleReasons(gpu)


def _remapped_rows(nvml: Any, gpu: Any) -> _Values:
    for name, value in zip(
        ("corrected", "uncorrected", "pending", "failure"),
        nvml.nvmlDeviceGetRemappedRows(gpu),
        strict=True,
    ):
        yield f"nv_remapped_rows_{name}", value


def _compute_processes(nvml: Any, gpu: Any) -> _Values:
    yield "nv_compute_processes", len(nvml.nvmlDeviceGetComputeRunningProcesses(gpu))


def _graphics_processes(nvml: Any, gpu: Any) -> _Values:
    yield "nv_graphics_processes", len(nvml.nvmlDeviceGetGraphicsRunningProcesses(gpu))


def _mps_processes(nvml: Any, gpu: Any) -> _Values:
    yield "nv_mps_compute_processes", len(nvml.nvmlDeviceGetMPSComputeRunningProcesses(gpu))


def _violation(name: str, policy: str) -> Callable[[Any, Any], _Values]:
    def violation(nvml: Any, gpu: Any) -> _Values:
        status = nvml.nvmlDeviceGetViolationStatus(gpu, getattr(nvml, f"NVML_PERF_POLICY_{policy}"))
        yield name, status.violationTime / 1e9

    return violation


def _nvlink_error(name: str) -> Callable[[int, Any, Any], _Values]:
    counter, _ = _NVLINK_ERRORS[name]

    def errors(link: int, nvml: Any, gpu: Any) -> _Values:
        which = getattr(nvml, f"NVML_NVLINK_ERROR_DL_{counter}")
        yield name, nvml.nvmlDeviceGetNvLinkErrorCounter(gpu, link, which)

    errors.__name__ = name
    return errors


def _active_links(nvml: Any, gpu: Any, note: Note) -> Iterator[int]:
    for link in range(nvml.NVML_NVLINK_MAX_LINKS):
        try:
            if nvml.nvmlDeviceGetNvLinkState(gpu, link):
                yield link
        except nvml.NVMLError as error:
            if error.value in codes(nvml, FATAL):
                raise
            if error.value in codes(nvml, UNSUPPORTED):
                return  # the GPU has no such link, nor any after it
            note(f"link {link}: {error}")


def parts(nvml: Any, gpu: Any, note: Note = lambda _: None) -> Iterator[Any]:
    def count(nvml: Any, gpu: Any) -> _Values:
        current, _ = nvml.nvmlDeviceGetMigMode(gpu)
        yield "", nvml.nvmlDeviceGetMaxMigDeviceCount(gpu) if current else 0

    def part(index: int, nvml: Any, gpu: Any) -> Iterator[tuple[str, Any]]:
        yield "", nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, index)

    for _, number in supported(nvml, count, gpu, note):
        for index in range(int(number)):
            for _, found in supported(nvml, functools.partial(part, index), gpu, note):
                yield found


_READINGS = (
    _utilisation, _encoder, _decoder, _memory, _bar1, _temperature, _fan, _power,
    *(_clock(name, domain, "") for name, domain in _CLOCKS.items()),
    _perf_state, _throttle_reasons, _compute_processes, _graphics_processes, _mps_processes,
)  # fmt: skip
_SLOW_READINGS = (
    _power_limit, *(_clock(name, domain, "max_") for name, domain in _CLOCKS.items()),
    _ecc_mode, *(_ecc_errors(name, *which) for name, which in _ECC_ERRORS.items()),
    _remapped_rows,
)  # fmt: skip
_READINGS_OF_PARTS = (_memory, _bar1, _compute_processes)

STATE = (
    _utilisation, _memory, _temperature, _fan, _power, _power_limit, _perf_state,
    _clock("sm", "SM", ""), _clock("mem", "MEM", ""),
)  # fmt: skip
"""Readings of a GPU's state, for ``supported``, by the metrics' names."""

LIMITS = (_memory, _power_limit, _clock("sm", "SM", "max_"), _clock("mem", "MEM", "max_"))
"""Readings of a GPU's limits, likewise."""
