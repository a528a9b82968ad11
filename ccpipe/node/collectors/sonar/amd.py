"""AMD's cards as Sonar reports them: ``/sys/class/drm`` and, of processes, ``/sys/class/kfd``.

A card is named by its ``unique_id``; one without, by node and address. Of a process, the kernel
reports the memory of a card that it holds, and no utilisation.
"""

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

from ccpipe.formats.sonar import SampleGpu, SampleProcessGpu, SysinfoGpuCard
from ccpipe.node.collectors.gpu.amd_gpu import cards, load, sensors
from ccpipe.node.collectors.sonar.envelope import Errors, readable
from ccpipe.node.linux import proc

_LEVEL = re.compile(r"\d+: (\d{1,6})Mhz", re.ASCII | re.IGNORECASE)


class AmdCards:
    """The cards of one node, whose name stands for a ``unique_id`` that is missing."""

    def __init__(self, *, node: str, root: str = "/") -> None:
        self._node = node
        self._root = root
        self._kfd = Path(root, "sys/class/kfd/kfd")

    def sample(self, errors: Errors) -> tuple[list[SampleGpu], dict[int, list[SampleProcessGpu]]]:
        gpus = []
        processes: dict[int, list[SampleProcessGpu]] = {}
        held = self._held(errors)
        for index, (address, device) in enumerate(self._cards(errors).items()):
            uuid = self._uuid(device, address)
            values = dict([*load(device, errors.noted), *sensors(device, errors.noted)])
            gpus.append(_gpu(index, uuid, values))
            total = values.get("rocm_mem_total", 0) * 2**20
            for pid, used in held.get(address, {}).items():
                share = round(100 * used / total, 1) if total else 0.0
                use = SampleProcessGpu(
                    index=index, uuid=uuid, gpu_memory=used // 1024, gpu_memory_util=share
                )
                processes.setdefault(pid, []).append(use)
        return gpus, processes

    def describe(self, errors: Errors) -> list[SysinfoGpuCard]:
        described = []
        for index, (address, device) in enumerate(self._cards(errors).items()):
            with errors.noted():
                described.append(self._card(index, address, device))
        return described

    def _cards(self, errors: Errors) -> dict[str, Path]:
        with errors.noted(), contextlib.suppress(FileNotFoundError):
            return cards(self._root)
        return {}

    def _uuid(self, device: Path, address: str) -> str:
        return _text(device / "unique_id") or f"{self._node}/{address}"

    def _card(self, index: int, address: str, device: Path) -> SysinfoGpuCard:
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

    def _held(self, errors: Errors) -> dict[str, dict[int, int]]:
        held: dict[str, dict[int, int]] = {}
        with errors.noted(), contextlib.suppress(FileNotFoundError):
            addresses = dict(self._addresses())
            for pid in proc.names(self._kfd / "proc", "[0-9]*"):
                for file in (self._kfd / "proc" / pid).glob("vram_*"):
                    address = addresses.get(file.name.removeprefix("vram_"))
                    used = proc.counter(file)
                    if address is not None and used:
                        held.setdefault(address, {})[int(pid)] = used
        return held

    def _addresses(self) -> Iterator[tuple[str, str]]:
        """Yield the addresses of cards by the number that the driver's compute side gives them."""
        for node in proc.names(self._kfd / "topology/nodes", "[0-9]*"):
            folder = self._kfd / "topology/nodes" / node
            number = proc.word(folder / "gpu_id")
            if number and number != "0":  # that of a processor
                pairs = (line.split() for _, line in proc.lines(folder / "properties"))
                known = {pair[0]: pair[1] for pair in pairs if len(pair) == 2}  # noqa: PLR2004
                names = ("domain", "location_id")
                words = [known.get(name, "0") for name in names]
                domain, place = proc.counters(str(folder / "properties"), words, minimum=2)
                bus, slot, function = place >> 8 & 0xFF, place >> 3 & 0x1F, place & 7
                yield number, f"{domain:08X}:{bus:02X}:{slot:02X}.{function}"


def _gpu(index: int, uuid: str, values: dict[str, float]) -> SampleGpu:
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
    """Return the highest clock that a card can be set to, in MHz; 0 if it is unknown."""
    return max(map(int, _LEVEL.findall(proc.word(path) or "")), default=0)


def _text(path: Path) -> str:
    return readable(proc.word(path) or "")
