"""The GPUs of the node, of every vendor, as Sonar reports them.

GPUs are numbered per vendor, so two GPUs may have the same number. Processes on a MIG instance are
counted for its GPU, as Sonar has no instances. AMD GPUs are named by their ``unique_id``, or by
node and address without one. For their processes the kernel reports memory, but no utilisation.
``memory_util`` is the share of the memory that is in use, as specified.

Source: Sonar JSON format output specification, *SampleGpu*, *SampleProcessGpu*, *SysinfoGpuCard*.
"""

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ccpipe.formats.sonar import UNSET, ExtendedUint, SampleGpu, SampleProcessGpu, SysinfoGpuCard
from ccpipe.node.collectors.gpu.amd_gpu import directories, load, sensors
from ccpipe.node.collectors.gpu.nvidia_readings import LIMITS, STATE, parts
from ccpipe.node.collectors.sonar.envelope import Errors, readable
from ccpipe.node.linux import proc
from ccpipe.node.linux.nvml import Driver, supported


class Gpus:
    """The GPUs of one node."""

    def __init__(self, *, node: str, root: str = "/") -> None:
        self._vendors = (NvidiaGpus(root=root), AmdGpus(node=node, root=root))

    def sample(self, errors: Errors) -> tuple[list[SampleGpu], dict[int, list[SampleProcessGpu]]]:
        gpus: list[SampleGpu] = []
        processes: dict[int, list[SampleProcessGpu]] = {}
        for vendor in self._vendors:
            found, uses = vendor.sample(errors)
            gpus += found
            for pid, own in uses.items():
                processes.setdefault(pid, []).extend(own)
        return gpus, processes

    def describe(self, errors: Errors) -> list[SysinfoGpuCard]:
        return [gpu for vendor in self._vendors for gpu in vendor.describe(errors)]


_MODES = ("Default", "Exclusive_Thread", "Prohibited", "Exclusive_Process")
_ARCHITECTURES = {
    2: "Kepler", 3: "Maxwell", 4: "Pascal", 5: "Volta", 6: "Turing", 7: "Ampere", 8: "Ada Lovelace",
    9: "Hopper", 10: "Blackwell", 13: "Rubin",
}  # fmt: skip
_LISTS = ("Compute", "Graphics")
_FAILING = 1  # "generic failure"


class NvidiaGpus:
    """The NVIDIA GPUs of one node."""

    def __init__(self, *, root: str = "/") -> None:
        self._driver = Driver(root)
        self._uuids: dict[int, str] = {}
        self._last_sample: dict[str, int] = {}  # microseconds of the driver's clock, by GPU

    def sample(self, errors: Errors) -> tuple[list[SampleGpu], dict[int, list[SampleProcessGpu]]]:
        """Return the use of GPUs by all and by process; a lost GPU is failing, by its last UUID."""
        gpus: list[SampleGpu] = []
        processes: dict[int, list[SampleProcessGpu]] = {}
        for nvml, index in self._indices(errors):
            try:
                handle = nvml.nvmlDeviceGetHandleByIndex(index)
                self._uuids[index] = uuid = nvml.nvmlDeviceGetUUID(handle)
                gpu, total = _nvidia_gpu(nvml, handle, index, uuid)
                for pid, use in self._uses(nvml, handle, gpu, total):
                    processes.setdefault(pid, []).append(use)
                gpus.append(gpu)
            except nvml.NVMLError as error:
                errors.note(f"NVIDIA GPU {index}: {error}")
                known = self._uuids.get(index, "")
                if known and known not in {gpu.uuid for gpu in gpus}:
                    gpus.append(SampleGpu(index=index, uuid=known, failing=_FAILING))
        return gpus, processes

    def describe(self, errors: Errors) -> list[SysinfoGpuCard]:
        described: list[SysinfoGpuCard] = []
        for nvml, index in self._indices(errors):
            try:
                handle = nvml.nvmlDeviceGetHandleByIndex(index)
                described.append(_describe_nvidia(nvml, handle, index))
            except nvml.NVMLError as error:
                errors.note(f"NVIDIA GPU {index}: {error}")
        return described

    def _indices(self, errors: Errors) -> Iterator[tuple[Any, int]]:
        nvml, count = None, 0
        with errors.noted(), contextlib.suppress(FileNotFoundError):
            nvml, count = self._driver.gpus()
        for index in range(count):
            yield nvml, index

    def _uses(
        self, nvml: Any, handle: Any, gpu: SampleGpu, total: int
    ) -> Iterator[tuple[int, SampleProcessGpu]]:
        memory = _memory_of_processes(nvml, handle)
        shares = self._shares(nvml, handle, gpu.uuid)
        for pid in sorted(memory.keys() | shares.keys()):
            used = memory.get(pid, 0)
            yield (
                pid,
                SampleProcessGpu(
                    index=gpu.index,
                    uuid=gpu.uuid,
                    gpu_util=shares.get(pid, 0.0),
                    gpu_memory=used,
                    gpu_memory_util=round(100 * used / total, 1) if total else 0.0,
                ),
            )

    def _shares(self, nvml: Any, handle: Any, uuid: str) -> dict[int, float]:
        """Return the mean percentage of the GPU that processes used since the last call."""
        try:
            samples = nvml.nvmlDeviceGetProcessUtilization(handle, self._last_sample.get(uuid, 0))
        except nvml.NVMLError:
            return {}  # it was not used, or it does not report this, as with MIG
        shares: dict[int, list[int]] = {}
        for sample in samples:
            if sample.pid:
                self._last_sample[uuid] = max(self._last_sample.get(uuid, 0), sample.timeStamp)
                shares.setdefault(sample.pid, []).append(sample.smUtil)
        return {pid: round(sum(seen) / len(seen), 1) for pid, seen in shares.items()}


