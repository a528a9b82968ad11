"""The tables: rows, sort order and filter of each."""

import math
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, NamedTuple

from ccpipe.cli.console.quantity import short
from ccpipe.cli.top.model import Model
from ccpipe.terminal import printable


class Column(NamedTuple):
    """A column: title and unit, and whether large values come first."""

    head: str
    unit: str = ""
    descending: bool = True

    @property
    def justify(self) -> Literal["left", "right"]:
        """Alignment: numbers to the right."""
        return "right" if self.descending or self.unit else "left"


class TopRow(NamedTuple):
    """A row: its key, and the raw values of its cells."""

    key: str
    values: tuple[Any, ...]


class TopView(NamedTuple):
    """One of the tables."""

    columns: tuple[Column, ...]
    rows: Callable[[Model], Iterable[TopRow]]


def _text(head: str) -> Column:
    return Column(head, descending=False)


def _clusters(model: Model) -> Iterable[TopRow]:
    for cluster in model.clusters.values():
        nodes = [node for node in model.nodes.values() if node.cluster == cluster.name]
        silent = sum(map(model.is_silent, nodes))
        jobs = sum(job.cluster == cluster.name and not job.ended for job in model.jobs.values())
        load = math.fsum(node.load for node in nodes if not math.isnan(node.load))
        yield TopRow(
            cluster.name,
            (cluster.name, len(nodes), silent, jobs, load, cluster.rate, cluster.bytes,
             cluster.dead, cluster.errors),
        )  # fmt: skip


def _nodes(model: Model) -> Iterable[TopRow]:
    for node in model.nodes.values():
        used = 100 * node.memory / node.memory_total if node.memory_total > 0 else math.nan
        yield TopRow(
            f"{node.cluster}/{node.name}",
            (node.cluster, node.name, node.load, node.busy, node.memory, used,
             node.whole("network"), node.flops, node.whole("power"), node.gpus, len(node.jobs),
             node.rate, time.time() - node.heard if node.heard else math.nan),
        )  # fmt: skip


def _jobs(model: Model) -> Iterable[TopRow]:
    for job in model.jobs.values():
        nodes = model.nodes_of(job)
        loads = [node.load for node in nodes if not math.isnan(node.load)]
        memory = [node.memory for node in nodes if not math.isnan(node.memory)]
        flops = [node.flops for node in nodes if not math.isnan(node.flops)]
        yield TopRow(
            f"{job.cluster}/{job.id}",
            (job.cluster, job.id, job.user, job.partition, job.state, len(job.nodes),
             math.fsum(loads) / len(loads) if loads else math.nan,
             max(memory, default=math.nan), math.fsum(flops) if flops else math.nan,
             time.time() - job.start if job.start else math.nan),
        )  # fmt: skip


def _gpus(model: Model) -> Iterable[TopRow]:
    for gpu in model.gpus.values():
        yield TopRow(
            f"{gpu.cluster}/{gpu.node}/{gpu.id}",
            (
                gpu.cluster,
                gpu.node,
                gpu.id,
                gpu.utilization,
                gpu.memory,
                gpu.power,
                gpu.temperature,
            ),
        )


def _errors(model: Model) -> Iterable[TopRow]:
    for number, (at, place, text) in enumerate(model.errors):
        yield TopRow(str(number), (time.time() - at, place, text))


VIEWS: dict[str, TopView] = {
    "clusters": TopView(
        (_text("cluster"), Column("nodes"), Column("silent"), Column("jobs"), Column("load"),
         Column("lines/s"), Column("received", "bytes"), Column("dead"), Column("errors")),
        _clusters,
    ),
    "nodes": TopView(
        (_text("cluster"), _text("node"), Column("load"), Column("cpu", "percent"),
         Column("memory", "bytes"), Column("used", "percent"), Column("net in", "bytes/s"),
         Column("flops", "Flops/s"), Column("power", "W"), Column("gpus"), Column("jobs"),
         Column("lines/s"), Column("age", "s")),
        _nodes,
    ),
    "jobs": TopView(
        (_text("cluster"), Column("job"), _text("user"), _text("partition"), _text("state"),
         Column("nodes"), Column("load"), Column("memory", "bytes"), Column("flops", "Flops/s"),
         Column("elapsed", "s")),
        _jobs,
    ),
    "gpus": TopView(
        (_text("cluster"), _text("node"), _text("gpu"), Column("used", "percent"),
         Column("memory", "bytes"), Column("power", "W"), Column("temperature", "degC")),
        _gpus,
    ),
    "errors": TopView(
        (Column("age", "s", descending=False), _text("from"), _text("text")),
        _errors,
    ),
}  # fmt: skip
"""All tables, in the order of their keys 1 to 5."""

DEFAULT_SORT = {"clusters": 0, "nodes": 2, "jobs": 9, "gpus": 3, "errors": 0}
"""Initial sort column of each table."""


def select_rows(
    view: TopView,
    rows: Iterable[TopRow],
    *,
    sort: int,
    reverse: bool,
    words: Sequence[str],
    maximum: int,
) -> list[TopRow]:
    """Return the rows that contain all words, sorted; NaN comes last."""
    wanted = [word.lower() for word in words]
    found = [
        row
        for row in rows
        if all(word in " ".join(map(str, row.values)).lower() for word in wanted)
    ]
    descending = view.columns[sort].descending != reverse

    def is_missing(row: TopRow) -> bool:
        value = row.values[sort]
        return isinstance(value, float) and math.isnan(value)

    known = [row for row in found if not is_missing(row)]
    known.sort(key=lambda row: row.values[sort], reverse=descending)
    return (known + [row for row in found if is_missing(row)])[:maximum]


def printable_cells(view: TopView, row: TopRow) -> list[str]:
    """Format a row, escaped so that it cannot control a terminal."""
    return [
        _cell(value, column.unit) for value, column in zip(row.values, view.columns, strict=True)
    ]


def _cell(value: object, unit: str) -> str:
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, float) and math.isnan(value):
        return "-"
    assert isinstance(value, int | float)
    return age(value) if unit == "s" else short(value, unit, digits=3)


def age(seconds: float) -> str:
    """Format an elapsed time as ``12s``, ``5m`` or ``3d04h``."""
    whole = max(0, int(seconds))
    minute, hour, day = 60, 3600, 86400
    if whole < minute:
        return f"{whole}s"
    if whole < hour:
        return f"{whole // minute}m{whole % minute:02d}s"
    if whole < day:
        return f"{whole // hour}h{whole % hour // minute:02d}m"
    return f"{whole // day}d{whole % day // hour:02d}h"


def as_json(model: Model) -> dict[str, Any]:
    """Return all tables as plain data with raw values; unknown ones are null."""
    return {
        name: [
            {
                column.head.replace(" ", "_").replace("/", "_per_"): _plain(value)
                for column, value in zip(view.columns, row.values, strict=True)
            }
            for row in view.rows(model)
        ]
        for name, view in VIEWS.items()
    } | {"rejected": model.rejected}


def _plain(value: object) -> object:
    return None if isinstance(value, float) and not math.isfinite(value) else value
