"""An index of jobs in SQLite: who ran what where and when, and the numbers of their reports.

It is filled from events and from a store, and can be rebuilt from these: a file of another version
is emptied, a damaged one may be deleted. Several processes may use the same file.
"""

import contextlib
import math
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from ccpipe.errors import UnavailableError
from ccpipe.history.job_search import (
    BY_STOP,
    COLUMNS,
    KEY_METRICS,
    METRIC_COLUMNS,
    JobSearch,
    conditions,
    ordering,
)
from ccpipe.history.report import UsageReport
from ccpipe.jobs import ENDED, EXTENSION, PENDING, RUNNING, Job, JobNode, RunKey
from ccpipe.jobs.pending import PendingJob

SECOND = 10**9
VERSION = 2
MEMORY = ":memory:"
MAX_JOBS = 200_000
"""About 200 MB; beyond it the jobs that started first are dropped. Pending ones do not count."""
MAX_BYTES = 2**30
"""The same for jobs of very many nodes."""
DROPPED = 0.02
"""Share of the jobs that are dropped at once."""
MAX_NODES = 10_000
MAX_NODE_TIMES = 500_000
"""Times of jobs on nodes that are read at once, to count the nodes with a job."""
MAX_TEXT = 255
LOCK_SECONDS = 5.0
"""How long another process may write before an error is raised."""

_REPORTED = ["energy", "cpu", "memory", "gpu", "findings", *METRIC_COLUMNS]
SCHEMA = f"""
CREATE TABLE jobs(
    id INTEGER PRIMARY KEY, cluster TEXT NOT NULL, job INTEGER NOT NULL, submit INTEGER,
    start INTEGER NOT NULL, stop INTEGER NOT NULL,
    user TEXT NOT NULL, project TEXT NOT NULL, partition TEXT NOT NULL, name TEXT NOT NULL,
    state TEXT NOT NULL, words TEXT NOT NULL, nodes INTEGER NOT NULL,
    first_node TEXT NOT NULL, hwthreads INTEGER, gpus INTEGER, walltime INTEGER,
    reason TEXT NOT NULL DEFAULT '', tasks INTEGER,
    is_reported INTEGER NOT NULL DEFAULT 0, energy REAL, cpu REAL, memory REAL, gpu REAL,
    findings TEXT NOT NULL DEFAULT '',
    {", ".join(f"{name} REAL" for name in METRIC_COLUMNS)},
    UNIQUE (cluster, job, start));
CREATE INDEX jobs_start ON jobs(start);
CREATE INDEX jobs_stop ON jobs({BY_STOP}, start);
CREATE INDEX jobs_user ON jobs(user, start);
CREATE INDEX jobs_unreported ON jobs(stop) WHERE NOT is_reported;
CREATE TABLE records(id INTEGER PRIMARY KEY, record BLOB NOT NULL);
CREATE TABLE hosts(id INTEGER PRIMARY KEY, hostname TEXT NOT NULL UNIQUE);
CREATE TABLE job_nodes(host INTEGER, job INTEGER, PRIMARY KEY (host, job)) WITHOUT ROWID;
CREATE INDEX job_nodes_job ON job_nodes(job);
PRAGMA user_version = {VERSION}
"""
TABLES = ("jobs", "records", "hosts", "job_nodes")


class BrokenIndexError(UnavailableError):
    """The index cannot be used until someone repairs it: damaged, read-only, or the disk full."""


class FoundJobs(msgspec.Struct):
    """One page of the answer to a search."""

    total: int
    """Number of jobs that match, on all pages."""
    jobs: list[dict[str, Any]]
    """`COLUMNS` of each job; None where unknown. Times are seconds, and the stop of a run is 0,
    as is the start of a pending job."""


class JobTimes(NamedTuple):
    """When jobs ran, in seconds since the epoch; those that run end with the queried time."""

    jobs: list[tuple[float, float]]
    """Start and stop of each job."""
    nodes: list[tuple[int, float, float]] | None
    """Number of the node, start and stop of each job on it; None beyond ``MAX_NODE_TIMES``."""
    since: float
    """Start of the first known job."""


