"""The mounted file systems, through psutil."""

from pathlib import Path
from typing import NamedTuple


class Mount(NamedTuple):
    """One mounted file system."""

    device: str
    point: str
    kind: str
    """The type of the file system, such as ``ext4``."""


def mounts(root: str = "/") -> list[Mount]:
    """Return all mounted file systems in the order of mounting, also those that others hide.

    `root` is where the file system begins that is read; another than ``/`` is a captured tree.

    Raises
    ------
    OSError
        where the system does not list them.

    """
    import psutil

    usual = psutil.PROCFS_PATH
    if root != "/":
        psutil.PROCFS_PATH = str(Path(root, "proc"))
    try:
        return [Mount(*partition[:3]) for partition in psutil.disk_partitions(all=True)]
    finally:
        psutil.PROCFS_PATH = usual
