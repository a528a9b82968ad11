"""A library NVML made of Python: what ``libnvidia-ml.so.1`` would answer, by a scenario.

The real ``pynvml`` runs on it, as on the real library: it asks for a function by name, calls it
with references to where the answers go, and reads the code that is returned.
"""

import ctypes
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pynvml
import pytest

OK = 0
UNINITIALIZED = 1
NOT_SUPPORTED = 3
NO_PERMISSION = 4
NOT_FOUND = 6
INSUFFICIENT_SIZE = 7
DRIVER_NOT_LOADED = 9
TIMEOUT = 10
GPU_IS_LOST = 15
RESET_REQUIRED = 16
UNKNOWN = 999


@dataclass
class Fails:
    """An answer that is an error code."""

    code: int


@dataclass
class FakeGpu:
    """One GPU, or a part of one."""

    address: str
    uuid: str
    answers: dict[Any, Any] = field(default_factory=dict)
    """By name of function without ``nvmlDevice``, or by a tuple of it and what it is asked with.

    A number, a text, a tuple of numbers, a dict of a structure's fields, a list of processes (ids,
    or tuples of an id and bytes), or ``Fails``; what is not here is not supported.
    ``GetProcessUtilization`` has tuples of an id, a moment and a percentage.
    """
    parts: list["FakeGpu | None"] = field(default_factory=list)
    """The MIG instances of the GPU; None is an empty place."""
    is_lost: bool = False


_POWER_FIELDS = (pynvml.NVML_FI_DEV_POWER_AVERAGE, pynvml.NVML_FI_DEV_POWER_INSTANT)

FIRST, SECOND = "00000000:01:00.0", "00000000:C1:00.0"
GIBIBYTE = 2**30

FULL: dict[Any, Any] = {
    "GetUtilizationRates": {"gpu": 97, "memory": 40},
    "GetEncoderUtilization": (5, 1000),
    "GetDecoderUtilization": (6, 1000),
    "GetMemoryInfo_v2": {
        "total": 80 * GIBIBYTE,
        "used": 20 * GIBIBYTE,
        "reserved": GIBIBYTE // 2,
        "free": 1,
    },
    "GetBAR1MemoryInfo": {"bar1Total": 128 * GIBIBYTE, "bar1Used": 2**20, "bar1Free": 1},
    "GetTemperature": 45,
    "GetFanSpeed": 30,
    "GetPowerUsage": 300_600,
    "GetPowerManagementLimit": 700_000,
    "GetTotalEnergyConsumption": 1_000_000,
    ("GetClockInfo", pynvml.NVML_CLOCK_GRAPHICS): 1980,
    ("GetClockInfo", pynvml.NVML_CLOCK_SM): 1981,
    ("GetClockInfo", pynvml.NVML_CLOCK_MEM): 2619,
    ("GetClockInfo", pynvml.NVML_CLOCK_VIDEO): 1545,
    ("GetMaxClockInfo", pynvml.NVML_CLOCK_GRAPHICS): 2980,
    ("GetMaxClockInfo", pynvml.NVML_CLOCK_SM): 2981,
    ("GetMaxClockInfo", pynvml.NVML_CLOCK_MEM): 3619,
    ("GetMaxClockInfo", pynvml.NVML_CLOCK_VIDEO): 2545,
    "GetPerformanceState": 0,
    "GetEccMode": (1, 0),
    ("GetTotalEccErrors", 0, 1): 2**63 + 5,
    ("GetTotalEccErrors", 1, 1): 3,
    ("GetTotalEccErrors", 0, 0): 1,
    ("GetTotalEccErrors", 1, 0): 0,
    "GetCurrentClocksThrottleReasons": 0x4,
    "GetRemappedRows": (1, 2, 0, 1),
    "GetComputeRunningProcesses_v3": [4711, 4712],
    "GetGraphicsRunningProcesses_v3": [],
    "GetMPSComputeRunningProcesses_v3": [4713],
    "GetViolationStatus": {"referenceTime": 1, "violationTime": 2_500_000_000},
    ("GetNvLinkState", 0): 1,
    ("GetNvLinkState", 1): 0,
    ("GetNvLinkState", 2): 1,
    **{("GetNvLinkErrorCounter", 0, counter): counter for counter in range(5)},
    **{("GetNvLinkErrorCounter", 2, counter): 10 for counter in range(5)},
    ("Field", pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX, 0): 7,
    ("Field", pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, 0): 2**40,
    "GetMigMode": (0, 0),
}


def full_gpu(address: str = FIRST, **changes: Any) -> FakeGpu:
    return FakeGpu(address, f"GPU-{address}", {**FULL, **changes})