def _nvidia_gpu(nvml: Any, handle: Any, index: int, uuid: str) -> tuple[SampleGpu, int]:
    """Return a GPU's sample, and its memory in KiB; raises NVMLError if it is lost."""
    values = {name: value for reading in STATE for name, value in supported(nvml, reading, handle)}
    mode = _query(nvml, "ComputeMode", handle)
    total, used = values.get("nv_fb_mem_total", 0), values.get("nv_fb_mem_used", 0)
    state = values.get("nv_perf_state")
    gpu = SampleGpu(
        index=index,
        uuid=uuid,
        fan=int(values.get("nv_fan", 0)),
        compute_mode=_MODES[mode] if mode is not None and mode < len(_MODES) else "",
        performance_state=UNSET if state is None else ExtendedUint(int(state)),
        memory=int(used * 1024),
        ce_util=int(values.get("nv_util", 0)),
        memory_util=round(100 * used / total) if total else 0,
        temperature=int(values.get("nv_temp", 0)),
        power=round(values.get("nv_power_usage", 0)),
        power_limit=round(values.get("nv_power_max_limit", 0)),
        ce_clock=int(values.get("nv_sm_clock", 0)),
        memory_clock=int(values.get("nv_mem_clock", 0)),
    )
    return gpu, int(total * 1024)


def _describe_nvidia(nvml: Any, handle: Any, index: int) -> SysinfoGpuCard:
    values = {name: value for reading in LIMITS for name, value in supported(nvml, reading, handle)}
    minimum, maximum = _query(nvml, "PowerManagementLimitConstraints", handle) or (0, 0)
    architecture = _query(nvml, "Architecture", handle) or 0
    return SysinfoGpuCard(
        index=index,
        uuid=nvml.nvmlDeviceGetUUID(handle),
        address=nvml.nvmlDeviceGetPciInfo(handle).busId,
        manufacturer="NVIDIA",
        model=_query(nvml, "Name", handle) or "",
        architecture=_ARCHITECTURES.get(architecture, ""),
        driver=nvml.nvmlSystemGetDriverVersion(),
        firmware=_query(nvml, "VbiosVersion", handle) or "",
        memory=int(values.get("nv_fb_mem_total", 0) * 1024),
        power_limit=round(values.get("nv_power_max_limit", 0)),
        max_power_limit=maximum // 1000,
        min_power_limit=minimum // 1000,
        max_ce_clock=int(values.get("nv_max_sm_clock", 0)),
        max_memory_clock=int(values.get("nv_max_mem_clock", 0)),
    )


def _query(nvml: Any, what: str, handle: Any) -> Any:
    """Return one value; None if the GPU does not support it."""
    try:
        return getattr(nvml, f"nvmlDeviceGet{what}")(handle)
    except nvml.NVMLError as error:
        if error.value == nvml.NVML_ERROR_GPU_IS_LOST:
            raise
        return None


