"""Memory usage of the node: ``/proc/meminfo``.

``mem_used`` is total - free - buffers - (cached - shared) - sreclaimable. The kernel counts shared
memory and tmpfs as cached, but programs use it (for example MPI within a node), and it is freed
only by deletion or swapping. Reclaimable slab is a cache. ``htop`` computes the same. ``free`` of
procps 3 does not count shared memory as used; newer versions report total - available.
cc-metric-collector subtracts shared memory twice and counts reclaimable slab as used.

For NUMA domains the kernel reports fewer values, in ``/sys/devices/system/node/node*/meminfo``. Its
``mem_used`` is total - free - (file pages - shared) - sreclaimable, which is equivalent: file pages
are the sum of buffers and cached.
"""

import re
from collections.abc import Container, Iterator, Mapping, Sequence
from pathlib import Path

from ccpipe.errors import DataError
from ccpipe.message import Message, metric
from ccpipe.node.linux import proc
from ccpipe.node.sampling.collector import Metric, SoftErrors

_ROWS = (
    ("MemTotal", "mem_total", "kB", "total usable memory"),
    ("MemFree", "mem_free", "kB", "unused memory"),
    ("MemAvailable", "mem_available", "kB", "available without swapping (estimate)"),
    ("Buffers", "mem_buffers", "kB", "buffers of block devices"),
    ("Cached", "mem_cached", "kB", "page cache, including shared memory and tmpfs"),
    ("Shmem", "mem_shared", "kB", "shared memory and tmpfs"),
    ("Active", "mem_active", "kB", "recently used memory (active)"),
    ("Inactive", "mem_inactive", "kB", "memory not used recently, reclaimed first (inactive)"),
    ("Dirty", "mem_dirty", "kB", "dirty pages waiting to be written to disk"),
    ("Writeback", "mem_writeback", "kB", "pages being written to disk"),
    ("AnonPages", "mem_anon_pages", "kB", "anonymous memory of programs"),
    ("Mapped", "mem_mapped", "kB", "files mapped into programs"),
    ("Slab", "mem_slab", "kB", "kernel data structures (slab)"),
    ("SReclaimable", "mem_sreclaimable", "kB", "reclaimable slab"),
    ("Mlocked", "mem_locked", "kB", "memory locked by programs"),
    ("KernelStack", "mem_kernelstack", "kB", "kernel stacks"),
    ("PageTables", "mem_pagetables", "kB", "page tables"),
    ("VmallocTotal", "mem_vmalloc_total", "kB", "size of the kernel's vmalloc address space"),
    ("AnonHugePages", "mem_anon_hugepages", "kB", "transparent huge pages of programs"),
    ("ShmemHugePages", "mem_shared_hugepages", "kB", "shared memory and tmpfs in huge pages"),
    ("ShmemPmdMapped", "mem_shared_pmd_mapped", "kB", "shared memory mapped as huge pages"),
    ("HugePages_Total", "mem_hugepages_total", "pages", "size of the pool of huge pages"),
    ("HugePages_Free", "mem_hugepages_free", "pages", "free huge pages of the pool"),
    ("HugePages_Rsvd", "mem_hugepages_reserved", "pages", "reserved huge pages"),
    ("HugePages_Surp", "mem_hugepages_surplus", "pages", "surplus huge pages"),
    ("Hugepagesize", "mem_hugepages_size", "kB", "size of a huge page"),
    ("DirectMap4k", "mem_direct_mapped_4k", "kB", "mapped by the kernel in pages of 4 KiB"),
    ("DirectMap2M", "mem_direct_mapped_2m", "kB", "mapped by the kernel in pages of 2 MiB"),
    ("DirectMap1G", "mem_direct_mapped_1g", "kB", "mapped by the kernel in pages of 1 GiB"),
    ("SwapTotal", "swap_total", "kB", "total swap space"),
    ("SwapFree", "swap_free", "kB", "free swap space"),
)
_NAMES = {key: name for key, name, _, _ in _ROWS}
_KEYS_OF_DOMAINS = """
    MemTotal MemFree Shmem Active Inactive Dirty Writeback AnonPages Mapped Slab SReclaimable
    Mlocked KernelStack PageTables AnonHugePages ShmemHugePages ShmemPmdMapped HugePages_Total
    HugePages_Free HugePages_Surp
    """
