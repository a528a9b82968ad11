"""The hardware of a node from ``/sys`` and ``/proc``: sockets, cores, threads, memory.

Only what is online counts. All cores are taken to be alike, as Sonar's format has it: where they
are not, the numbers are those of the larger ones.
"""

import os
import re
from pathlib import Path
from typing import NamedTuple

from ccpipe.errors import DataError
from ccpipe.node.linux import proc
from ccpipe.node.linux.hwthreads import hwthreads

_MEMORY = re.compile(r"MemTotal:\s*(\d{1,18}) kB\s*", re.ASCII)
_MODELS = {  # keys of /proc/cpuinfo: x86, POWER, ARM
    "model name": "{}",
    "cpu": "{}",
    "CPU architecture": "ARMv{}",
}


class Topology(NamedTuple):
    """A node's processors and memory."""

    sockets: int
    cores_per_socket: int
    threads_per_core: int
    model: str
    """The vendor's name of the processor; empty where the kernel does not report it."""
    memory: int  # in units of 2¹⁰ bytes
    distances: tuple[tuple[int, ...], ...]
    """Between NUMA domains, 10 from one to itself; empty where the kernel knows of no domains."""


class OperatingSystem(NamedTuple):
    """What runs the node."""

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


def _distances(folder: Path) -> tuple[tuple[int, ...], ...]:
    try:
        nodes = proc.names(folder, "node[0-9]*")
    except OSError:
        return ()
    rows = []
    for node in nodes:
        words = (proc.word(folder / node / "distance") or "").split()
        rows.append(tuple(map(int, proc.counters(str(folder / node), words, minimum=0))))
    if any(len(row) != len(rows) for row in rows):
        raise DataError(f"{folder}: the distances of {len(rows)} domains are no square")
    return tuple(rows)
