"""The mounted file systems: ``/proc/self/mounts``."""

import functools
import re
from pathlib import Path
from typing import NamedTuple

from ccpipe.node.linux import proc

_ESCAPE = re.compile(r"\\([0-7]{3})")
_COLUMNS = 3


class Mount(NamedTuple):
    """One mounted file system."""

    device: str
    point: str
    kind: str


def mounts(root: str = "/") -> tuple[Mount, ...]:
    """Return the mounted file systems in the order of mounting, also those that others hide."""
    return _listed(proc.text(Path(root, "proc/self/mounts")))


@functools.lru_cache(maxsize=1)
def _listed(text: str) -> tuple[Mount, ...]:
    rows = (line.split(" ") for line in text.split("\n"))
    return tuple(Mount(*map(_unescaped, row[:_COLUMNS])) for row in rows if len(row) >= _COLUMNS)


def _unescaped(word: str) -> str:
    """Return a word without the escapes for blanks, line ends and backslashes (fstab(5))."""
    return _ESCAPE.sub(lambda found: chr(int(found[1], 8)), word)
