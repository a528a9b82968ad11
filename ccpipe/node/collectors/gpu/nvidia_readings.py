"""Readings of one GPU through NVML: each yields values by the names of their metrics."""

import functools
from collections.abc import Callable, Iterator
from typing import Any

from ccpipe.node.linux.nvml import FATAL, UNSUPPORTED, Note, codes, supported

Values = Iterator[tuple[str, float]]
Reading = Callable[[Any, Any], Values]
"""Called with the library and a GPU's handle; for ``supported``."""

_MBYTE = 2**20
_CLOCKS = {"graphics": "GRAPHICS", "sm": "SM", "mem": "MEM", "video": "VIDEO"}
_ECC_ERRORS = {
    "nv_ecc_uncorrected_error": ("UNCORRECTED", "AGGREGATE"),
    "nv_ecc_corrected_error": ("CORRECTED", "AGGREGATE"),
    "nv_ecc_volatile_uncorrected_error": ("UNCORRECTED", "VOLATILE"),
    "nv_ecc_volatile_corrected_error": ("CORRECTED", "VOLATILE"),
}


def _utilisation(nvml: Any, gpu: Any) -> Values:
    rates = nvml.nvmlDeviceGetUtilizationRates(gpu)
    yield "nv_util", rates.gpu
    yield "nv_mem_util", rates.memory


def _encoder(nvml: Any, gpu: Any) -> Values:
    yield "nv_encoder_util", nvml.nvmlDeviceGetEncoderUtilization(gpu)[0]


def _decoder(nvml: Any, gpu: Any) -> Values:
    yield "nv_decoder_util", nvml.nvmlDeviceGetDecoderUtilization(gpu)[0]


def _memory(nvml: Any, gpu: Any) -> Values:
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


def _bar1(nvml: Any, gpu: Any) -> Values:
    memory = nvml.nvmlDeviceGetBAR1MemoryInfo(gpu)
    yield "nv_bar1_mem_total", memory.bar1Total / _MBYTE
    yield "nv_bar1_mem_used", memory.bar1Used / _MBYTE


def _temperature(nvml: Any, gpu: Any) -> Values:
    yield "nv_temp", nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU)


def _fan(nvml: Any, gpu: Any) -> Values:
    yield "nv_fan", nvml.nvmlDeviceGetFanSpeed(gpu)


def power(nvml: Any, gpu: Any) -> Values:
    yield "nv_power_usage", nvml.nvmlDeviceGetPowerUsage(gpu) / 1000


def _power_limit(nvml: Any, gpu: Any) -> Values:
    yield "nv_power_max_limit", nvml.nvmlDeviceGetPowerManagementLimit(gpu) / 1000


def _clock(name: str, domain: str, which: str) -> Callable[[Any, Any], Values]:
    def clock(nvml: Any, gpu: Any) -> Values:
        read = nvml.nvmlDeviceGetMaxClockInfo if which else nvml.nvmlDeviceGetClockInfo
        yield f"nv_{which}{name}_clock", read(gpu, getattr(nvml, f"NVML_CLOCK_{domain}"))

    return clock


def _perf_state(nvml: Any, gpu: Any) -> Values:
    state = nvml.nvmlDeviceGetPerformanceState(gpu)
    if state != nvml.NVML_PSTATE_UNKNOWN:
        yield "nv_perf_state", state


def _ecc_mode(nvml: Any, gpu: Any) -> Values:
    yield "nv_ecc_mode", nvml.nvmlDeviceGetEccMode(gpu)[0]


def _ecc_errors(name: str, kind: str, counter: str) -> Callable[[Any, Any], Values]:
    def ecc_errors(nvml: Any, gpu: Any) -> Values:
        which = getattr(nvml, f"NVML_MEMORY_ERROR_TYPE_{kind}")
        yield (
            name,
            nvml.nvmlDeviceGetTotalEccErrors(gpu, which, getattr(nvml, f"NVML_{counter}_ECC")),
        )

    return ecc_errors


def _throttle_reasons(nvml: Any, gpu: Any) -> Values:
    yield "nv_throttle_reasons", nvml.nvmlDeviceGetCurrentClocksThrottleReasons(gpu)


def _remapped_rows(nvml: Any, gpu: Any) -> Values:
    for name, value in zip(
        ("corrected", "uncorrected", "pending", "failure"),
        nvml.nvmlDeviceGetRemappedRows(gpu),
        strict=True,
    ):
        yield f"nv_remapped_rows_{name}", value


def _compute_processes(nvml: Any, gpu: Any) -> Values:
    yield "nv_compute_processes", len(nvml.nvmlDeviceGetComputeRunningProcesses(gpu))


def _graphics_processes(nvml: Any, gpu: Any) -> Values:
    yield "nv_graphics_processes", len(nvml.nvmlDeviceGetGraphicsRunningProcesses(gpu))


def _mps_processes(nvml: Any, gpu: Any) -> Values:
    yield "nv_mps_compute_processes", len(nvml.nvmlDeviceGetMPSComputeRunningProcesses(gpu))


def violation(name: str, policy: str) -> Reading:
    def violation(nvml: Any, gpu: Any) -> Values:
        status = nvml.nvmlDeviceGetViolationStatus(gpu, getattr(nvml, f"NVML_PERF_POLICY_{policy}"))
        yield name, status.violationTime / 1e9

    return violation


def nvlink_error(name: str, counter: str) -> Callable[[int, Any, Any], Values]:
    def errors(link: int, nvml: Any, gpu: Any) -> Values:
        which = getattr(nvml, f"NVML_NVLINK_ERROR_DL_{counter}")
        yield name, nvml.nvmlDeviceGetNvLinkErrorCounter(gpu, link, which)

    errors.__name__ = name
    return errors


def active_links(nvml: Any, gpu: Any, note: Note) -> Iterator[int]:
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
    def count(nvml: Any, gpu: Any) -> Values:
        current, _ = nvml.nvmlDeviceGetMigMode(gpu)
        yield "", nvml.nvmlDeviceGetMaxMigDeviceCount(gpu) if current else 0

    def part(index: int, nvml: Any, gpu: Any) -> Iterator[tuple[str, Any]]:
        yield "", nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, index)

    for _, number in supported(nvml, count, gpu, note):
        for index in range(int(number)):
            for _, found in supported(nvml, functools.partial(part, index), gpu, note):
                yield found


READINGS = (
    _utilisation, _memory, _temperature, _clock("graphics", "GRAPHICS", ""), _clock("sm", "SM", ""),
    _throttle_reasons,
)  # fmt: skip
VIDEO = (_encoder, _decoder)
PROCESSES = (_compute_processes, _graphics_processes, _mps_processes)
SLOW_READINGS = (
    _bar1, _fan, _perf_state, _power_limit, _clock("mem", "MEM", ""), _clock("video", "VIDEO", ""),
    *(_clock(name, domain, "max_") for name, domain in _CLOCKS.items()),
    _ecc_mode, *(_ecc_errors(name, *which) for name, which in _ECC_ERRORS.items()),
    _remapped_rows,
)  # fmt: skip
READINGS_OF_PARTS = (_memory, _bar1, _compute_processes)

STATE = (
    _utilisation, _memory, _temperature, _fan, power, _power_limit, _perf_state,
    _clock("sm", "SM", ""), _clock("mem", "MEM", ""),
)  # fmt: skip
"""Readings of a GPU's state, for ``supported``, by the metrics' names."""

LIMITS = (_memory, _power_limit, _clock("sm", "SM", "max_"), _clock("mem", "MEM", "max_"))
"""Readings of a GPU's limits, likewise."""
