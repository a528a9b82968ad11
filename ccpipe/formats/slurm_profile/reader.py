"""Opens profile files: of a node-step or a job, in the modern and the legacy layout."""

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Self

import msgspec

from ccpipe.formats.slurm_profile.hdf5 import (
    DamagedProfileError,
    Dataset,
    ForeignProfileError,
    Group,
    Hdf5File,
    ProfileError,
)
from ccpipe.formats.slurm_profile.legacy import LegacyReader, is_legacy
from ccpipe.formats.slurm_profile.names import parse_file_name, step_name
from ccpipe.formats.slurm_profile.table import NodeStep, Table, is_table

STEPS, NODES, RUNS = "Steps", "Nodes", "Runs"
"""Groups of a job file. ``Runs`` is ccpipe's: earlier runs of a requeued job, each with steps."""

CLOSED = "ccpipe closed"
"""An attribute of node-step files written by ccpipe: 1 once complete."""


class Profile:
    """A profile file opened for reading. Damaged objects are skipped and listed in ``damage``."""

    def __init__(self, file: Hdf5File) -> None:
        self.path = file.path
        self.identity = file.identity
        """Device, inode, size and time of change of the file when it was opened."""
        self.damage: list[ProfileError] = []
        """The objects that could not be read."""
        self.node_steps: list[NodeStep] = []
        self.tables: list[Table] = []
        """In the order of their names, like libhdf5 and sh5util."""
        self.closed: bool | None = None
        """Whether ccpipe's writer completed it; None for files written by Slurm."""
        self._by_node_step: dict[NodeStep, list[Table]] = {}
        self._file = file
        self._read(file.root())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._file.close()

    def tables_of(self, node_step: NodeStep) -> list[Table]:
        return list(self._by_node_step.get(node_step, ()))

    def _read(self, root: Group) -> None:
        closed = root.attributes.get(CLOSED)
        self.closed = None if closed is None else bool(closed)
        name = parse_file_name(Path(self.path).name)
        named = NodeStep(
            step=name.step if name else "",
            node=name.node if name else "",
            job=name.job if name else None,
        )
        if is_legacy(root):
            for node_step, tables in LegacyReader(self.path, self.damage).read(root, named):
                self.node_steps.append(node_step)
                for table in tables:
                    self._add(table)
        elif STEPS in root:
            runs = self._group(root, RUNS) if RUNS in root else None
            for number in runs or ():
                run = self._group(runs, number)
                if run is not None and number.isdecimal():
                    self._read_steps(run, named.job, int(number))
            self._read_steps(root, named.job, len(runs or ()))
        else:
            for node in root:
                group = self._group(root, node)
                if group is not None:
                    self._read_node(group, msgspec.structs.replace(named, node=node))
        if not self.node_steps:
            nothing = ForeignProfileError(self.path, "an HDF5 file, but not a profile")
            raise self.damage[0] if self.damage else nothing

    def _read_steps(self, run: Group, job: int | None, number: int) -> None:
        steps = self._group(run, STEPS)
        for step in steps or ():
            outer = self._group(steps, step)
            nodes = self._group(outer, NODES)
            for node in nodes or ():
                group = self._group(nodes, node)
                if group is not None:
                    named = NodeStep(step=step_name(step), node=node, job=job, run=number)
                    self._read_node(group, named)

    def _read_node(self, group: Group, named: NodeStep) -> None:
        attributes = group.attributes
        numbers = {
            field: attributes.get(name)
            for field, name in (
                ("node_index", "Node Index"),
                ("tasks", "Number of Tasks"),
                ("cpus_per_task", "CPUs per Task"),
            )
        }
        found = msgspec.structs.replace(
            named,
            start_time=str(attributes.get("Start Time", "")),
            **{name: value if isinstance(value, int) else None for name, value in numbers.items()},
        )
        tables: list[Table] = []
        for series in group:
            opened = self._open(group, series)
            if isinstance(opened, Dataset):
                tables += self._table(found, opened, series, None)
            for task in opened if isinstance(opened, Group) else ():
                table = self._open(opened, task) if isinstance(opened, Group) else None
                if isinstance(table, Dataset):
                    tables += self._table(found, table, series, task)
        if tables or "Node Name" in attributes:
            self.node_steps.append(found)
            for made in tables:
                self._add(made)

    def _table(
        self, node_step: NodeStep, dataset: Dataset, series: str, task: str | None
    ) -> list[Table]:
        if not is_table(dataset.dtype):
            self.damage.append(ForeignProfileError(self.path, "not a time series", dataset.path))
            return []
        if len(dataset) < dataset.claimed:
            lost = f"{dataset.claimed - len(dataset)} of {dataset.claimed} rows are missing"
            self.damage.append(DamagedProfileError(self.path, lost, dataset.path))
        return [Table(node_step, series, dataset, task=task)]

    def _add(self, table: Table) -> None:
        self.tables.append(table)
        self._by_node_step.setdefault(table.node_step, []).append(table)

    def _group(self, parent: Group | None, name: str) -> Group | None:
        found = self._open(parent, name) if parent is not None and name in parent else None
        return found if isinstance(found, Group) else None

    def _open(self, parent: Group, name: str) -> Group | Dataset | None:
        try:
            return parent.open(name)
        except ProfileError as error:
            where = f"{parent.path.rstrip('/')}/{name}"
            self.damage.append(type(error)(self.path, error.reason, error.where or where))
            return None


def open_profile(path: str | PathLike[str]) -> Profile:
    """Open a profile file.

    The structure is read at once, rows when a table is read. Raises LiveProfileError for a file
    that Slurm has not written to yet; DamagedProfileError or ForeignProfileError if nothing can be
    read. Partial damage is in ``Profile.damage``.
    """
    file = Hdf5File(path)
    try:
        return Profile(file)
    except BaseException:
        file.close()
        raise


def last_runs(tables: Sequence[Table]) -> list[Table]:
    """Select the tables of a job's last run."""
    last = max((table.node_step.run for table in tables), default=0)
    return [table for table in tables if table.node_step.run == last]
