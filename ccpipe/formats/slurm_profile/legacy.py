"""The layout of Slurm 2.6 to 14.11, described by the Profile Accounting Plugin API document.

A node-step file has one group for each sample; a job file has one dataset for each series. Both
are read as tables with modern fields; samples of node-step files are merged as the document
specifies (``ProfileSeries.merge``).
"""

from collections.abc import Iterator
from datetime import datetime

import numpy as np

from ccpipe.formats.slurm_profile.hdf5 import (
    DamagedProfileError,
    Dataset,
    Group,
    ProfileError,
    Records,
)
from ccpipe.formats.slurm_profile.names import step_name
from ccpipe.formats.slurm_profile.series import ELAPSED, EPOCH, SERIES, ProfileSeries
from ccpipe.formats.slurm_profile.table import NodeStep, RowsInMemory, Table

DATE_TIME, TIME = "Date_Time", "Time"
NODE, STEP = "Node_", "Step_"
TIME_SERIES = "Time Series"
FIRST_YEAR = 1971
"""The first whole year of Unix time in any zone."""


def is_legacy(root: Group) -> bool:
    return any(name.startswith((NODE, STEP)) for name in root)


class LegacyReader:
    """Reads the node-steps of one file."""

    def __init__(self, path: str, damage: list[ProfileError]) -> None:
        self._path = path
        self._damage = damage

    def read(self, root: Group, node_step: NodeStep) -> Iterator[tuple[NodeStep, list[Table]]]:
        """Return each node-step and its tables; `node_step` is from the file's name."""
        for name in root:
            if name.startswith(NODE):
                group = self._open(root, name)
                if group is not None:
                    yield self._node(group, node_step, name.removeprefix(NODE), is_job=False)
            elif name.startswith(STEP):
                step = self._open(root, name)
                nodes = self._open(step, "Nodes") if step else None
                for node in nodes or ():
                    group = self._open(nodes, node) if nodes else None
                    if group is not None:
                        named = NodeStep(
                            step=step_name(name.removeprefix(STEP)), node=node, job=node_step.job
                        )
                        yield self._node(group, named, node, is_job=True)

    def _node(
        self, group: Group, named: NodeStep, node: str, *, is_job: bool
    ) -> tuple[NodeStep, list[Table]]:
        attributes = group.attributes
        tasks = attributes.get("Number of Tasks")
        found = NodeStep(
            step=named.step,
            node=str(attributes.get("Node Name", node)),
            job=named.job,
            tasks=tasks if isinstance(tasks, int) else None,
            start_time=str(attributes.get("Start Time", "")),
        )
        series = self._open(group, TIME_SERIES) if TIME_SERIES in group else None
        tables: list[Table] = []
        for name in series or ():
            inner = self._open(series, name) if series else None
            if inner is not None:
                try:
                    tables.append(self._table(found, inner, name, is_job=is_job))
                except ProfileError as error:
                    self._damage.append(error)
        return found, tables

    def _table(self, node_step: NodeStep, group: Group, name: str, *, is_job: bool) -> Table:
        kind, task = _series(name)
        if kind is None:
            raise self._damaged(group, f"series {name!r:.80} is unknown")
        datasets = [group.open(inner) for inner in group] if is_job else list(_samples(group))
        read = [item.read() for item in datasets if isinstance(item, Dataset)]
        samples = [rows for rows in read if len(rows)]
        if not samples:
            return Table(node_step, kind.name, RowsInMemory(_modern(kind, [])), task=task)
        if not _has_times(samples[0].dtype):
            raise self._damaged(group, "samples without a time")
        if any(rows.dtype != samples[0].dtype for rows in samples):
            raise self._damaged(group, "samples of different types")
        rows = _modern(kind, samples)
        if is_job:
            rows[EPOCH] += np.uint64(self._first_time(group, samples, node_step))
        else:
            rows = kind.merge(rows)
            rows[ELAPSED] -= rows[ELAPSED][0]
        return Table(node_step, kind.name, RowsInMemory(rows), task=task)

    def _first_time(self, group: Group, samples: list[Records], node_step: NodeStep) -> int:
        """Return the Unix time of the first sample; job files only have its local time."""
        text = bytes(samples[0][DATE_TIME][0]).decode(errors="replace")
        try:
            start: datetime | None = datetime.strptime(text, "%Y-%m-%d %H:%M:%S")  # noqa: DTZ007
        except ValueError:
            start = node_step.local_start()
        if start is None or start.year < FIRST_YEAR:
            raise self._damaged(group, f"no date of the first sample: {text!r}")
        return int(start.timestamp())

    def _open(self, group: Group | None, name: str) -> Group | None:
        try:
            return group.group(name) if group else None
        except ProfileError as error:
            self._damage.append(error)
            return None

    def _damaged(self, group: Group, reason: str) -> DamagedProfileError:
        return DamagedProfileError(self._path, reason, group.path)


def _series(name: str) -> tuple[type[ProfileSeries] | None, str | None]:
    for kind in SERIES.values():
        if kind.per_task and name.startswith(f"{kind.legacy_name}_"):
            return kind, name.removeprefix(f"{kind.legacy_name}_")
        if name == kind.legacy_name:
            return kind, None
    return None, None


def _has_times(dtype: np.dtype[np.void]) -> bool:
    names = dtype.names or ()
    return (
        {DATE_TIME, TIME} <= set(names) and dtype[DATE_TIME].kind == "S" and dtype[TIME].kind == "u"
    )


def _samples(series: Group) -> Iterator[object]:
    """Return the dataset of each sample; names are in the order of the samples."""
    for name in series:
        sample = series.group(name)
        for inner in sample or ():
            yield sample.open(inner) if sample else None


def _modern(kind: type[ProfileSeries], samples: list[Records]) -> Records:
    """Rename and convert the fields of legacy records; both times are ``Time``."""
    dtype = samples[0].dtype if samples else np.dtype([])
    names = [name for name in dtype.names or () if dtype[name].kind in "uif"]
    renamed = {field.legacy: field for field in kind.fields if field.legacy in names}
    others = [name for name in names if name not in (DATE_TIME, TIME, *renamed)]
    for name in others:
        field = kind.field(name.replace("_", ""))
        if field is not None:
            renamed[name] = field
    rows = np.zeros(sum(map(len, samples)), kind.file_type(list(renamed.values())))
    start = 0
    for block in samples:
        part = rows[start : start + len(block)]
        part[ELAPSED] = part[EPOCH] = block[TIME]
        with np.errstate(invalid="ignore"):  # damaged numbers stay numbers
            for name, field in renamed.items():
                part[field.name] = block[name]
        start += len(block)
    return rows
