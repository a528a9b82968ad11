"""NVIDIA's cards as Sonar reports them, through the driver's library NVML.

Where a card is cut up (MIG), the processes on its parts count for the card: Sonar knows no parts.
``memory_util`` is the share of the memory that is in use, as the specification has it.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

from ccpipe.formats.sonar import (
    UNSET,
    ExtendedUint,
    SampleGpu,
    SampleProcessGpu,
    SysinfoGpuCard,
)
from ccpipe.node.collectors.gpu.nvidia import LIMITS, STATE, parts
from ccpipe.node.collectors.sonar.envelope import Errors
from ccpipe.node.linux.nvml import Driver, supported

_MODES = ("Default", "Exclusive_Thread", "Prohibited", "Exclusive_Process")
_ARCHITECTURES = {
    2: "Kepler", 3: "Maxwell", 4: "Pascal", 5: "Volta", 6: "Turing", 7: "Ampere", 8: "Ada Lovelace",
    9: "Hopper", 10: "Blackwell", 13: "Rubin",
}  # fmt: skip
_LISTS = ("Compute", "Graphics")
_FAILING = 1  # "generic failure"


class NvidiaCards:
    """The cards of one node."""

    def __init__(self, *, root: str = "/") -> None:
        self._driver = Driver(root)
        self._uuids: dict[int, str] = {}
        self._last_sample: dict[str, int] = {}  # microseconds of the driver's clock, by card

    def sample(self, errors: Errors) -> tuple[list[SampleGpu], dict[int, list[SampleProcessGpu]]]:
        """Return what cards and processes do; a lost card is failing, by the UUID that it had."""
        gpus: list[SampleGpu] = []
        processes: dict[int, list[SampleProcessGpu]] = {}
        for nvml, index in self._indices(errors):
            try:
                card = nvml.nvmlDeviceGetHandleByIndex(index)
                self._uuids[index] = uuid = nvml.nvmlDeviceGetUUID(card)
                gpu, total = _gpu(nvml, card, index, uuid)
                for pid, use in self._uses(nvml, card, gpu, total):
                    processes.setdefault(pid, []).append(use)
                gpus.append(gpu)
            except nvml.NVMLError as error:
                errors.note(f"NVIDIA card {index}: {error}")
                known = self._uuids.get(index, "")
                if known and known not in {gpu.uuid for gpu in gpus}:
                    gpus.append(SampleGpu(index=index, uuid=known, failing=_FAILING))
        return gpus, processes

    def describe(self, errors: Errors) -> list[SysinfoGpuCard]:
        cards: list[SysinfoGpuCard] = []
        for nvml, index in self._indices(errors):
            try:
                cards.append(_card(nvml, nvml.nvmlDeviceGetHandleByIndex(index), index))
            except nvml.NVMLError as error:
                errors.note(f"NVIDIA card {index}: {error}")
        return cards

    def _indices(self, errors: Errors) -> Iterator[tuple[Any, int]]:
        nvml, count = None, 0
        with errors.noted(), contextlib.suppress(FileNotFoundError):
            nvml, count = self._driver.cards()
        for index in range(count):
            yield nvml, index

    def _uses(
        self, nvml: Any, card: Any, gpu: SampleGpu, total: int
    ) -> Iterator[tuple[int, SampleProcessGpu]]:
        memory = _memory_of_processes(nvml, card)
        shares = self._shares(nvml, card, gpu.uuid)
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

    def _shares(self, nvml: Any, card: Any, uuid: str) -> dict[int, float]:
        """Return the mean percentage of the card that processes used since it was last asked."""
        try:
            samples = nvml.nvmlDeviceGetProcessUtilization(card, self._last_sample.get(uuid, 0))
        except nvml.NVMLError:
            return {}  # it was not used, or it does not report this, as with MIG
        shares: dict[int, list[int]] = {}
        for sample in samples:
            if sample.pid:
                self._last_sample[uuid] = max(self._last_sample.get(uuid, 0), sample.timeStamp)
                shares.setdefault(sample.pid, []).append(sample.smUtil)
        return {pid: round(sum(seen) / len(seen), 1) for pid, seen in shares.items()}


def _gpu(nvml: Any, card: Any, index: int, uuid: str) -> tuple[SampleGpu, int]:
    """Return what a card does, and its memory in KiB; raises NVMLError if it is lost."""
    values = {name: value for reading in STATE for name, value in supported(nvml, reading, card)}
    mode = _asked(nvml, "ComputeMode", card)
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


def _card(nvml: Any, card: Any, index: int) -> SysinfoGpuCard:
    values = {name: value for reading in LIMITS for name, value in supported(nvml, reading, card)}
    minimum, maximum = _asked(nvml, "PowerManagementLimitConstraints", card) or (0, 0)
    architecture = _asked(nvml, "Architecture", card) or 0
    return SysinfoGpuCard(
        index=index,
        uuid=nvml.nvmlDeviceGetUUID(card),
        address=nvml.nvmlDeviceGetPciInfo(card).busId,
        manufacturer="NVIDIA",
        model=_asked(nvml, "Name", card) or "",
        architecture=_ARCHITECTURES.get(architecture, ""),
        driver=nvml.nvmlSystemGetDriverVersion(),
        firmware=_asked(nvml, "VbiosVersion", card) or "",
        memory=int(values.get("nv_fb_mem_total", 0) * 1024),
        power_limit=round(values.get("nv_power_max_limit", 0)),
        max_power_limit=maximum // 1000,
        min_power_limit=minimum // 1000,
        max_ce_clock=int(values.get("nv_max_sm_clock", 0)),
        max_memory_clock=int(values.get("nv_max_mem_clock", 0)),
    )


def _asked(nvml: Any, what: str, card: Any) -> Any:
    """Return one answer; None if the card does not know what is asked."""
    try:
        return getattr(nvml, f"nvmlDeviceGet{what}")(card)
    except nvml.NVMLError as error:
        if error.value == nvml.NVML_ERROR_GPU_IS_LOST:
            raise
        return None


def _memory_of_processes(nvml: Any, card: Any) -> dict[int, int]:
    memory: dict[int, int] = {}
    for part in list(parts(nvml, card)) or [card]:
        held: dict[int, int] = {}
        for kind in _LISTS:  # one that computes and draws is in both
            for process in _asked(nvml, f"{kind}RunningProcesses", part) or ():
                bytes_used = process.usedGpuMemory or 0
                held[process.pid] = max(held.get(process.pid, 0), bytes_used // 1024)
        for pid, used in held.items():
            memory[pid] = memory.get(pid, 0) + used
    return memory
