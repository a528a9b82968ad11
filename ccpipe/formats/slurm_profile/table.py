"""The contents of a profile file: node-steps, and the tables sampled in each."""

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Any, Protocol

import msgspec
import numpy as np

from ccpipe.formats.slurm_profile.hdf5 import DamagedProfileError, Records
from ccpipe.formats.slurm_profile.series import ELAPSED, EPOCH, ProfileSeries, series_type

BLOCK_ROWS = 65_536
"""Rows in memory at a time; a day at one sample a second has 86 400."""

BLOCK_BYTES = 16 * 2**20
"""Bytes in memory at a time, if rows are long."""

Rule = Callable[[Iterator[Records]], Iterator[Records]]
"""Transforms the rows of one table block by block; may delay rows."""


class RowSource(Protocol):
    """Rows, in a file or in memory."""

    def __len__(self) -> int: ...

    @property
    def dtype(self) -> np.dtype[Any]: ...

    def read(self, start: int, stop: int) -> Records: ...


class RowsInMemory:
    """Computed rows."""

    def __init__(self, rows: Records) -> None:
        self._rows = rows
        self.dtype: np.dtype[Any] = rows.dtype

    def __len__(self) -> int:
        return len(self._rows)

    def read(self, start: int, stop: int) -> Records:
        return self._rows[start:stop]


class NodeStep(msgspec.Struct, frozen=True, kw_only=True):
    """One step on one node, from the attributes of its group."""

    step: str
    """A number, ``batch``, ``interactive`` or ``extern``; empty if unknown."""
    node: str
    job: int | None = None
    """The raw job id, if known from the file's name."""
    node_index: int | None = None
    """The node's index in the step, from 0."""
    tasks: int | None = None
    cpus_per_task: int | None = None
    start_time: str = ""
    """Local time without a zone, in the format of ctime(3)."""
    run: int = 0
    """The run of a requeued job, from 0, among those in the file."""

    def local_start(self) -> datetime | None:
        """Return the start in the local time of the node; None if it is missing."""
        try:
            return datetime.strptime(self.start_time, "%a %b %d %H:%M:%S %Y")  # noqa: DTZ007
        except ValueError:
            return None


class Table:
    """One time series of a node-step, per task if the series has tasks."""

    def __init__(
        self,
        node_step: NodeStep,
        series: str,
        source: RowSource,
        *,
        task: str | None = None,
        rules: Sequence[Rule] = (),
    ) -> None:
        self.node_step = node_step
        self.series = series
        self.task = task
        """The global task id in decimal; None for series of the node."""
        self.source = source
        self.rules = tuple(rules)

    def __repr__(self) -> str:
        return f"<Table {self.path}, {len(self.source)} rows>"

    @property
    def path(self) -> str:
        """The name of the table within a job file."""
        step = self.node_step
        task = "" if self.task is None else f"/{self.task}"
        return f"/Steps/{step.step}/Nodes/{step.node}/{self.series}{task}"

    @property
    def type(self) -> type[ProfileSeries]:
        return series_type(self.series)

    @property
    def dtype(self) -> np.dtype[np.void]:
        """The type of a row: little-endian numbers of 8 bytes, without gaps."""
        return _canonical(self.source.dtype)

    @property
    def fields(self) -> tuple[str, ...]:
        """The names of all fields in the order of the file, ``ElapsedTime`` first."""
        return self.dtype.names or ()

    def __len__(self) -> int:
        """Return the number of stored rows; rules may drop some."""
        return len(self.source)

    def with_rules(self, *rules: Rule) -> "Table":
        step, series = self.node_step, self.series
        return Table(step, series, self.source, task=self.task, rules=(*self.rules, *rules))

    def blocks(
        self, rows: int = BLOCK_ROWS, damage: list[DamagedProfileError] | None = None
    ) -> Iterator[Records]:
        """Read the table in blocks of about that many rows.

        Errors of unreadable rows are added to `damage`; without it, raises DamagedProfileError.
        """
        blocks = self._stored(rows, damage)
        for rule in self.rules:
            blocks = rule(blocks)
        return blocks

    def read(self) -> Records:
        found = list(self.blocks())
        return found[0] if len(found) == 1 else np.concatenate([np.empty(0, self.dtype), *found])

    def _stored(self, rows: int, damage: list[DamagedProfileError] | None) -> Iterator[Records]:
        """Read rows, except trailing ones that were allocated but never written."""
        dtype, end = self.dtype, len(self.source)
        rows = max(1, min(rows, BLOCK_BYTES // max(1, self.source.dtype.itemsize)))
        ranges = [(start, min(start + rows, end)) for start in range(0, end, rows)][::-1]
        while ranges:
            start, stop = ranges.pop()
            try:
                block = self.source.read(start, stop)
            except DamagedProfileError as error:
                if damage is None:
                    raise
                if stop - start > 1:
                    middle = (start + stop) // 2
                    ranges += [(middle, stop), (start, middle)]
                elif not damage or damage[-1].reason != error.reason:
                    damage.append(error)
                continue
            with np.errstate(invalid="ignore"):  # damaged numbers stay numbers
                block = block if block.dtype == dtype else block.astype(dtype)
            if stop == end and not block[EPOCH][-1]:
                written = np.flatnonzero(block[EPOCH])
                block = block[: written[-1] + 1 if len(written) else 0]
            if len(block):
                yield block


def _canonical(dtype: np.dtype[Any]) -> np.dtype[np.void]:
    """Return the packed type with the same fields as little-endian 8-byte numbers."""
    assert dtype.names is not None
    kinds = {"u": "<u8", "i": "<i8", "f": "<f8"}
    return np.dtype([(name, kinds.get(dtype[name].kind, dtype[name])) for name in dtype.names])


def is_table(dtype: np.dtype[Any]) -> bool:
    """Return whether a row type consists of the two times and numbers."""
    names = dtype.names or ()
    return (
        names[:2] == (ELAPSED, EPOCH)
        and len(names) > 2  # noqa: PLR2004 - two times and something else
        and all(dtype[name].kind in "uif" for name in names)
        and dtype[ELAPSED].kind == dtype[EPOCH].kind == "u"
    )
