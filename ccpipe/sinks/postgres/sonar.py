"""Sonar's envelopes into typed tables, with names and types of its specification.

See ``migrations/004_sonar.sql``.
"""

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from ccpipe.config import Duration
from ccpipe.formats.lineprotocol.precision import INT64_MAX
from ccpipe.formats.sonar import Envelope, ExtendedUint, timestamp
from ccpipe.formats.sonar.envelopes import Envelopes
from ccpipe.formats.sonar.types.cluster import ClusterAttributes, ClusterNodes, ClusterPartition
from ccpipe.formats.sonar.types.job import JobsAttributes, SlurmJob
from ccpipe.formats.sonar.types.sample import (
    SampleAttributes,
    SampleDisk,
    SampleGpu,
    SampleProcess,
    SampleProcessGpu,
    SampleSystem,
)
from ccpipe.formats.sonar.types.sysinfo import SysinfoAttributes, SysinfoGpuCard
from ccpipe.pipeline import Limits
from ccpipe.sinks.postgres.store import PostgresStore

RETENTION_SECONDS = 3600.0

_TIMES = frozenset({"boot", "submit_time", "start_time", "end_time"})
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NO_TIME = datetime.min  # noqa: DTZ901 - without a zone, asyncpg sends it as -infinity
_FIRST, _LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)


def _names(type_: type[msgspec.Struct], *others: str) -> tuple[str, ...]:
    return tuple(name for name in type_.__struct_fields__ if name not in others)


FIELDS: dict[str, tuple[str, ...]] = {
    "sonar_samples": _names(SampleSystem, "gpus", "disks"),
    "sonar_gpus": _names(SampleGpu),
    "sonar_disks": _names(SampleDisk),
    "sonar_processes": _names(SampleProcess, "gpus"),
    "sonar_process_gpus": _names(SampleProcessGpu),
    "sonar_sysinfo": _names(SysinfoAttributes, "time", "cluster", "node", "cards", "distances"),
    "sonar_cards": _names(SysinfoGpuCard),
    "sonar_jobs": _names(SlurmJob, "sacct"),
    "sonar_partitions": _names(ClusterPartition),
    "sonar_nodes": _names(ClusterNodes),
    "sonar_errors": ("detail",),
}
"""For each table, the columns that are fields of one type."""

_NODE = ("time", "cluster", "node")
_JOB = (*_NODE, "job", "epoch", "user")
_BEFORE = {
    "sonar_processes": _JOB,
    "sonar_process_gpus": (*_JOB, "pid", "cmd"),
    "sonar_jobs": ("time", "cluster", "sacct"),
    "sonar_sysinfo": (*_NODE, "distances"),
    "sonar_partitions": ("time", "cluster"),
    "sonar_nodes": ("time", "cluster"),
}

COLUMNS = {table: (*_BEFORE.get(table, _NODE), *names) for table, names in FIELDS.items()}

Row = tuple[Any, ...]


class PostgresSonarSink(PostgresStore[Envelopes]):
    """Writes each batch of envelopes in one transaction, each envelope once."""

    takes = Envelopes

    limits = Limits(max_records=1_000, max_bytes=8 * 2**20, max_wait=1.0)

    tables = (*COLUMNS, "delivered")

    def __init__(self, *, retention: Duration = Duration(0), **database: Any) -> None:
        """Configure address and credentials; this and ``postgres`` may write to one database.

        Parameters
        ----------
        retention
            How long to keep rows; 0 keeps them forever.

        """
        super().__init__(**database)
        self.retention = float(retention)
        self._next = 0.0

    async def copy(
        self, connection: Any, records: Sequence[Envelope], keep: bytearray | None
    ) -> bool:
        if keep is not None:
            records = [record for record, is_kept in zip(records, keep, strict=True) if is_kept]
        for table, found in rows(records).items():
            await connection.copy_records_to_table(
                table, records=found, columns=COLUMNS[table], timeout=self.database.timeout
            )
        return True

    async def begin(self, connection: Any) -> None:
        if not self.retention or time.monotonic() < self._next:
            return
        for table in COLUMNS:
            await connection.execute(
                f"DELETE FROM {table} WHERE time < now() - $1 * interval '1 s'",  # noqa: S608
                self.retention,
            )
        self._next = time.monotonic() + RETENTION_SECONDS


def rows(envelopes: Iterable[Envelope]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = defaultdict(list)
    for envelope in envelopes:
        for table, before, part in _parts(envelope):
            cells = (_cell(name, getattr(part, name)) for name in FIELDS[table])
            found[table].append((*before, *cells))
    return found


def _parts(envelope: Envelope) -> Iterator[tuple[str, Row, Any]]:
    """Yield table, leading cells, and the object whose fields are the other cells."""
    for error in envelope.errors:
        yield "sonar_errors", (_time(error.time), error.cluster, error.node), error
    if envelope.data is None:
        return
    match envelope.data.attributes:
        case SampleAttributes() as sample:
            yield from _sample(sample)
        case SysinfoAttributes() as sysinfo:
            node = (_time(sysinfo.time), sysinfo.cluster, sysinfo.node)
            distances = [_cell("", number) for row in sysinfo.distances for number in row]
            yield "sonar_sysinfo", (*node, distances), sysinfo
            yield from (("sonar_cards", node, card) for card in sysinfo.cards)
        case JobsAttributes() as jobs:
            for job in jobs.slurm_jobs:
                sacct = None if job.sacct is None else msgspec.json.encode(job.sacct).decode()
                yield "sonar_jobs", (_time(jobs.time), jobs.cluster, sacct), job
        case ClusterAttributes() as cluster:
            begin = (_time(cluster.time), cluster.cluster)
            yield from (("sonar_partitions", begin, each) for each in cluster.partitions)
            yield from (("sonar_nodes", begin, each) for each in cluster.nodes)


def _sample(sample: SampleAttributes) -> Iterator[tuple[str, Row, Any]]:
    node = (_time(sample.time), sample.cluster, sample.node)
    yield from (
        ("sonar_errors", (_time(error.time), error.cluster, error.node), error)
        for error in sample.errors
    )
    if sample.system is not None:
        yield "sonar_samples", node, sample.system
        yield from (("sonar_gpus", node, gpu) for gpu in sample.system.gpus)
        yield from (("sonar_disks", node, disk) for disk in sample.system.disks)
    for job in sample.jobs:
        owner = (*node, _cell("", job.job), _cell("", job.epoch), job.user)
        for process in job.processes:
            yield "sonar_processes", owner, process
            of_process = (*owner, _cell("", process.pid), process.cmd)
            yield from (("sonar_process_gpus", of_process, gpu) for gpu in process.gpus)


def _cell(name: str, value: Any) -> Any:
    match value:
        case ExtendedUint():
            return float("inf") if value.is_infinite else _cell("", value.value)
        case str() if name in _TIMES:
            return None if timestamp.parse(value) is None else _time(value)
        case bool() | str() | float() | None:
            return value
        case int():
            return value if value <= INT64_MAX else None
        case tuple():
            return [_cell("", each) for each in value]
        case _:
            raise TypeError(f"{name}: {type(value).__name__} has no column")


def _time(text: str) -> datetime:
    """Return a time; if missing, the one of lines without time, so that the row is kept."""
    nanoseconds = timestamp.parse(text)
    if nanoseconds is None:
        return _NO_TIME
    try:
        return _EPOCH + timedelta(microseconds=nanoseconds // 1000)
    except OverflowError:  # an offset beyond the first or last hours that can be represented
        return _FIRST if nanoseconds < 0 else _LAST
