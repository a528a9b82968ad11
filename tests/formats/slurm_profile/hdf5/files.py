"""Reads whole HDF5 files with the reader under test."""

import tempfile
from pathlib import Path
from typing import Any

from ccpipe.formats.slurm_profile.hdf5 import Group, open_root
from ccpipe.formats.slurm_profile.hdf5.storage import Storage
from tests.formats.slurm_profile.samples import DATA

FORMAT: Any = ("earliest", "v110")
SAMPLE = DATA / "node-step" / "alice" / "17_0_c1.h5"
MERGED = DATA / "merged" / "job_17.h5"


def ours(group: Group) -> dict[str, Any]:
    """Return what this reader reads of a group, as ``dump`` does with h5py."""
    found: dict[str, Any] = {f"@{name}": value for name, value in group.attributes.items()}
    for name in group:
        item = group.open(name)
        found[name] = ours(item) if isinstance(item, Group) else item.read().tobytes()
    return found


def read(path: Path) -> dict[str, Any]:
    """Read a whole file."""
    with Storage(path) as storage:
        return ours(open_root(storage))


def read_bytes(data: bytes) -> dict[str, Any]:
    """Read a whole file that has these bytes."""
    with tempfile.NamedTemporaryFile(suffix=".h5") as file:
        file.write(data)
        file.flush()
        return read(Path(file.name))