_OF_DOMAINS = frozenset(_KEYS_OF_DOMAINS.split())
_NAMES_OF_DOMAINS = {key: _NAMES[key] for key in _OF_DOMAINS} | {"FilePages": ""}
_BOTH = ("node", "memoryDomain")

METRICS = (
    Metric("mem_used", "kB", int, "memory used by programs", _BOTH),
    *(
        Metric(name, unit, int, meaning, _BOTH if key in _OF_DOMAINS else ("node",))
        for key, name, unit, meaning in _ROWS
    ),
    Metric("swap_used", "kB", int, "used swap space"),
)

_NODE = {"type": "node"}
_LINE = re.compile(r"[^:]+:\s*(\d{1,18})(?: kB)?\s*", re.ASCII)


class Memory:
    """The memory of the node; values that the kernel does not report are omitted.

    Parameters
    ----------
    domains
        Also report each NUMA domain, not only the node.
    root
        Root of the file system to read; set it to read a captured tree.

    """

    def __init__(self, *, domains: bool = False, root: str = "/") -> None:
        self._domains = domains
        self._path = Path(root, "proc/meminfo")
        self._nodes = Path(root, "sys/devices/system/node")
        self.soft = SoftErrors("memory")

    def collect(self, time: int) -> Iterator[Message]:
        values: dict[str, int] = {}
        with self.soft.noted():
            values = self._values(self._path, _NAMES, ("Buffers", "Cached"))
        if "swap_total" in values and "swap_free" in values:
            values["swap_used"] = values["swap_total"] - values["swap_free"]
        for name, value in values.items():
            yield metric(name, value, time=time, tags=_NODE)
        if self._domains:
            domains: list[str] = []
            with self.soft.noted():
                domains = proc.names(self._nodes, "node[0-9]*")
            for node in domains:
                tags = {"type": "memoryDomain", "type-id": node.removeprefix("node")}
                with self.soft.noted():
                    path = self._nodes / node / "meminfo"
                    found = self._values(path, _NAMES_OF_DOMAINS, ("FilePages",))
                    for name, value in found.items():
                        yield metric(name, value, time=time, tags=tags)
        self.soft.report(values)

    def _values(
        self, path: Path, names: Mapping[str, str], caches: Sequence[str]
    ) -> dict[str, int]:
        known = self._read(path, names)
        values = {
            names[key]: value for key, value in known.items() if names[key] and value is not None
        }
        with self.soft.noted():
            values["mem_used"] = _used(path, known, caches)
        return values

    def _read(self, path: Path, wanted: Container[str]) -> dict[str, int | None]:
        known: dict[str, int | None] = {}
        for place, line in proc.lines(path):
            key = line.partition(":")[0].rpartition(" ")[2]  # after "Node 0" of a domain
            if key in wanted:
                found = _LINE.fullmatch(line)
                known[key] = int(found[1]) if found else None
                if found is None:
                    self.soft.add([DataError(f"{place}: {line!r:.60} is not a size")])
        return known


def _used(path: Path, known: Mapping[str, int | None], caches: Sequence[str]) -> int:
    """Return what programs use; old kernels have no ``Shmem`` and ``SReclaimable``."""

    def part(key: str, default: int | None = None) -> int:
        value = known.get(key, default)
        if value is None:
            raise DataError(f"{path}: {key} is missing")
        return value

    taken = part("MemTotal") - part("MemFree")
    cached = sum(map(part, caches)) - part("Shmem", 0)
    return taken - cached - part("SReclaimable", 0)