class Library:
    """The library; ``gpus`` may change between two calls, as GPUs do."""

    def __init__(self, gpus: list[FakeGpu], missing: set[str] | None = None) -> None:
        """Have these GPUs, and lack the functions `missing`, as an old library does."""
        self.gpus = gpus
        self.driver = "550.54.15"
        self.begun = 0
        self.ended = 0
        self.samples: dict[int, tuple[int, ...]] = {}
        """Samples of GPM that are not freed."""
        self.sets: dict[int, list[FakeGpu]] = {}
        """Sets of events that are not freed, and whose errors arrive there."""
        self.made = 0
        self.calls = 0
        """Functions called, but for those that begin and end."""
        self.init: int = OK
        self.count: int = OK
        self.missing: set[str] = missing or set()

    def __getattr__(self, name: str) -> Callable[..., int]:
        """Return a function of the library; AttributeError is ctypes' error for a missing one."""
        if not name.startswith("nvml") or name in self.missing:
            raise AttributeError(name)

        def function(*args: Any) -> int:
            self.calls += 1
            if name in _SPECIAL:
                return _SPECIAL[name](self, *args)
            return self._answer(name.removeprefix("nvmlDevice"), *args)

        return function

    def begin(self, flags: int) -> int:
        self.begun += 1
        return self.init

    def end(self) -> int:
        self.ended += 1
        return OK

    def tell_count(self, count: Any) -> int:
        count._obj.value = len(self.gpus)
        return self.count

    def find(self, index: Any, handle: Any) -> int:
        return _point(handle, id(self.gpus[index.value]))

    def tell_address(self, handle: Any, info: Any) -> int:
        info._obj.busId = self._gpu(handle).address.encode()
        return GPU_IS_LOST if self._gpu(handle).is_lost else OK

    def tell_uuid(self, handle: Any, buffer: Any, size: Any) -> int:
        buffer.value = self._gpu(handle).uuid.encode()
        return OK

    def tell_driver(self, buffer: Any, size: Any) -> int:
        buffer.value = self.driver.encode()
        return OK

    def tell_use(self, handle: Any, array: Any, count: Any, since: Any) -> int:
        answer = self._gpu(handle).answers.get("GetProcessUtilization", Fails(NOT_SUPPORTED))
        if isinstance(answer, Fails):
            return answer.code
        samples = [sample for sample in answer if sample[1] > since.value]
        count._obj.value = len(samples)
        if array is None:
            return INSUFFICIENT_SIZE if samples else NOT_FOUND
        for place, (pid, timestamp, percent) in zip(array, samples, strict=True):
            place.pid, place.timeStamp, place.smUtil = pid, timestamp, percent
        return OK

    def tell_fields(self, handle: Any, count: Any, fields: Any) -> int:
        for asked in fields._obj:
            answer = self._gpu(handle).answers.get(("Field", asked.fieldId, asked.scopeId))
            asked.nvmlReturn = NOT_SUPPORTED if answer is None else OK
            if isinstance(answer, Fails):
                asked.nvmlReturn, answer = answer.code, 0
            is_power = asked.fieldId in _POWER_FIELDS
            asked.valueType = (
                pynvml.NVML_VALUE_TYPE_UNSIGNED_INT
                if is_power
                else pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG
            )
            asked.value.ullVal = 2**64 - 1  # what the driver does not set is undefined
            setattr(asked.value, "uiVal" if is_power else "ullVal", answer or 0)
        return OK

    def tell_support(self, handle: Any, support: Any) -> int:
        support._obj.isSupportedDevice = self._gpu(handle).answers.get("Gpm", 0)
        return OK

    def make_sample(self, sample: Any) -> int:
        self.made += 1
        self.samples[self.made] = (0, -1)
        return _point(sample, self.made)

    def free_sample(self, sample: Any) -> int:
        del self.samples[_number(sample)]
        return OK

    def take_sample(self, handle: Any, *which: Any) -> int:
        *instance, sample = which
        answer = self._gpu(handle).answers.get("TakeSample", OK)
        if isinstance(answer, Fails):
            return answer.code
        self.samples[_number(sample)] = (id(self._gpu(handle)), *instance)
        return OK

    def compare_samples(self, request: Any) -> int:
        asked = request._obj
        gpu, *instance = self.samples[_number(asked.sample1)]
        assert [gpu, *instance] == list(self.samples[_number(asked.sample2)])
        answers = next(each for each in self.gpus if id(each) == gpu).answers
        for index in range(asked.numMetrics):
            found = asked.metrics[index]
            value = answers.get(("Gpm", *instance, found.metricId))
            found.nvmlReturn = NOT_SUPPORTED if value is None else OK
            found.value = value or 0.0
        return OK

    def make_set(self, events: Any) -> int:
        self.made += 1
        self.sets[self.made] = []
        return _point(events, self.made)

    def register(self, handle: Any, types: Any, events: Any) -> int:
        if "Xid" not in self._gpu(handle).answers:
            return NOT_SUPPORTED
        self.sets[_number(events)].append(self._gpu(handle))
        return OK

    def wait(self, events: Any, data: Any, milliseconds: Any) -> int:
        """Hand over the next error of one of the GPUs, of which ``Xid`` is a list."""
        for gpu in self.sets[_number(events)]:
            if gpu.answers["Xid"]:
                data._obj.device = ctypes.cast(ctypes.c_void_p(id(gpu)), type(data._obj.device))
                data._obj.eventData = gpu.answers["Xid"].pop(0)
                return OK
        return TIMEOUT

    def free_set(self, events: Any) -> int:
        del self.sets[_number(events)]
        return OK

    def set_power_limit(self, handle: Any, milliwatts: Any) -> int:
        """Set it, or fail; an answer for this function is a value that the GPU keeps instead."""
        gpu = self._gpu(handle)
        answer = gpu.answers.get("SetPowerManagementLimit", milliwatts.value)
        if isinstance(answer, Fails):
            return answer.code
        gpu.answers["GetPowerManagementLimit"] = answer
        return OK

    def tell_places(self, handle: Any, count: Any) -> int:
        count._obj.value = len(self._gpu(handle).parts)
        return OK

    def find_part(self, handle: Any, index: Any, part: Any) -> int:
        found = self._gpu(handle).parts[index.value]
        return NOT_FOUND if found is None else _point(part, id(found))

    def _gpu(self, handle: Any) -> FakeGpu:
        address = _number(handle)
        everything = [*self.gpus, *(part for gpu in self.gpus for part in gpu.parts)]
        return next(gpu for gpu in everything if gpu is not None and id(gpu) == address)

    def _answer(self, name: str, handle: Any, *args: Any) -> int:
        gpu = self._gpu(handle)
        if gpu.is_lost:
            return GPU_IS_LOST
        plain = [getattr(arg, "value", arg) for arg in args if not hasattr(arg, "_obj")]
        asked = [arg for arg in plain if isinstance(arg, int)]
        answer = gpu.answers.get((name, *asked), gpu.answers.get(name, Fails(NOT_SUPPORTED)))
        places = [arg._obj for arg in args if hasattr(arg, "_obj")]
        match answer:
            case Fails(code):
                return code
            case list():
                return _processes(answer, places[0], args[-1])
            case str():
                args[0].value = answer.encode()
            case dict():
                for key, value in answer.items():
                    setattr(places[0], key, value)
            case tuple():
                for place, value in zip(places, answer, strict=True):
                    place.value = value
            case _:
                places[0].value = answer
        return OK


