"""Writes groups, attributes and tables with h5py exactly as Slurm's plug-in does."""

import functools
from collections.abc import Iterable
from typing import Any

import numpy as np

from ccpipe.errors import MissingExtra
from ccpipe.formats.slurm_profile.hdf5 import Records
from ccpipe.formats.slurm_profile.table import NodeStep

try:
    import h5py
except ImportError:
    raise MissingExtra("h5py", "profile") from None

FORMAT: Any = ("earliest", "v110")
"""Bounds of what libhdf5 may write: what sh5util of every version reads."""

SLURM_CHUNK = 10
"""Rows of a chunk in the files of Slurm's plug-in, which deflates them at level 0."""


def create_file(target: Any, **options: Any) -> Any:
    """Create an HDF5 file at a path, or through a file object."""
    return h5py.File(target, "w", libver=FORMAT, **options)


def write_attributes(group: Any, node_step: NodeStep) -> None:
    """Write what is known of a node-step; numbers that are not known are left out."""
    numbers = {
        "Node Index": node_step.node_index,
        "Number of Tasks": node_step.tasks,
        "CPUs per Task": node_step.cpus_per_task,
    }
    write_text(group, "Node Name", node_step.node)
    for name, number in numbers.items():
        if number is not None:
            write_number(group, name, number)
    write_text(group, "Start Time", node_step.start_time)


def write_number(group: Any, name: str, number: int) -> None:
    """Write one int32, in an array of one element as Slurm does; replace it where it is."""
    if name in group.attrs:
        group.attrs.modify(name, np.array([number], "<i4"))
    else:
        group.attrs.create(name, np.array([number], "<i4"))


def write_text(group: Any, name: str, text: str) -> None:
    """Write a text of its own length without a final NUL, though the type says there is one."""
    data = text.encode()
    kind = h5py.h5t.C_S1.copy()
    kind.set_size(max(len(data), 1))
    kind.set_strpad(h5py.h5t.STR_NULLTERM)
    space = h5py.h5s.create_simple((1,))
    attribute = h5py.h5a.create(group.id, name.encode(), kind, space)
    attribute.write(np.array([data], f"S{max(len(data), 1)}"), mtype=kind)


class TableWriter:
    """Appends rows to one table."""

    def __init__(
        self, group: Any, name: str, dtype: np.dtype[np.void], *, chunk: int | None = None
    ) -> None:
        """Create the table `name`: as Slurm does, or with other chunks, which are not deflated."""
        self.dtype = dtype
        self.rows = 0
        """How many were appended."""
        layout = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        layout.set_chunk((chunk or SLURM_CHUNK,))
        layout.set_obj_track_times(False)
        if chunk is None:
            layout.set_deflate(0)
        space = h5py.h5s.create_simple((0,), (h5py.h5s.UNLIMITED,))
        self._type = _file_type(dtype)
        encoded = name.encode()
        self._dataset = h5py.h5d.create(group.id, encoded, self._type, space, layout)

    def append(self, rows: Records) -> None:
        """Write rows behind the last one."""
        count = len(rows)
        self._dataset.set_extent((self.rows + count,))
        target = self._dataset.get_space()
        target.select_hyperslab((self.rows,), (count,))
        source = h5py.h5s.create_simple((count,))
        self._dataset.write(source, target, np.ascontiguousarray(rows, self.dtype), self._type)
        self.rows += count


@functools.lru_cache(64)
def _file_type(dtype: np.dtype[np.void]) -> Any:
    return h5py.h5t.py_create(dtype, logical=True)


def make_path(file: Any, names: Iterable[str]) -> Any:
    """Return the group below others, which are made where they are missing."""
    group = file
    for name in names:
        encoded = name.encode()
        group = group[encoded] if encoded in group else group.create_group(encoded)
    return group