class JobIndex:
    """The index; its methods block, may be called from any thread, and raise UnavailableError."""

    def __init__(self, path: Path | None = None, *, max_jobs: int = MAX_JOBS) -> None:
        """Open or create a file, by default in memory; raises UnavailableError."""
        self.path = path
        self.max_jobs = max_jobs
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        with self._session() as connection:
            if connection.execute("PRAGMA user_version").fetchone()[0] != VERSION:
                for table in TABLES:
                    connection.execute(f"DROP TABLE IF EXISTS {table}")
                for statement in SCHEMA.split(";"):
                    connection.execute(statement)

    def close(self) -> None:
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    @contextlib.contextmanager
    def _session(self, begin: str = "BEGIN IMMEDIATE") -> Iterator[sqlite3.Connection]:
        """Run one transaction, by default one that writes."""
        with self._lock:
            try:
                if self._connection is None:
                    self._connection = self._connect()
                with self._connection:
                    self._connection.execute(begin)
                    yield self._connection
            except (sqlite3.Error, OSError) as error:
                raise self._explained(error) from None

    def _connect(self) -> sqlite3.Connection:
        if self.path is not None:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        connection = sqlite3.connect(
            self.path or MEMORY, LOCK_SECONDS, isolation_level=None, check_same_thread=False
        )
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
        except sqlite3.Error:
            connection.close()
            raise
        return connection

    def _explained(self, error: sqlite3.Error | OSError) -> UnavailableError:
        name = f"the index of jobs {self.path or 'in memory'}"
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return UnavailableError(f"{name} is locked by another process")
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            return BrokenIndexError(
                f"{name} is damaged ({error}): delete the file, and it is built anew"
            )
        return BrokenIndexError(f"{name}: {error}")

    def put(self, jobs: Iterable[Job]) -> None:
        """Add runs of jobs, or what is newly known of them; those without a start are ignored."""
        with self._session() as connection:
            for job in jobs:
                if job.start:
                    self._put(connection, _cleaned(job))
            self._limit(connection)

    def _put(self, connection: sqlite3.Connection, job: Job) -> None:
        key = (job.cluster, job.id, job.start // SECOND)
        found = connection.execute(
            "SELECT id, record, stop FROM jobs JOIN records USING (id)"
            " WHERE cluster = ? AND job = ? AND start = ?", key,
        ).fetchone()  # fmt: skip
        before = _JOB.decode(found[1]) if found else None
        if before is not None:
            if _is_less_detailed(job, before):
                job = msgspec.structs.replace(job, nodes=())
            if before.end and job.state == RUNNING:  # a start that is repeated after its stop
                job = msgspec.structs.replace(job, state="")
            job = before.updated(job)
            if job == before:
                return
        id_ = self._write(connection, job, found and found[0])
        if before is None or before.nodes != job.nodes:
            self._write_nodes(connection, id_, job)
        if before is not None and before.end != job.end:
            connection.execute("UPDATE jobs SET is_reported = 0 WHERE id = ?", (id_,))

    def end_lost(self, now: float) -> None:
        """End the jobs that would have ended long ago if their stop was lost."""
        with self._session() as connection:
            running = connection.execute(
                "SELECT id, record FROM jobs JOIN records USING (id) WHERE stop = 0 AND start < ?",
                (now - EXTENSION,),
            ).fetchall()
            for id_, record in running:
                job = _JOB.decode(record)
                if end := job.assumed_end(int(now * SECOND)):
                    ended = msgspec.structs.replace(job, end=end, state=ENDED)
                    self._write(connection, ended, id_)

    def _write(self, connection: sqlite3.Connection, job: Job, id_: int | None) -> int:
        row = {
            "cluster": job.cluster, "job": job.id, "submit": job.submit // SECOND or None,
            "start": job.start // SECOND,
            "stop": job.end // SECOND, "user": job.user, "project": job.project,
            "partition": job.partition, "name": job.name, "state": job.state,
            "nodes": len(job.nodes), "first_node": job.nodes[0].hostname if job.nodes else "",
            "hwthreads": job.hwthreads or None, "gpus": job.accelerators or None,
            "walltime": job.walltime or None, "words": "\n".join(_words(job)),
        }  # fmt: skip
        if id_ is None:
            names, marks = ", ".join(row), ", ".join(f":{name}" for name in row)
            cursor = connection.execute(f"INSERT INTO jobs({names}) VALUES ({marks})", row)  # noqa: S608 - constants
            id_ = cursor.lastrowid
            assert id_ is not None
        else:
            changes = ", ".join(f"{name} = :{name}" for name in row)
            connection.execute(f"UPDATE jobs SET {changes} WHERE id = :id", {**row, "id": id_})  # noqa: S608 - constants
        connection.execute(
            "INSERT OR REPLACE INTO records VALUES (?, ?)", (id_, msgspec.json.encode(job))
        )
        return id_

    def _write_nodes(self, connection: sqlite3.Connection, id_: int, job: Job) -> None:
        names = [(node.hostname,) for node in job.nodes]
        connection.execute("DELETE FROM job_nodes WHERE job = ?", (id_,))
        connection.executemany("INSERT OR IGNORE INTO hosts(hostname) VALUES (?)", names)
        connection.executemany(
            "INSERT OR IGNORE INTO job_nodes SELECT id, ? FROM hosts WHERE hostname = ?",
            [(id_, *name) for name in names],
        )

    def put_pending(self, jobs: Iterable[PendingJob], left: Iterable[tuple[str, int]] = ()) -> None:
        """Add pending jobs, and remove those, by cluster and id, that left the queue."""
        with self._session() as connection:
            connection.executemany(
                "DELETE FROM jobs WHERE cluster = ? AND job = ? AND start = 0", left
            )
            connection.executemany(_PUT_PENDING, map(_pending_row, jobs))

    def clear_pending(self) -> None:
        """Remove all pending jobs: those of an earlier process may have started since."""
        with self._session() as connection:
            connection.execute("DELETE FROM jobs WHERE start = 0")

    def _limit(self, connection: sqlite3.Connection) -> None:
        """Drop the oldest jobs if there are too many."""
        [count] = connection.execute("SELECT count(*) FROM jobs WHERE start > 0").fetchone()
        pages, free, size = (
            connection.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("page_count", "freelist_count", "page_size")
        )
        excess = max(0, count - self.max_jobs)
        if not excess and (pages - free) * size <= MAX_BYTES:
            return
        oldest = connection.execute(
            "SELECT id FROM jobs WHERE start > 0 ORDER BY start LIMIT ?",
            (excess + math.ceil(count * DROPPED),),
        )
        ids = oldest.fetchall()
        for table, column in (("jobs", "id"), ("records", "id"), ("job_nodes", "job")):
            connection.executemany(f"DELETE FROM {table} WHERE {column} = ?", ids)  # noqa: S608 - constants
        connection.execute("DELETE FROM hosts WHERE id NOT IN (SELECT host FROM job_nodes)")

    def find(self, search: JobSearch, now: float | None = None) -> FoundJobs:
        """Return the jobs that match; raises UsageError for a column that does not exist."""
        where, parameters = conditions(search)
        parameters["now"] = int(time.time() if now is None else now)
        order = ordering(search)
        columns = ", ".join(f"{sql} AS {name}" for name, sql in COLUMNS.items())
        # sorting only ids is several times as fast as sorting all columns
        ids = f"SELECT id FROM jobs WHERE {where} ORDER BY {order} LIMIT :limit OFFSET :offset"  # noqa: S608 - values are bound
        with self._session("BEGIN") as connection:
            [total] = connection.execute(
                f"SELECT count(*) FROM jobs WHERE {where}",  # noqa: S608 - values are bound
                parameters,
            ).fetchone()
            cursor = connection.execute(
                f"SELECT {columns} FROM jobs WHERE id IN ({ids}) ORDER BY {order}",  # noqa: S608 - values are bound
                parameters,
            )
            jobs = [dict(zip(COLUMNS, row, strict=True)) for row in cursor]
        return FoundJobs(total, jobs)

    def times(self, cluster: str | None, start: float, stop: float) -> JobTimes:
        """Return when jobs ran in a time, of all clusters if `cluster` is None."""
        parameters = {
            "cluster": cluster, "from": start, "to": stop, "limit": MAX_NODE_TIMES + 1,
        }  # fmt: skip
        of_cluster = "start > 0"  # pending ones have no start
        of_cluster += "" if cluster is None else " AND cluster = :cluster"
        within = f"{BY_STOP} > :from AND start < :to AND {of_cluster}"
        times = "start, CASE stop WHEN 0 THEN :to ELSE stop END"
        nodes = f"SELECT cluster, host, {times} FROM jobs JOIN job_nodes ON job_nodes.job = jobs.id"  # noqa: S608 - values are bound
        with self._session("BEGIN") as connection:
            jobs = connection.execute(f"SELECT {times} FROM jobs WHERE {within}", parameters)  # noqa: S608 - values are bound
            found = jobs.fetchall()
            rows = connection.execute(
                f"{nodes} WHERE {within} LIMIT :limit",
                parameters,
            ).fetchall()
            [since] = connection.execute(
                f"SELECT min(start) FROM jobs WHERE {of_cluster}",  # noqa: S608 - values are bound
                parameters,
            ).fetchone()
        numbers: dict[tuple[str, int], int] = {}  # a name may occur in several clusters
        on_nodes = [
            (numbers.setdefault((of, host), len(numbers)), *span) for of, host, *span in rows
        ]
        is_complete = len(rows) <= MAX_NODE_TIMES
        since = math.inf if since is None else since
        return JobTimes(found, on_nodes if is_complete else None, since)

    def newest(self) -> float:
        """Return when the latest job ended that has, in seconds since the epoch; 0 without one."""
        with self._session("BEGIN") as connection:
            [found] = connection.execute("SELECT max(stop) FROM jobs").fetchone()
        return float(found or 0)

    def get(self, key: RunKey) -> Job | None:
        """Return a run of a job with all that is known of it."""
        with self._session("BEGIN") as connection:
            found = connection.execute(
                "SELECT record FROM jobs JOIN records USING (id)"
                " WHERE cluster = ? AND job = ? AND start = ?",
                (key.cluster, key.id, key.start // SECOND),
            ).fetchone()
        return _JOB.decode(found[0]) if found else None

    def without_report(self, before: float, maximum: int) -> list[Job]:
        """Return jobs that ended before a time and have no report yet, the latest first."""
        with self._session("BEGIN") as connection:
            found = connection.execute(
                "SELECT record FROM jobs JOIN records USING (id)"
                " WHERE NOT is_reported AND stop > 0 AND stop < ? ORDER BY stop DESC LIMIT ?",
                (before, maximum),
            ).fetchall()
        return [_JOB.decode(record) for (record,) in found]

    def put_report(self, key: RunKey, report: UsageReport | None) -> None:
        """Add the numbers of a report; None for a job that cannot have one."""
        row = _numbers(report) if report is not None else {}
        changes = ", ".join(f"{name} = :{name}" for name in ("is_reported", *row))
        parameters = {
            "is_reported": 1, "of_cluster": key.cluster, "of_job": key.id,
            "of_start": key.start // SECOND, **row,
        }  # fmt: skip
        with self._session() as connection:
            connection.execute(
                f"UPDATE jobs SET {changes} WHERE cluster = :of_cluster"  # noqa: S608 - names of columns
                " AND job = :of_job AND start = :of_start", parameters,
            )  # fmt: skip


_JOB = msgspec.json.Decoder(Job)
_PENDING_COLUMNS = (
    "cluster", "job", "submit", "start", "stop", "user", "project", "partition", "name", "state",
    "words", "nodes", "first_node", "hwthreads", "walltime", "reason", "tasks",
)  # fmt: skip
_PENDING_CHANGES = ", ".join(f"{name} = excluded.{name}" for name in _PENDING_COLUMNS[2:])
_PUT_PENDING = (
    f"INSERT INTO jobs({', '.join(_PENDING_COLUMNS)})"  # noqa: S608 - names of columns
    f" VALUES ({', '.join('?' * len(_PENDING_COLUMNS))})"
    f" ON CONFLICT (cluster, job, start) DO UPDATE SET {_PENDING_CHANGES}"
)


def _pending_row(job: PendingJob) -> tuple[str | int | None, ...]:
    """Return the values of ``_PENDING_COLUMNS``."""
    user, project, partition, name, reason = (
        _limited(text) for text in (job.user, job.project, job.partition, job.name, job.reason)
    )
    words = "\n".join((str(job.id), user, project, partition, name, PENDING, reason))
    return (
        job.cluster, job.id, job.submit or None, 0, 0, user, project, partition, name, PENDING,
        words, job.nodes, "", job.hwthreads or None, job.walltime or None, reason,
        job.tasks or None,
    )  # fmt: skip


def _numbers(report: UsageReport) -> Mapping[str, Any]:
    """Return the columns of a report."""
    row: dict[str, Any] = dict.fromkeys(_REPORTED)
    for name in ("cpu", "memory", "gpu"):
        if efficiency := getattr(report, name):
            row[name] = efficiency.share
    row["energy"] = report.energy.joules if report.energy else None
    row["findings"] = "\n".join(finding.text for finding in report.findings)
    for metric in report.metrics:
        if metric.metric in KEY_METRICS:
            row[f"mean_{metric.metric}"] = metric.mean
            row[f"max_{metric.metric}"] = metric.maximum
    return row


def _cleaned(job: Job) -> Job:
    """Limit texts and nodes, and replace what is not UTF-8."""
    texts = {name: _limited(getattr(job, name)) for name in _TEXTS}
    nodes = job.nodes[:MAX_NODES]
    return msgspec.structs.replace(
        job, **texts, nodes=nodes, metadata={}, start_metadata={}, raw=None
    )


def _limited(text: str) -> str:
    return text[:MAX_TEXT].encode(errors="replace").decode()


def _is_less_detailed(job: Job, before: Job) -> bool:
    """Return whether the nodes are the same, but without their hardware threads and GPUs."""
    hostnames = tuple(JobNode(node.hostname) for node in before.nodes)
    return job.nodes == hostnames != before.nodes


def _words(job: Job) -> Sequence[str]:
    """Return what the words of a search may be part of."""
    return str(job.id), job.user, job.project, job.partition, job.name, job.state


_TEXTS = ("cluster", "state", "name", "user", "project", "partition", "sub_cluster", "shared")