def _processes(processes: list[Any], count: Any, array: Any) -> int:
    count.value = len(processes)
    if array is None and processes:
        return INSUFFICIENT_SIZE
    for i, process in enumerate(processes):
        pid, used = process if isinstance(process, tuple) else (process, 0)
        array[i].pid, array[i].usedGpuMemory = pid, used
    return OK


def install(
    monkeypatch: pytest.MonkeyPatch, root: Path, *gpus: FakeGpu, missing: set[str] | None = None
) -> Library:
    library = Library(list(gpus), missing)
    monkeypatch.setattr(pynvml, "nvmlLib", library)
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    driver = root / "proc/driver/nvidia/version"
    driver.parent.mkdir(parents=True, exist_ok=True)
    driver.write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module\n")
    return library


def _point(place: Any, to: int) -> int:
    pointer = ctypes.c_void_p(to)
    ctypes.memmove(ctypes.addressof(place._obj), ctypes.byref(pointer), 8)
    return OK


def _number(sample: Any) -> int:
    return ctypes.cast(sample, ctypes.c_void_p).value or 0


_SPECIAL: dict[str, Callable[..., int]] = {
    "nvmlInitWithFlags": Library.begin,
    "nvmlShutdown": Library.end,
    "nvmlDeviceGetCount_v2": Library.tell_count,
    "nvmlDeviceGetHandleByIndex_v2": Library.find,
    "nvmlDeviceGetPciInfo_v3": Library.tell_address,
    "nvmlDeviceGetUUID": Library.tell_uuid,
    "nvmlSystemGetDriverVersion": Library.tell_driver,
    "nvmlDeviceGetProcessUtilization": Library.tell_use,
    "nvmlDeviceGetFieldValues": Library.tell_fields,
    "nvmlEventSetCreate": Library.make_set,
    "nvmlEventSetFree": Library.free_set,
    "nvmlEventSetWait_v2": Library.wait,
    "nvmlDeviceRegisterEvents": Library.register,
    "nvmlGpmQueryDeviceSupport": Library.tell_support,
    "nvmlGpmSampleAlloc": Library.make_sample,
    "nvmlGpmSampleFree": Library.free_sample,
    "nvmlGpmSampleGet": Library.take_sample,
    "nvmlGpmMigSampleGet": Library.take_sample,
    "nvmlGpmMetricsGet": Library.compare_samples,
    "nvmlDeviceSetPowerManagementLimit": Library.set_power_limit,
    "nvmlDeviceGetMaxMigDeviceCount": Library.tell_places,
    "nvmlDeviceGetMigDeviceHandleByIndex": Library.find_part,
}
