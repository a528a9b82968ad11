"""What NVIDIA's driver gathers for us between two samples: means of use, and critical errors.

Means (GPM) are known of cards from Hopper on, also of the instances of MIG. Each is of the time
between two samples that the driver takes of its counters, so the first sample of a card has none.
A GPU instance that holds several compute instances is left out: the driver counts for all of them
together. Critical errors (Xid) arrive while NVML is in use.

Sources: NVML API reference, *GPM Functions*, *Event Handling Methods*; *XID Errors*.
"""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from ccpipe.node.linux.nvml import Note, supported
from ccpipe.node.sampling.collector import Metric

_CARD = ("accelerator",)
_BY_NAME = {
    "nv_sm_util": ("SM_UTIL", "time multiprocessors were busy, averaged over all of them"),
    "nv_sm_occupancy": ("SM_OCCUPANCY", "warps on multiprocessors, of the maximum"),
    "nv_tensor_util": ("ANY_TENSOR_UTIL", "use of the tensor cores, of the maximum"),
    "nv_dram_util": ("DRAM_BW_UTIL", "use of the memory bandwidth, of the maximum"),
}
_OF_PARTS = {"nv_util": "GRAPHICS_UTIL"}  # in addition, what cards report without GPM

METRICS = (
    *(
        Metric(name, "percent", float, meaning, _CARD, part="mig")
        for name, (_, meaning) in _BY_NAME.items()
    ),
    Metric("nv_xid_errors", "", int, "critical errors (Xid) since the publisher started", _CARD),
    Metric("nv_last_xid", "", int, "number of the last one, if there was one", _CARD),
)

_MAX_EVENTS = 1000  # read in one sample

Key = tuple[str, int | None]  # a card's address, and the number of a GPU instance


class Gpm:
    """The last samples of cards and instances."""

    def __init__(self) -> None:
        self._samples: dict[Key, Any] = {}
        self._has_gpm: dict[str, bool] = {}

    def free(self, nvml: Any) -> None:
        """Free all samples, as the library must before it is shut down."""
        for sample in self._samples.values():
            nvml.nvmlGpmSampleFree(sample)
        self._samples.clear()
        self._has_gpm.clear()

    def card(self, nvml: Any, card: Any, address: str, note: Note) -> Iterator[tuple[str, float]]:
        if self._is_supported(nvml, card, address, note):
            yield from self._means(nvml, card, (address, None), note)

    def instances(
        self, nvml: Any, card: Any, address: str, parts: Sequence[Any], note: Note
    ) -> Iterator[tuple[Any, str, float]]:
        if not parts or not self._is_supported(nvml, card, address, note):
            return
        numbers = {}
        for index, part in enumerate(parts):
            for number in supported(nvml, _instance, part, note):
                numbers[index] = number
        shared = Counter(numbers.values())
        for index, number in numbers.items():
            if shared[number] == 1:
                for name, value in self._means(nvml, card, (address, number), note):
                    yield parts[index], name, value

    def _is_supported(self, nvml: Any, card: Any, address: str, note: Note) -> bool:
        if address not in self._has_gpm:
            self._has_gpm[address] = any(supported(nvml, _support, card, note))
        return self._has_gpm[address]

    def _means(self, nvml: Any, card: Any, key: Key, note: Note) -> Iterator[tuple[str, float]]:
        def take(nvml: Any, card: Any) -> Iterator[tuple[str, float]]:
            _, instance = key
            sample = nvml.nvmlGpmSampleAlloc()
            try:
                if instance is None:
                    nvml.nvmlGpmSampleGet(card, sample)
                else:
                    nvml.nvmlGpmMigSampleGet(card, instance, sample)
            except nvml.NVMLError:
                nvml.nvmlGpmSampleFree(sample)
                raise
            before = self._samples.pop(key, None)
            self._samples[key] = sample
            if before is not None:
                try:
                    yield from _between(nvml, before, sample, is_part=instance is not None)
                finally:
                    nvml.nvmlGpmSampleFree(before)

        return supported(nvml, take, card, note)


def _support(nvml: Any, card: Any) -> Iterator[bool]:
    yield bool(nvml.nvmlGpmQueryDeviceSupport(card).isSupportedDevice)


def _instance(nvml: Any, part: Any) -> Iterator[int]:
    yield nvml.nvmlDeviceGetGpuInstanceId(part)


def _between(nvml: Any, before: Any, now: Any, *, is_part: bool) -> Iterator[tuple[str, float]]:
    """Yield the means between two samples; those that the card does not have are left out."""
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
    """The errors of each card so far."""

    def __init__(self) -> None:
        self._sets: dict[str, Any] = {}  # None of cards that report no errors
        self._known: dict[str, tuple[int, int]] = {}  # how many, and the last one

    def free(self, nvml: Any) -> None:
        """Stop waiting for errors, as must be done before the library is shut down."""
        for events in filter(None, self._sets.values()):
            nvml.nvmlEventSetFree(events)
        self._sets.clear()

    def read(self, nvml: Any, card: Any, address: str, note: Note) -> Iterator[tuple[str, float]]:
        def xid(nvml: Any, card: Any) -> Iterator[tuple[str, float]]:
            if address not in self._sets:
                self._sets[address] = None  # if it fails, the card is not asked again
                self._sets[address] = _registered(nvml, card)
            if self._sets[address] is None:
                return
            count, last = self._known.get(address, (0, 0))
            for number in _events(nvml, self._sets[address]):
                count, last = count + 1, number
                self._known[address] = count, last
            yield "nv_xid_errors", count
            if count:
                yield "nv_last_xid", last

        return supported(nvml, xid, card, note)


def _registered(nvml: Any, card: Any) -> Any:
    events = nvml.nvmlEventSetCreate()
    try:
        nvml.nvmlDeviceRegisterEvents(card, nvml.nvmlEventTypeXidCriticalError, events)
    except nvml.NVMLError:
        nvml.nvmlEventSetFree(events)
        raise
    return events


def _events(nvml: Any, events: Any) -> Iterator[int]:
    for _ in range(_MAX_EVENTS):
        try:
            yield int(nvml.nvmlEventSetWait_v2(events, 0).eventData)
        except nvml.NVMLError as error:
            if error.value != nvml.NVML_ERROR_TIMEOUT:
                raise
            return  # no more
