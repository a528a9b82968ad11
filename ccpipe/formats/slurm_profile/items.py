"""One field of all tables of a step side by side, with its minimum, maximum, sum and average."""

from collections.abc import Iterator, Sequence

import msgspec
import numpy as np

from ccpipe.errors import DataError
from ccpipe.formats.slurm_profile.extract import csv_text
from ccpipe.formats.slurm_profile.hdf5 import Array
from ccpipe.formats.slurm_profile.series import ELAPSED, EPOCH
from ccpipe.formats.slurm_profile.table import Table

MIN_BLOCK = 64
ROWS_IN_MEMORY = 4_000_000
"""For all tables of a step together."""


class ItemRow(msgspec.Struct):
    """All tables of a step at one time."""

    step: str
    elapsed: int
    """The largest number of seconds since the step's start on any node."""
    time: int | None
    """Unix seconds; None if rows are not aligned by time."""
    min_table: str
    min: int | float
    max_table: str
    max: int | float
    sum: int | float
    average: float
    count: int
    """Tables that have a value."""
    values: dict[str, int | float]
    """By the name of the table: ``c1``, or ``0 c1`` for task 0."""
    is_float: bool = False


class Peak(msgspec.Struct):
    """Where the sum over all tables of a step was largest."""

    step: str
    sum: int | float
    elapsed: int
    average: float

    def text(self, item: str) -> str:
        form = "%f" if isinstance(self.sum, float) else "%d"
        return (
            f"    Step {self.step} Maximum accumulated {item} Value ({form % self.sum})"
            f" occurred at Time={self.elapsed}, Ave Node {self.average:f}"
        )


def find_peaks(rows: Sequence[ItemRow] | Iterator[ItemRow]) -> Iterator[Peak]:
    peak: Peak | None = None
    for row in rows:
        if peak is None or peak.step != row.step:
            if peak is not None:
                yield peak
            peak = Peak(row.step, 0.0 if row.is_float else 0, 0, 0.0)
        if row.sum > peak.sum:
            peak = Peak(row.step, row.sum, row.elapsed, row.average)
    if peak is not None:
        yield peak


def list_names(tables: Sequence[Table]) -> list[str]:
    return list(dict.fromkeys(map(_name, tables)))


def align_item(tables: Sequence[Table], item: str, *, interval: int = 1) -> Iterator[ItemRow]:
    """Return a field of all tables, aligned by the time of the samples.

    Samples in the same `interval` of seconds are one row, with the last non-missing value of each
    table. The field's name may be in upper or lower case. Raises DataError if no table has the
    field, or it is an integer in some tables only.
    """
    for step, columns in _by_step(tables, item):
        yield from _align(step, columns, interval)


def zip_item(tables: Sequence[Table], item: str) -> Iterator[ItemRow]:
    """Return a field of all tables row by row, regardless of the rows' times, like sh5util.

    Ended tables show 0. Several tables, and floating point fields, which sh5util up to 25.11 does
    not support, are handled as by 26.05. Raises DataError like ``align_item``, and
    DamagedProfileError.
    """
    for step, columns in _by_step(tables, item):
        names = [_name(table) for table, _ in columns]
        rows = [_rows(table, name) for table, name in columns]
        while True:
            found = [next(row, None) for row in rows]
            present = [name for name, row in zip(names, found, strict=True) if row]
            if not present:
                break
            values = [row[1] for row in found if row]
            elapsed = [row[0] for row in found if row][-1]
            shown = {name: row[1] if row else 0 for name, row in zip(names, found, strict=True)}
            yield _item_row(step, elapsed, None, present, values, shown)


def _item_row(
    step: str,
    elapsed: int,
    time: int | None,
    names: Sequence[str],
    values: Sequence[int | float],
    shown: dict[str, int | float],
) -> ItemRow:
    low, high, total = min(values), max(values), sum(values)
    return ItemRow(
        step=step,
        elapsed=elapsed,
        time=time,
        min_table=names[values.index(low)],
        min=low,
        max_table=names[values.index(high)],
        max=high,
        sum=total,
        average=float(total) / len(values),
        count=len(values),
        values=shown,
        is_float=isinstance(total, float),
    )


def item_csv(rows: Iterator[ItemRow], names: Sequence[str]) -> Iterator[bytes]:
    heads = "Step,ElapsedTime,EpochTime,MinNode,MinValue,MaxNode,MaxValue,Sum,Avg,NumNodes"
    yield _encode(",".join([heads, *map(csv_text, names)]))
    for row in rows:
        form = "%f" if row.is_float else "%d"
        values = [form % row.values[name] if name in row.values else "" for name in names]
        yield _encode(",".join([*_summary(row, form, str(row.time)), *values]))


