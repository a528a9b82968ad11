"""The hardware of a node from ``/sys`` and ``/proc``: sockets, cores, threads, memory, GPUs.

Only online hardware counts. Sonar's format assumes equal cores: if they differ, the larger ones are
reported. Sources: the kernel's ``Documentation/ABI/stable/sysfs-devices-system-cpu``;
cc-node-controller, ``ccTopology``.
"""

import os
import re
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from ccpipe.errors import DataError
from ccpipe.node.linux import proc

_SHARED = 3  # the level of cache that the specification calls llc, where there is one
_GPU_CLASSES = ("0x03", "0x12")  # PCI: display controllers, processing accelerators
_MEMORY = re.compile(r"MemTotal:\s*(\d{1,18}) kB\s*", re.ASCII)
_MODELS = {  # keys of /proc/cpuinfo: x86, POWER, ARM
    "model name": "{}",
    "cpu": "{}",
    "CPU architecture": "ARMv{}",
}


class HwThread(msgspec.Struct, frozen=True):
    """One hardware thread; -1 where the kernel does not report a number."""

    cpu_id: int
    smt_id: int  # which of its core's hardware threads it is, from 0
    core_cpu_list: list[int]
    core_id: int  # as the kernel numbers them, unique within a socket
    socket_id: int
    die_id: int  # the socket's number where the kernel reports no dies
    numa_id: int


def hwthreads(root: str = "/") -> list[HwThread]:
    """Return the hardware threads that are online; none where ``/sys`` does not list them."""
    directory = Path(root, "sys/devices/system/cpu")
    try:
        names = proc.names(directory, "cpu[0-9]*")
    except OSError:
        return []
    return [_thread(directory / name) for name in names if (directory / name / "topology").is_dir()]


def hwthread_topology(root: str = "/") -> dict[str, Any]:
    """Return what cc-node-controller answers: ``hwthreads``, and their counts as ``cpu_info``."""
    threads = hwthreads(root)
    counts = {
        "num_hwthreads": len(threads),
        "smt_width": len({thread.smt_id for thread in threads}),
        "num_sockets": len({thread.socket_id for thread in threads}),
        "num_dies": len({(thread.socket_id, thread.die_id) for thread in threads}),
        "num_cores": len({(thread.socket_id, thread.core_id) for thread in threads}),
        "num_numa_domains": len({thread.numa_id for thread in threads}),
    }
    return {"hwthreads": msgspec.to_builtins(threads), "cpu_info": counts}


def _thread(directory: Path) -> HwThread:
    number = int(directory.name.removeprefix("cpu"))
    socket = proc.index(directory / "topology/physical_package_id")
    die = proc.index(directory / "topology/die_id")
    core = _core(directory / "topology") or [number]
    domains = [name.name for name in directory.glob("node[0-9]*")]
    return HwThread(
        cpu_id=number,
        smt_id=core.index(number) if number in core else -1,
        core_cpu_list=core,
        core_id=proc.index(directory / "topology/core_id"),
        socket_id=socket,
        die_id=socket if die < 0 else die,
        numa_id=int(domains[0].removeprefix("node")) if len(domains) == 1 else -1,
    )


def _core(directory: Path) -> list[int]:
    """Return the hardware threads of a core; the second file is used before Linux 5.4."""
    for name in ("core_cpus_list", "thread_siblings_list"):
        if text := proc.word(directory / name):
            return proc.listed(str(directory / name), text)
    return []


class Topology(NamedTuple):
    """A node's processors and memory."""

    sockets: int
    cores_per_socket: int
    threads_per_core: int
    model: str
    """The vendor's name of the processor; empty where the kernel does not report it."""
    memory: int  # in units of 2¹⁰ bytes
    distances: tuple[tuple[int, ...], ...]
    """Between NUMA domains, 10 from one to itself; empty if the kernel reports no domains."""


class OperatingSystem(NamedTuple):
    """The kernel of the node."""

    name: str
    release: str
    architecture: str


def topology(root: str = "/") -> Topology:
    top = Path(root)
    sockets, cores, threads = _processors(root)
    return Topology(
        sockets=sockets,
        cores_per_socket=cores,
        threads_per_core=threads,
        model=_model(top / "proc/cpuinfo"),
        memory=_memory(top / "proc/meminfo"),
        distances=_distances(top / "sys/devices/system/node"),
    )


