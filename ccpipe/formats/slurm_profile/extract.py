"""Extracts series from profiles: as CSV in sh5util's format, and as plain records.

The CSV is identical to sh5util's, to the byte, except for sh5util's errors: it prints sentinels as
numbers (here: empty), puts the fields of another version of Slurm into the wrong columns, starts
the maximum of negative numbers at 0, lets sums overflow, and fails if one step lacks the series
(here: the rest is extracted).
"""

import enum
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from ccpipe.errors import DataError
from ccpipe.formats.slurm_metrics import to_metrics
from ccpipe.formats.slurm_profile.hdf5 import Records
from ccpipe.formats.slurm_profile.series import ELAPSED, FieldTotal
from ccpipe.formats.slurm_profile.table import Table
from ccpipe.message import Message

Value = int | float | str | None


class Level(enum.StrEnum):
    """The scope of a row."""

    NODE_TIME_SERIES = "Node:TimeSeries"
    NODE_TOTALS = "Node:Totals"
    """A whole table: minimum, maximum, sum and average of each field."""
    STEP_TOTALS = "Step:Totals"


def parse_level(text: str) -> Level:
    """Return the level of that name, in upper or lower case; raises DataError if unknown."""
    for level in Level:
        if level.lower() == text.lower():
            return level
    raise DataError(f"not a level: {text!r:.80} (expected one of {', '.join(Level)})")


def common_fields(tables: Sequence[Table]) -> list[str]:
    shared = set.intersection(*(set(table.fields) for table in tables)) if tables else set()
    return [name for name in tables[0].fields if name in shared] if tables else []


def all_fields(tables: Sequence[Table]) -> list[str]:
    return list(dict.fromkeys(name for table in tables for name in table.fields))


def by_series(tables: Sequence[Table]) -> dict[str, list[Table]]:
    groups: dict[str, list[Table]] = {}
    for table in tables:
        groups.setdefault(table.series, []).append(table)
    return groups


def extract_csv(
    tables: Sequence[Table], level: Level = Level.NODE_TIME_SERIES, *, sentinels: bool = False
) -> Iterator[bytes]:
    """Write tables of one series as CSV, in pieces.

    Missing values are left empty and do not count in totals; with `sentinels` they are treated as
    numbers, like sh5util does. Raises DataError for tables of several series; DamagedProfileError
    if rows cannot be read.
    """
    _check(tables)
    fields = common_fields(tables)
    keys = _key_names(tables, level)
    if level is Level.NODE_TIME_SERIES:
        yield _line([*keys, *fields])
        for table in tables:
            yield from _rows(table, [_key(table)[name] for name in keys], fields, raw=sentinels)
        return
    names = [name for name in fields if name != ELAPSED]
    heads = [f"{what}_{name}" for name in names for what in ("Min", "Max", "Sum", "Avg")]
    yield _line([*keys, ELAPSED, *heads] if tables else keys)
    for row in _totals(tables, names, level, sentinels=sentinels):
        texts = [_total_text(row.table, name, total) for name, total in row.totals.items()]
        elapsed = "" if row.elapsed is None else str(row.elapsed)
        yield _line([*(csv_text(row.keys[name]) for name in keys), elapsed, *texts])


def extract_records(
    tables: Sequence[Table], level: Level = Level.NODE_TIME_SERIES
) -> Iterator[dict[str, Value]]:
    """Return the same rows as records by column name, with None for missing values.

    Raises DataError and DamagedProfileError like ``extract_csv``.
    """
    _check(tables)
    fields = common_fields(tables)
    keys = _key_names(tables, level)
    if level is Level.NODE_TIME_SERIES:
        for table in tables:
            named = {name: _key(table)[name] for name in keys}
            for block in table.blocks():
                columns = [_column(table, block, name) for name in fields]
                for values in zip(*columns, strict=True):
                    yield {**named, **dict(zip(fields, values, strict=True))}
        return
    for row in _totals(tables, [name for name in fields if name != ELAPSED], level):
        record: dict[str, Value] = {name: row.keys[name] for name in keys}
        record[ELAPSED] = row.elapsed
        for name, total in row.totals.items():
            record[f"Min_{name}"], record[f"Max_{name}"] = total.min, total.max
            record[f"Sum_{name}"], record[f"Avg_{name}"] = total.sum, total.average
        yield record


class _TotalRow(msgspec.Struct):
    table: Table
    """The first one, which has the types."""
    keys: dict[str, str]
    elapsed: int | None
    totals: dict[str, FieldTotal]


