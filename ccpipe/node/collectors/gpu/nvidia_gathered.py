"""Mean utilisation (GPM) and critical errors (Xid), gathered by NVIDIA's driver between samples.

GPM is available from Hopper on, also for MIG instances. Each mean covers the time between two
samples of the driver's counters, so a GPU's first sample has none. A GPU instance with several
compute instances is omitted: the driver counts them together. Xid errors are received while NVML is
in use.

Sources: NVML API reference, *GPM Functions*, *Event Handling Methods*; *XID Errors*.
"""

import ctypes
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from ccpipe.node.linux.nvml import Note, supported
from ccpipe.node.sampling.collector import Metric

_GPU = ("accelerator",)
_BY_NAME = {
    "nv_sm_util": ("SM_UTIL", "time multiprocessors were busy, averaged over all of them"),
    "nv_sm_occupancy": ("SM_OCCUPANCY", "warps on multiprocessors, of the maximum"),
    "nv_tensor_util": ("ANY_TENSOR_UTIL", "use of the tensor cores, of the maximum"),
    "nv_dram_util": ("DRAM_BW_UTIL", "use of the memory bandwidth, of the maximum"),
}
_OF_PARTS = {"nv_util": "GRAPHICS_UTIL"}  # in addition; GPUs report it without GPM

METRICS = (
    *(
        Metric(name, "percent", float, meaning, _GPU, part="mig")
        for name, (_, meaning) in _BY_NAME.items()
    ),
    Metric("nv_xid_errors", "", int, "critical errors (Xid) since the publisher started", _GPU),
    Metric(
        "nv_last_xid", "", int, "number of the last critical error (Xid), if there was one", _GPU
    ),
)

_MAX_EVENTS = 1000  # read in one sample

Key = tuple[str, int | None]  # a GPU's address, and the number of a GPU instance


class Gpm:
    """The last samples of GPUs and instances."""

    def __init__(self) -> None:
        self._samples: dict[Key, Any] = {}
        self._unused: list[Any] = []  # samples to be overwritten, of whatever GPU
        self._has_gpm: dict[str, bool] = {}

    def free(self, nvml: Any) -> None:
        """Free all samples, as the library must before it is shut down."""
        for sample in (*self._samples.values(), *self._unused):
            nvml.nvmlGpmSampleFree(sample)
        self._samples.clear()
        self._unused.clear()
        self._has_gpm.clear()

    def gpu(self, nvml: Any, gpu: Any, address: str, note: Note) -> Iterator[tuple[str, float]]:
        if self._is_supported(nvml, gpu, address, note):
            yield from self._means(nvml, gpu, (address, None), note)

    def instances(
        self, nvml: Any, gpu: Any, address: str, parts: Sequence[Any], note: Note
    ) -> Iterator[tuple[Any, str, float]]:
        if not parts or not self._is_supported(nvml, gpu, address, note):
            return
        numbers = {}
        for index, part in enumerate(parts):
            for number in supported(nvml, _instance, part, note):
                numbers[index] = number
        shared = Counter(numbers.values())
        for index, number in numbers.items():
            if shared[number] == 1:
                for name, value in self._means(nvml, gpu, (address, number), note):
                    yield parts[index], name, value

    def _is_supported(self, nvml: Any, gpu: Any, address: str, note: Note) -> bool:
        if address not in self._has_gpm:
            self._has_gpm[address] = any(supported(nvml, _support, gpu, note))
        return self._has_gpm[address]

    def _means(self, nvml: Any, gpu: Any, key: Key, note: Note) -> Iterator[tuple[str, float]]:
        def take(nvml: Any, gpu: Any) -> Iterator[tuple[str, float]]:
            _, instance = key
            sample = self._unused.pop() if self._unused else nvml.nvmlGpmSampleAlloc()
            try:
                if instance is None:
                    nvml.nvmlGpmSampleGet(gpu, sample)
                else:
                    nvml.nvmlGpmMigSampleGet(gpu, instance, sample)
            except nvml.NVMLError:
                self._unused.append(sample)
                raise
            before = self._samples.pop(key, None)
            self._samples[key] = sample
            if before is not None:
                try:
                    yield from _between(nvml, before, sample, is_part=instance is not None)
                finally:
                    self._unused.append(before)

        return supported(nvml, take, gpu, note)


