"""Which socket and NUMA domain a hardware thread or a card of the node belongs to.

It is for translators that aggregate parts of a node (``translate/rules/aggregate.py``). Source:
``/sys/devices/system/cpu``, ``/sys/devices/system/node`` and ``/sys/bus/pci/devices``.
"""

from collections import defaultdict
from pathlib import Path

from ccpipe.node.linux import proc
from ccpipe.node.linux.hwthreads import HwThread, hwthreads

_SHARED = 3  # the level of cache that the specification calls llc, where there is one


def topology_map(root: str = "/") -> list[dict[str, str]]:
    """Return what belongs together: a row for each hardware thread, NUMA domain and card.

    A row names numbers by type, as the tags ``type`` and ``type-id`` do: ``{"hwthread": "3",
    "socket": "0", "memoryDomain": "0", "llc": "0"}``. What the kernel does not report is left
    out, and so are cores and dies, whose numbers are only unique within a socket.
    """
    threads = [_thread(root, thread) for thread in hwthreads(root) if thread.socket_id >= 0]
    domains = _by_domain(threads)
    cards = _cards(Path(root, "sys/bus/pci/devices"), domains)
    return [*threads, *domains.values(), *cards]


def _thread(root: str, thread: HwThread) -> dict[str, str]:
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


def _cards(folder: Path, domains: dict[str, dict[str, str]]) -> list[dict[str, str]]:
    """Return the rows of the display and compute cards, whose addresses are as NVML writes them."""
    rows = []
    for device in sorted(folder.glob("*:*:*.*")):
        kind = proc.word(device / "class") or ""
        domain = str(proc.index(device / "numa_node"))
        if kind.startswith(_CARD_CLASSES) and domain in domains:
            bus, _, rest = device.name.upper().partition(":")
            rows.append({**domains[domain], "accelerator": f"{bus:0>8}:{rest}"})
    return rows


_CARD_CLASSES = ("0x03", "0x12")  # PCI: display controllers, processing accelerators