def sh5util_item_csv(rows: Iterator[ItemRow], tables: Sequence[Table]) -> Iterator[bytes]:
    """Write rows of ``zip_item`` as sh5util does, with its spelling and its titles of columns."""
    titles = [
        table.node_step.node if table.task else f"{table.series} {table.node_step.node}"
        for table in tables
        if table.node_step.step == tables[0].node_step.step
    ]
    heads = "Step,ElaspedTime,MinNode,MinValue,MaxNode,MaxValue,Sum,Avg,NumNodes"
    yield _encode(",".join([heads, *titles]))
    for row in rows:
        form = "%d" if not row.is_float else "%f"
        values = [form % value for value in row.values.values()]
        yield _encode(",".join([*_summary(row, form), *values]))


def _summary(row: ItemRow, form: str, *time: str) -> list[str]:
    return [
        csv_text(row.step),
        str(row.elapsed),
        *time,
        csv_text(row.min_table),
        form % row.min,
        csv_text(row.max_table),
        form % row.max,
        form % row.sum,
        f"{row.average:f}",
        str(row.count),
    ]


def _encode(line: str) -> bytes:
    return f"{line}\n".encode()


def _name(table: Table) -> str:
    node = table.node_step.node
    return node if table.task is None else f"{table.task} {node}"


Columns = list[tuple[Table, str]]


def _by_step(tables: Sequence[Table], item: str) -> Iterator[tuple[str, Columns]]:
    steps: dict[tuple[int, str], Columns] = {}
    kinds: set[str] = set()
    for table in tables:
        name = next((name for name in table.fields if name.lower() == item.lower()), None)
        if name is not None:
            kinds.add("f" if table.dtype[name].kind == "f" else "i")
            steps.setdefault((table.node_step.run, table.node_step.step), []).append((table, name))
    if tables and not steps:
        raise DataError(f"no table has the field {item!r:.80}")
    if len(kinds) > 1:
        raise DataError(f"{item!r:.80} is an integer in some tables and not in others")
    for (_, step), columns in steps.items():
        yield step, columns


def _rows(table: Table, name: str) -> Iterator[tuple[int, int | float]]:
    for block in table.blocks():
        yield from zip(block[ELAPSED].tolist(), block[name].tolist(), strict=True)


class _Column:
    """The samples of one table that are not in a row yet."""

    def __init__(self, table: Table, name: str, interval: int, rows: int) -> None:
        self.name = _name(table)
        self._table, self._field, self._interval = table, name, interval
        self._blocks = table.blocks(rows)
        self.ended = False
        self.slots = np.empty(0, "<i8")
        self.elapsed = np.empty(0, "<i8")
        self.values: Array = np.empty(0, table.dtype[name])

    def load(self) -> None:
        block = next(self._blocks, None)
        if block is None:
            self.ended = True
            return
        block = block[~self._table.type.missing(block, self._field)]
        slots = block[EPOCH].astype("<i8") // self._interval
        self.slots = np.concatenate([self.slots, slots])
        self.elapsed = np.concatenate([self.elapsed, block[ELAPSED].astype("<i8")])
        self.values = np.concatenate([self.values, block[self._field]])

    def take(self, horizon: int) -> tuple[Array, Array, Array]:
        """Remove and return slots up to a horizon, with the last sample of each."""
        ready = self.slots <= horizon
        slots, positions = np.unique(self.slots[ready][::-1], return_index=True)
        elapsed = self.elapsed[ready][::-1][positions]
        values = self.values[ready][::-1][positions]
        self.slots, self.elapsed = self.slots[~ready], self.elapsed[~ready]
        self.values = self.values[~ready]
        return slots, elapsed, values


def _align(step: str, columns: Columns, interval: int) -> Iterator[ItemRow]:
    rows = max(MIN_BLOCK, ROWS_IN_MEMORY // len(columns))
    waiting = [_Column(table, name, interval, rows) for table, name in columns]
    while True:
        for column in waiting:
            while not column.ended and len(np.unique(column.slots)) < 2:  # noqa: PLR2004 - see below
                column.load()  # the last slot may continue in the next block
        ends = [int(column.slots.max()) - 1 for column in waiting if not column.ended]
        if ends:
            horizon = min(ends)
        elif any(len(column.slots) for column in waiting):
            horizon = max(int(column.slots.max()) for column in waiting if len(column.slots))
        else:
            return
        yield from _window(step, waiting, horizon, interval)


def _window(step: str, columns: list[_Column], horizon: int, interval: int) -> Iterator[ItemRow]:
    taken = [column.take(horizon) for column in columns]
    slots = np.unique(np.concatenate([slot for slot, _, _ in taken]))
    shape = (len(slots), len(columns))
    present = np.zeros(shape, np.bool_)
    elapsed = np.zeros(shape, "<i8")
    values: Array = np.zeros(shape, taken[0][2].dtype)
    for number, (mine, seconds, numbers) in enumerate(taken):
        lines = np.searchsorted(slots, mine)
        present[lines, number] = True
        elapsed[lines, number] = seconds
        values[lines, number] = numbers
    for line, slot in enumerate(slots.tolist()):
        there = np.flatnonzero(present[line])
        names = [columns[number].name for number in there.tolist()]
        found = values[line, there].tolist()
        shown = dict(zip(names, found, strict=True))
        yield _item_row(step, int(elapsed[line].max()), slot * interval, names, found, shown)