def system(root: str = "/") -> OperatingSystem:
    kernel = Path(root, "proc/sys/kernel")
    return OperatingSystem(
        name=_word(kernel / "ostype"),
        release=_word(kernel / "osrelease"),
        architecture=proc.word(kernel / "arch") or os.uname().machine,  # before Linux 6.1
    )


def _word(path: Path) -> str:
    word = proc.text(path).strip()
    if not word:
        raise DataError(f"{path} is empty")
    return word


def _processors(root: str) -> tuple[int, int, int]:
    sockets: dict[int, set[tuple[int, ...]]] = {}  # cores, by their threads
    for thread in hwthreads(root):
        sockets.setdefault(max(thread.socket_id, 0), set()).add(tuple(thread.core_cpu_list))
    if not sockets:
        raise FileNotFoundError(
            2, "the kernel reports no topology", f"{root}/sys/devices/system/cpu"
        )
    cores = [core for socket in sockets.values() for core in socket]
    return len(sockets), max(map(len, sockets.values())), max(map(len, cores))


def _model(path: Path) -> str:
    found = proc.pairs(path)
    for key, form in _MODELS.items():
        if found.get(key):
            return form.format(found[key])
    return ""


def _memory(path: Path) -> int:
    for _, line in proc.lines(path):
        if (found := _MEMORY.fullmatch(line)) and int(found[1]):
            return int(found[1])
    raise DataError(f"{path}: MemTotal is missing")


def _distances(directory: Path) -> tuple[tuple[int, ...], ...]:
    try:
        nodes = proc.names(directory, "node[0-9]*")
    except OSError:
        return ()
    rows = []
    for node in nodes:
        words = (proc.word(directory / node / "distance") or "").split()
        rows.append(tuple(map(int, proc.counters(str(directory / node), words, minimum=0))))
    if any(len(row) != len(rows) for row in rows):
        raise DataError(
            f"{directory}: expected {len(rows)} distances for each of {len(rows)} domains"
        )
    return tuple(rows)


def topology_map(root: str = "/") -> list[dict[str, str]]:
    """Return how hardware is nested: a row for each hardware thread, NUMA domain and GPU.

    A row names numbers by type, as the tags ``type`` and ``type-id`` do: ``{"hwthread": "3",
    "socket": "0", "memoryDomain": "0", "llc": "0"}``. Numbers that the kernel does not report are
    omitted, and so are cores and dies, whose numbers are only unique within a socket.
    """
    threads = [_row(root, thread) for thread in hwthreads(root) if thread.socket_id >= 0]
    domains = _by_domain(threads)
    gpus = _gpus(Path(root, "sys/bus/pci/devices"), domains)
    return [*threads, *domains.values(), *gpus]


def _row(root: str, thread: HwThread) -> dict[str, str]:
    row = {"hwthread": thread.cpu_id, "socket": thread.socket_id, "memoryDomain": thread.numa_id}
    cache = f"sys/devices/system/cpu/cpu{thread.cpu_id}/cache/index{_SHARED}/id"
    row["llc"] = proc.index(Path(root, cache))
    return {kind: str(number) for kind, number in row.items() if number >= 0}


def _by_domain(threads: list[dict[str, str]]) -> dict[str, dict[str, str]]:
    """Return the row of each NUMA domain that lies in one socket."""
    sockets = defaultdict(set)
    for row in threads:
        if "memoryDomain" in row:
            sockets[row["memoryDomain"]].add(row["socket"])
    return {
        domain: {"memoryDomain": domain, "socket": of.copy().pop()}
        for domain, of in sockets.items()
        if len(of) == 1
    }


def _gpus(directory: Path, domains: dict[str, dict[str, str]]) -> list[dict[str, str]]:
    """Return the rows of display and compute devices, with addresses as NVML writes them."""
    rows = []
    for device in sorted(directory.glob("*:*:*.*")):
        kind = proc.word(device / "class") or ""
        domain = str(proc.index(device / "numa_node"))
        if kind.startswith(_GPU_CLASSES) and domain in domains:
            bus, _, rest = device.name.upper().partition(":")
            rows.append({**domains[domain], "accelerator": f"{bus:0>8}:{rest}"})
    return rows
