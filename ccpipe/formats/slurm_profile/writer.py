"""Writes node-step files like Slurm's plug-in, but readable while the step runs.

Slurm's plug-in leaves a file of 96 bytes until the step ends, and nothing if slurmstepd is killed.
Here every ``flush()`` makes all samples visible to ``sh5util``, and a file whose writer is killed
by SIGKILL, at any write, opens with all rows of the last flush.

Why not SWMR, HDF5's mode for concurrent reading: it does not allow new tables, while tasks start
one by one; and ``sh5util`` and other plain readers refuse a file whose SWMR writer was killed until
``h5clear`` has been run on it (20 of 20 in a trial; with ordered flushes none).
"""

import functools
import os
import time
from collections.abc import Iterable, Mapping
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Self

import msgspec
import numpy as np

from ccpipe.errors import EncodeError, MissingExtra
from ccpipe.formats.slurm_profile.hdf5 import Records
from ccpipe.formats.slurm_profile.names import parse_file_name
from ccpipe.formats.slurm_profile.ordered_file import OrderedFile
from ccpipe.formats.slurm_profile.reader import CLOSED
from ccpipe.formats.slurm_profile.series import NO_VALUE, make_fields, series_type
from ccpipe.formats.slurm_profile.table import NodeStep

try:
    import h5py
except ImportError:
    raise MissingExtra("h5py", "hdf5") from None

FORMAT: Any = ("earliest", "v110")
"""Bounds of libhdf5's file format, readable by sh5util of every version."""

SLURM_CHUNK = 10
"""Rows per chunk in files of Slurm's plug-in, which deflates them at level 0."""

Number = int | float | None
"""A value of a sample; None is written as ``NO_VAL64``, Slurm's sentinel."""

MAX_HELD = 10_000
"""Samples in memory before an automatic flush."""

CHUNK_CACHE = 16 * 2**10
"""Bytes of libhdf5's cache per table: the chunk that is being filled."""


def create_file(target: Any, **options: Any) -> Any:
    return h5py.File(target, "w", libver=FORMAT, **options)


def write_attributes(group: Any, node_step: NodeStep) -> None:
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
    """Write or replace one int32, as an array of one element like Slurm."""
    if name in group.attrs:
        group.attrs.modify(name, np.array([number], "<i4"))
    else:
        group.attrs.create(name, np.array([number], "<i4"))


def write_text(group: Any, name: str, text: str) -> None:
    """Write a text without a final NUL, although its type is NUL-terminated."""
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
        self.dtype = dtype
        self.rows = 0
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
    """Return the group at a path, creating missing groups."""
    group = file
    for name in names:
        encoded = name.encode()
        group = group[encoded] if encoded in group else group.create_group(encoded)
    return group


class _Samples:
    """One table and its samples that are not written yet."""

    def __init__(self, dtype: np.dtype[np.void]) -> None:
        self.dtype = dtype
        self.names = (dtype.names or ())[2:]
        self.held: list[tuple[int | float, ...]] = []
        self.table: TableWriter | None = None