def _support(nvml: Any, gpu: Any) -> Iterator[bool]:
    yield bool(nvml.nvmlGpmQueryDeviceSupport(gpu).isSupportedDevice)


def _instance(nvml: Any, part: Any) -> Iterator[int]:
    yield nvml.nvmlDeviceGetGpuInstanceId(part)


def _between(nvml: Any, before: Any, now: Any, *, is_part: bool) -> Iterator[tuple[str, float]]:
    """Yield the means between two samples; metrics that the GPU lacks are omitted."""
    wanted = {name: which for name, (which, _) in _BY_NAME.items()} | (_OF_PARTS if is_part else {})
    request = nvml.c_nvmlGpmMetricsGet_t()
    request.version = nvml.NVML_GPM_METRICS_GET_VERSION
    request.numMetrics = len(wanted)
    request.sample1, request.sample2 = before, now
    for index, which in enumerate(wanted.values()):
        request.metrics[index].metricId = getattr(nvml, f"NVML_GPM_METRIC_{which}")
    nvml.nvmlGpmMetricsGet(request)
    for index, name in enumerate(wanted):
        found = request.metrics[index]
        if found.nvmlReturn == nvml.NVML_SUCCESS and math.isfinite(found.value):
            yield name, found.value


class XidErrors:
    """The errors of each GPU so far, which one set of events receives."""

    def __init__(self) -> None:
        self._events: Any = None
        self._addresses: dict[int, str | None] = {}  # by handle; None if it reports no errors
        self._known: dict[str, tuple[int, int]] = {}  # how many, and the last one, by address

    def free(self, nvml: Any) -> None:
        """Stop waiting for errors, as must be done before the library is shut down."""
        self._addresses.clear()
        events, self._events = self._events, None
        if events is not None:
            nvml.nvmlEventSetFree(events)

    def poll(self, nvml: Any) -> None:
        """Count the errors of all GPUs since the last call; raises NVMLError."""
        if self._events is not None:
            for gpu, number in _events(nvml, self._events):
                address = self._addresses.get(_pointer(gpu))
                if address is not None:
                    self._known[address] = self._known.get(address, (0, 0))[0] + 1, number

    def read(self, nvml: Any, gpu: Any, address: str, note: Note) -> Iterator[tuple[str, float]]:
        def xid(nvml: Any, gpu: Any) -> Iterator[tuple[str, float]]:
            pointer = _pointer(gpu)
            if pointer not in self._addresses:
                self._addresses[pointer] = None  # not tried again if it fails
                if self._events is None:
                    self._events = nvml.nvmlEventSetCreate()
                nvml.nvmlDeviceRegisterEvents(gpu, nvml.nvmlEventTypeXidCriticalError, self._events)
                self._addresses[pointer] = address
            if self._addresses[pointer] is not None:
                count, last = self._known.get(address, (0, 0))
                yield "nv_xid_errors", count
                if count:
                    yield "nv_last_xid", last

        return supported(nvml, xid, gpu, note)


def _pointer(gpu: Any) -> int:
    """Return the address in a handle: two handles of a GPU are not the same object."""
    return ctypes.cast(gpu, ctypes.c_void_p).value or 0


def _events(nvml: Any, events: Any) -> Iterator[tuple[Any, int]]:
    for _ in range(_MAX_EVENTS):
        try:
            event = nvml.nvmlEventSetWait_v2(events, 0)
        except nvml.NVMLError as error:
            if error.value != nvml.NVML_ERROR_TIMEOUT:
                raise
            return  # no more
        yield event.device, int(event.eventData)