def _memory_of_processes(nvml: Any, handle: Any) -> dict[int, int]:
    memory: dict[int, int] = {}
    for part in list(parts(nvml, handle)) or [handle]:
        held: dict[int, int] = {}
        for kind in _LISTS:  # one that computes and draws is in both
            for process in _query(nvml, f"{kind}RunningProcesses", part) or ():
                bytes_used = process.usedGpuMemory or 0
                held[process.pid] = max(held.get(process.pid, 0), bytes_used // 1024)
        for pid, used in held.items():
            memory[pid] = memory.get(pid, 0) + used
    return memory


_LEVEL = re.compile(r"\d+: (\d{1,6})Mhz", re.ASCII | re.IGNORECASE)


class AmdGpus:
    """The AMD GPUs of one node; its name replaces a missing ``unique_id``."""

    def __init__(self, *, node: str, root: str = "/") -> None:
        self._node = node
        self._root = root
        self._kfd = Path(root, "sys/class/kfd/kfd")

    def sample(self, errors: Errors) -> tuple[list[SampleGpu], dict[int, list[SampleProcessGpu]]]:
        gpus = []
        processes: dict[int, list[SampleProcessGpu]] = {}
        memory = self._memory_by_process(errors)
        for index, (address, device) in enumerate(self._directories(errors).items()):
            uuid = self._uuid(device, address)
            values = dict([*load(device, errors.noted), *sensors(device, errors.noted)])
            gpus.append(_amd_gpu(index, uuid, values))
            total = values.get("rocm_mem_total", 0) * 2**20
            for pid, used in memory.get(address, {}).items():
                share = round(100 * used / total, 1) if total else 0.0
                use = SampleProcessGpu(
                    index=index, uuid=uuid, gpu_memory=used // 1024, gpu_memory_util=share
                )
                processes.setdefault(pid, []).append(use)
        return gpus, processes

    def describe(self, errors: Errors) -> list[SysinfoGpuCard]:
        described = []
        for index, (address, device) in enumerate(self._directories(errors).items()):
            with errors.noted():
                described.append(self._describe(index, address, device))
        return described

    def _directories(self, errors: Errors) -> dict[str, Path]:
        with errors.noted(), contextlib.suppress(FileNotFoundError):
            return directories(self._root)
        return {}

    def _uuid(self, device: Path, address: str) -> str:
        return _text(device / "unique_id") or f"{self._node}/{address}"

    def _describe(self, index: int, address: str, device: Path) -> SysinfoGpuCard:
        limits = {
            limit: max([0, *filter(None, map(proc.number, device.glob(f"hwmon/hwmon*/{limit}")))])
            for limit in ("power1_cap", "power1_cap_max", "power1_cap_min")
        }
        return SysinfoGpuCard(
            index=index,
            uuid=self._uuid(device, address),
            address=address,
            manufacturer="AMD",
            model=_text(device / "product_name") or _text(device / "device"),
            driver=_text(Path(self._root, "sys/module/amdgpu/version")),
            firmware=_text(device / "vbios_version"),
            memory=max(0, proc.number(device / "mem_info_vram_total") or 0) // 1024,
            power_limit=limits["power1_cap"] // 10**6,
            max_power_limit=limits["power1_cap_max"] // 10**6,
            min_power_limit=limits["power1_cap_min"] // 10**6,
            max_ce_clock=_highest(device / "pp_dpm_sclk"),
            max_memory_clock=_highest(device / "pp_dpm_mclk"),
        )

    def _memory_by_process(self, errors: Errors) -> dict[str, dict[int, int]]:
        memory: dict[str, dict[int, int]] = {}
        with errors.noted(), contextlib.suppress(FileNotFoundError):
            addresses = dict(self._addresses())
            for pid in proc.names(self._kfd / "proc", "[0-9]*"):
                for file in (self._kfd / "proc" / pid).glob("vram_*"):
                    address = addresses.get(file.name.removeprefix("vram_"))
                    used = proc.counter(file)
                    if address is not None and used:
                        memory.setdefault(address, {})[int(pid)] = used
        return memory

    def _addresses(self) -> Iterator[tuple[str, str]]:
        """Yield the numbers of GPUs in the compute driver (KFD), with their addresses."""
        for node in proc.names(self._kfd / "topology/nodes", "[0-9]*"):
            directory = self._kfd / "topology/nodes" / node
            number = proc.word(directory / "gpu_id")
            if number and number != "0":  # 0: a processor
                pairs = (line.split() for _, line in proc.lines(directory / "properties"))
                known = {pair[0]: pair[1] for pair in pairs if len(pair) == 2}  # noqa: PLR2004
                names = ("domain", "location_id")
                words = [known.get(name, "0") for name in names]
                domain, location = proc.counters(str(directory / "properties"), words, minimum=2)
                bus, slot, function = location >> 8 & 0xFF, location >> 3 & 0x1F, location & 7
                yield number, f"{domain:08X}:{bus:02X}:{slot:02X}.{function}"


def _amd_gpu(index: int, uuid: str, values: dict[str, float]) -> SampleGpu:
    def whole(name: str, unit: int = 1) -> int:
        return max(0, round(values.get(name, 0) * unit))

    total, used = whole("rocm_mem_total", 1024), whole("rocm_mem_used", 1024)
    return SampleGpu(
        index=index,
        uuid=uuid,
        fan=whole("rocm_fan"),
        memory=used,
        ce_util=whole("rocm_gfx_util"),
        memory_util=round(100 * used / total) if total else 0,
        temperature=round(values.get("rocm_temp_edge", values.get("rocm_temp_hotspot", 0))),
        power=whole("rocm_avg_power"),
        power_limit=whole("rocm_power_limit"),
        ce_clock=whole("rocm_gfx_clock"),
        memory_clock=whole("rocm_u_clock"),
    )


def _highest(path: Path) -> int:
    """Return the highest clock that a GPU can be set to, in MHz; 0 if unknown."""
    return max(map(int, _LEVEL.findall(proc.word(path) or "")), default=0)


def _text(path: Path) -> str:
    return readable(proc.word(path) or "")
