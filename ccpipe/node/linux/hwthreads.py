"""The hardware threads of a node, as cc-node-controller reports them in its topology.

cc-energy-manager asks for it, to learn on which sockets a job runs. Source: the kernel's
``Documentation/ABI/stable/sysfs-devices-system-cpu``; cc-node-controller, ``ccTopology``.
"""

from pathlib import Path
from typing import Any

import msgspec

from ccpipe.node.linux import proc


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
    folder = Path(root, "sys/devices/system/cpu")
    try:
        names = proc.names(folder, "cpu[0-9]*")
    except OSError:
        return []
    return [_thread(folder / name) for name in names if (folder / name / "topology").is_dir()]


def topology(root: str = "/") -> dict[str, Any]:
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


def _thread(folder: Path) -> HwThread:
    number = int(folder.name.removeprefix("cpu"))
    socket = proc.index(folder / "topology/physical_package_id")
    die = proc.index(folder / "topology/die_id")
    core = _core(folder / "topology") or [number]
    domains = [name.name for name in folder.glob("node[0-9]*")]
    return HwThread(
        cpu_id=number,
        smt_id=core.index(number) if number in core else -1,
        core_cpu_list=core,
        core_id=proc.index(folder / "topology/core_id"),
        socket_id=socket,
        die_id=socket if die < 0 else die,
        numa_id=int(domains[0].removeprefix("node")) if len(domains) == 1 else -1,
    )


def _core(folder: Path) -> list[int]:
    """Return the hardware threads of a core; the second name is that of before Linux 5.4."""
    for name in ("core_cpus_list", "thread_siblings_list"):
        if text := proc.word(folder / name):
            return proc.listed(str(folder / name), text)
    return []
