"""The memory limit of this process: of the machine and of its control groups."""

import os
from collections.abc import Iterator
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")


def memory_limit(cgroups: Path = CGROUPS, own: Path = Path("/proc/self/cgroup")) -> int:
    """Return the least of the machine's memory and the limits of our control groups, in bytes."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([machine, *_limits(cgroups, own)])


def _limits(cgroups: Path, own: Path) -> Iterator[int]:
    """Yield the limits of our control group and its ancestors, for cgroup v1 and v2."""
    for path, name in _groups(own):
        directory = Path(*path.parts[1:])
        root = cgroups / "memory" if name == "memory.limit_in_bytes" else cgroups
        for each in (directory, *directory.parents):
            try:
                yield int((root / each / name).read_text())
            except (OSError, ValueError):  # the root group has no such file; "max" means no limit
                continue


def _groups(own: Path) -> Iterator[tuple[Path, str]]:
    try:
        lines = own.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            yield Path(path), "memory.max"
        elif "memory" in controllers.split(","):
            yield Path(path), "memory.limit_in_bytes"
