"""The zones of ``/sys/class/powercap``: the parts of a machine whose power is metered.

Source: Linux, ``Documentation/power/powercap/powercap.rst``.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ccpipe.errors import DataError
from ccpipe.node.linux import proc

_ZONE = re.compile(r"(package|dram|core|uncore|psys)(?:-(\d+))?(?:-die-\d+)?", re.ASCII)


class Zone(NamedTuple):
    """One zone; a socket of several dies has several for each part."""

    part: str
    """``package``, ``dram``, ``core``, ``uncore`` or ``psys``."""
    socket: str
    """Empty for what is of the whole node."""
    folder: Path
    """Its name is the kernel's, such as ``intel-rapl:0:1``."""


def zones(root: str) -> Iterator[Zone]:
    """Yield the zones of processors, memory and board; zones of other vendors are left out.

    Raises
    ------
    OSError
        if there are none.
    DataError
        if one belongs to no socket.

    """
    path = Path(root, "sys/class/powercap")
    sockets: dict[str, str] = {}
    # Another interface to the same zones, intel-rapl-mmio, would report them twice.
    for name in proc.names(path, "intel-rapl:*"):
        found = _ZONE.fullmatch(proc.text(path / name / "name").strip())
        if found is None:
            continue  # a part that we do not know
        sockets[name] = found[2] or sockets.get(name.rpartition(":")[0], "")
        if not sockets[name] and found[1] != "psys":
            raise DataError(f"{path / name}: {found[0]} belongs to no socket")
        yield Zone(found[1], sockets[name], path / name)
