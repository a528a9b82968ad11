"""Control groups, version 2 and 1: where a process's are, and their files of keys and counters.

Source: Linux, ``Documentation/admin-guide/cgroup-v2.rst`` and ``cgroup-v1/``.
"""

from collections.abc import Sequence
from pathlib import Path

from ccpipe.errors import DataError
from ccpipe.node.linux import proc


def keyed_counters(path: Path, keys: Sequence[str]) -> list[int]:
    """Parse counters from lines ``key counter``; empty if none of them is present."""
    lines = (proc.word(path) or "").splitlines()
    rows = {key: value for key, _, value in (line.partition(" ") for line in lines)}
    words = [rows[key] for key in keys if key in rows]
    if lines and not any(value.isdecimal() for value in rows.values()):
        raise DataError(f"{path}: {lines[0]!r:.60} is not a counter")
    return proc.counters(str(path), words, minimum=len(keys)) if words else []


def folders_of(pid: int, root: str = "/") -> dict[str, Path]:
    """Return the folders of a process's control groups by controller; ``""`` is version 2's."""
    top = Path(root, "sys/fs/cgroup")
    found: dict[str, Path] = {}
    for line in proc.text(Path(root, f"proc/{pid}/cgroup")).splitlines():
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        below = path.lstrip("/")
        if not controllers:
            mounts = [top, top / "unified"]
            found[""] = next((m / below for m in mounts if (m / below).is_dir()), top / below)
        for controller in filter(None, controllers.split(",")):
            mounts = [top / controller, top / controllers]
            found[controller] = next((m for m in mounts if m.is_dir()), mounts[0]) / below
    return found
