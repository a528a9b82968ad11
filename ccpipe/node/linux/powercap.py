"""The zones of ``/sys/class/powercap``: the parts of a machine whose power is metered.

Source: Linux, ``Documentation/power/powercap/powercap.rst``.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import NamedTuple

from ccpipe.errors import DataError
from ccpipe.node.linux import proc

_ZONE = re.compile(r"(package|dram|core|uncore|psys)(?:-(\d+))?(?:-die-\d+)?", re.ASCII)


class Zone(NamedTuple):
    """One zone; a socket of several dies has several for each part."""

    part: str  # ``package``, ``dram``, ``core``, ``uncore`` or ``psys``
    socket: str  # empty for the whole node
    directory: Path  # its name is the kernel's, such as ``intel-rapl:0:1``


def zones(
    root: str, noted: Callable[[], AbstractContextManager[None]] = nullcontext
) -> Iterator[Zone]:
    """Yield the zones of processors, memory and board; `noted` may suppress an error of one."""
    path = Path(root, "sys/class/powercap")
    sockets: dict[str, str] = {}
    # Another interface to the same zones, intel-rapl-mmio, would report them twice.
    for name in proc.names(path, "intel-rapl:*"):
        zone = None
        with noted():
            zone = _zone(path / name, sockets)
        if zone is not None:
            yield zone


def _zone(path: Path, sockets: dict[str, str]) -> Zone | None:
    found = _ZONE.fullmatch(proc.text(path / "name").strip())
    if found is None:
        return None
    socket = sockets[path.name] = found[2] or sockets.get(path.name.rpartition(":")[0], "")
    if not socket and found[1] != "psys":
        raise DataError(f"{path}: {found[0]} belongs to no socket")
    return Zone(found[1], socket, path)