class NodeStepWriter:
    """Writes the file of one step on one node. Not thread-safe."""

    def __init__(
        self, path: str | PathLike[str], node_step: NodeStep, *, start: float | None = None
    ) -> None:
        """Create the file, readable by its owner only; an existing file is renamed.

        `start` is the step's start in Unix seconds, by default now; ``ElapsedTime`` counts from it,
        and it is the attribute ``Start Time`` unless `node_step` has one.
        """
        self.path = fspath(path)
        self.start = time.time() if start is None else start
        text = node_step.start_time or time.ctime(self.start)
        self.node_step = msgspec.structs.replace(node_step, start_time=text)
        keep_aside(Path(path))
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        self._ordered = OrderedFile(os.open(path, flags, 0o600))
        self._file: Any = create_file(self._ordered, rdcc_nbytes=CHUNK_CACHE, rdcc_nslots=11)
        write_number(self._file, CLOSED, 0)
        self._group = self._file.create_group(self.node_step.node)
        write_attributes(self._group, self.node_step)
        self._tables: dict[tuple[str, int | str | None], _Samples] = {}
        self._held = 0
        self._commit()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def create_table(
        self,
        series: str,
        task: int | str | None = None,
        fields: Iterable[tuple[str, type[int] | type[float]]] | None = None,
    ) -> None:
        """Define the fields of a table; by default, the fields of its series.

        Nothing is written before the first sample. `task` is the global task id, for series with
        tasks, or another name of a table in the group `series`. Raises EncodeError if the table
        exists, or a field is invalid.
        """
        kind = series_type(series)
        if (series, task) in self._tables:
            raise EncodeError(f"{series}: the table of task {task} exists already")
        for name in (series, "0" if task is None else str(task)):
            if not name.isprintable() or not name.strip(" .") or "/" in name:
                raise EncodeError(f"{name!r:.80} cannot name a series")
        if fields is None and not kind.fields:
            raise EncodeError(f"{series}: not a known series, so its fields must be named")
        chosen = kind.fields if fields is None else make_fields(fields)
        self._tables[series, task] = _Samples(kind.file_type(chosen))

    def append(
        self,
        series: str,
        values: Mapping[str, Number],
        time: float,
        task: int | str | None = None,
    ) -> None:
        """Add a sample taken at `time`, in Unix seconds; fields without a value are missing.

        Written by the next ``flush()``. Raises EncodeError for unknown fields and for numbers out
        of range.
        """
        if (series, task) not in self._tables:
            self.create_table(series, task)
        samples = self._tables[series, task]
        unknown = set(values) - set(samples.names)
        if unknown:
            raise EncodeError(f"{series}: no field {min(unknown)!r:.80}")
        seconds = _integer(series, "time", time)
        elapsed = max(0, int(time - self.start))
        row = [_number(series, name, values.get(name), samples.dtype) for name in samples.names]
        samples.held.append((elapsed, seconds, *row))
        self._held += 1
        if self._held >= MAX_HELD:
            self.flush()

    def flush(self) -> None:
        """Write all new samples; the cost does not depend on the size of the file."""
        for (series, task), samples in self._tables.items():
            if samples.held:
                if samples.table is None:
                    samples.table = self._make_table(series, task, samples.dtype)
                samples.table.append(np.array(samples.held, samples.dtype))
                samples.held.clear()
        self._held = 0
        self._commit()

    def close(self) -> None:
        if self._file:
            self.flush()
            write_number(self._file, CLOSED, 1)
            self._commit()
            self._file.close()
            self._ordered.close()

    def detach(self) -> None:
        """Stop writing to the file, in a process forked from the writer."""
        self._ordered.detach_file()

    def _make_table(
        self, series: str, task: int | str | None, dtype: np.dtype[np.void]
    ) -> TableWriter:
        if task is None:
            return TableWriter(self._group, series, dtype)
        return TableWriter(self._group.require_group(series), str(task), dtype)

    def _commit(self) -> None:
        self._file.flush()
        self._ordered.flush()


def keep_aside(path: Path) -> Path | None:
    """Rename the file of an earlier run, which Slurm would overwrite; return its new path.

    The files of a job requeued onto the same node have the same names. sh5util skips the new name,
    which begins with a dot; ``merge`` reads it.
    """
    name = parse_file_name(path.name)
    if not path.exists() or path.stat().st_size == 0:
        return None
    number = 0
    while True:
        kept = path.with_name(
            name.kept_name(number) if name else f".{path.stem}.{number}{path.suffix}"
        )
        try:
            os.link(path, kept)
        except FileExistsError:
            number += 1
        else:
            path.unlink()
            return kept


def _number(series: str, name: str, value: Number, dtype: np.dtype[np.void]) -> int | float:
    if dtype[name].kind == "f":
        return float(NO_VALUE if value is None else value)
    return NO_VALUE if value is None else _integer(series, name, value)


def _integer(series: str, name: str, value: float) -> int:
    try:
        number = int(value)
    except (ValueError, OverflowError):
        number = -1
    if not 0 <= number < 2**64:
        raise EncodeError(f"{series}: {name} is {value!r}, not a number from 0 to 2^64-1")
    return number