def _totals(
    tables: Sequence[Table], names: list[str], level: Level, *, sentinels: bool = False
) -> Iterator[_TotalRow]:
    joined: dict[tuple[int, str], _TotalRow] = {}
    for table in tables:
        elapsed: list[int] = []
        totals = table.type.total(_watched(table, elapsed), names, raw=sentinels)
        row = _TotalRow(table, _key(table), elapsed[-1] if elapsed else None, totals)
        if level is Level.NODE_TOTALS:
            yield row
            continue
        key = table.node_step.run, table.node_step.step
        if key in joined:
            first = joined[key]
            first.totals = {name: first.totals[name].join(totals[name]) for name in names}
            first.elapsed = max(first.elapsed or 0, row.elapsed or 0)
        else:
            joined[key] = row
    yield from joined.values()


def _watched(table: Table, elapsed: list[int]) -> Iterator[Records]:
    for block in table.blocks():
        elapsed[:] = [int(block[ELAPSED][-1])]
        yield block


def _total_text(table: Table, name: str, total: FieldTotal) -> str:
    if total.min is None:
        return ",,,"
    form = _form(table, name)
    return f"{form},{form},{form},%f" % (total.min, total.max, total.sum, total.average)


def _form(table: Table, name: str) -> str:
    return "%f" if table.dtype[name].kind == "f" else "%d"


def _rows(table: Table, keys: list[str], fields: list[str], *, raw: bool) -> Iterator[bytes]:
    prefix = ",".join(map(csv_text, keys)) + ","
    forms = [_form(table, name) for name in fields]
    line = f"{prefix.replace('%', '%%')}{','.join(forms)}\n"
    for block in table.blocks():
        if raw or not any(table.type.missing(block, name).any() for name in fields):
            text = "".join(map(line.__mod__, block[fields].tolist()))
        else:
            columns = [
                ["" if value is None else one % value for value in _column(table, block, name)]
                for name, one in zip(fields, forms, strict=True)
            ]
            text = "".join(f"{prefix}{','.join(row)}\n" for row in zip(*columns, strict=True))
        yield text.encode()


def _column(table: Table, block: Records, name: str) -> list[Value]:
    values: list[Value] = block[name].tolist()
    for position in table.type.missing(block, name).nonzero()[0].tolist():
        values[position] = None
    return values


def _key(table: Table) -> dict[str, str]:
    step = table.node_step
    return {
        "Run": str(step.run),
        "Step": step.step,
        "Node": step.node,
        "Series": table.task or "",
    }


def _key_names(tables: Sequence[Table], level: Level) -> list[str]:
    """Return the columns that identify a row."""
    runs = {table.node_step.run for table in tables}
    tasks = any(table.task is not None for table in tables)
    step = [*(["Run"] if len(runs) > 1 else []), "Step"]
    if level is Level.STEP_TOTALS:
        return step
    return [*step, "Node", *(["Series"] if tasks else [])]


def _check(tables: Sequence[Table]) -> None:
    series = sorted({table.series for table in tables})
    if len(series) > 1:
        raise DataError(f"one series at a time: {', '.join(series)}")


def csv_text(text: str) -> str:
    """Quote a text if CSV requires it."""
    if any(mark in text for mark in ',"\r\n'):
        doubled = text.replace('"', '""')
        return f'"{doubled}"'
    return text


def _line(cells: Sequence[str]) -> bytes:
    return (",".join(cells) + "\n").encode()


_KEYS = ("Run", "Step", "Node", "Series", "ElapsedTime", "EpochTime")


def samples(
    tables: Sequence[Table], cluster: str, job: str | None = None
) -> Iterator[list[Message]]:
    """Yield each sample as metrics, tagged as ``ccpipe step --publish`` does.

    `job` is the job of tables whose file does not name it.
    """
    for table in tables:
        step = table.node_step
        for record in extract_records([table]):
            values: dict[str, Any] = {
                name: value for name, value in record.items() if name not in _KEYS
            }
            seconds = record["EpochTime"]
            if not isinstance(seconds, int):
                continue  # a sample without a time
            yield list(
                to_metrics(
                    table.series,
                    values,
                    seconds * 10**9,
                    cluster=cluster,
                    node=step.node,
                    job=job if step.job is None else str(step.job),
                    step=step.step,
                    task=table.task,
                )
            )
