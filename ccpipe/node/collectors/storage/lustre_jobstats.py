"""I/O of jobs on a Lustre server, by job and target: ``/proc/fs/lustre/*/*/job_stats``.

This collector is disabled by default: enable it on Lustre servers (OSS and MDS) with
`enabled = true`. It also finds the files in ``/sys/fs/lustre``. Each metric carries ``stype=job``,
with the job's id and the target as ``stype-id``: ``4711@scratch-OST0000``. The id is the one that
Lustre's clients send, as their parameters `jobid_var` and `jobid_name` define it: with
`jobid_var=SLURM_JOB_ID` it is the job's number, and outside of jobs a name such as ``cp.1000``.

Rates cover the time since the last sample. They are omitted in the first sample of a job, and if a
counter decreased: Lustre drops the counters of a job that has been idle for `job_cleanup_interval`.
A target only has its own operations; files, for example, are opened on metadata targets.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple

from ccpipe.errors import ConfigError, DataError
from ccpipe.message import Message, metric
from ccpipe.node.linux import proc
from ccpipe.node.sampling.collector import Metric, Previous, SoftErrors, gains

_row = partial(Metric, kind=float, stype="job")
_request = partial(_row, unit="requests/s")
_BYTES = {  # by the operation's name
    "read_bytes": _row("lustre_job_read_bw", "bytes/s", meaning="read"),
    "write_bytes": _row("lustre_job_write_bw", "bytes/s", meaning="written"),
}
_REQUESTS = {
    "read_bytes": _request("lustre_job_read_requests_rate", meaning="read requests"),
    "write_bytes": _request("lustre_job_write_requests_rate", meaning="write requests"),
    "open": _request("lustre_job_open_rate", meaning="files opened"),
    "close": _request("lustre_job_close_rate", meaning="files closed"),
    "unlink": _request("lustre_job_unlink_rate", meaning="files removed"),
    "getattr": _request("lustre_job_getattr_rate", meaning="attributes read"),
    "setattr": _request("lustre_job_setattr_rate", meaning="attributes set"),
    "statfs": _request("lustre_job_statfs_rate", meaning="free-space requests (statfs)"),
    "sync": _request("lustre_job_sync_rate", meaning="sync requests"),
}

METRICS = (*_BYTES.values(), *_REQUESTS.values())

MAX_JOBS = 10_000
"""In one sample, unless the option `max_jobs` has another number."""


class OperationCount(NamedTuple):
    """A job's operations of one kind since Lustre began to count them."""

    samples: int  # how often
    total: int | None  # in the unit measured, such as bytes; None for plain counts


@dataclass(slots=True)
class TargetStats:
    """The jobs of one target."""

    jobs: dict[str, dict[str, OperationCount]] = field(default_factory=dict)  # by id and operation
    omitted: int = 0  # jobs beyond the limit
    faults: list[DataError] = field(default_factory=list)  # one for each bad line


class LustreJobstats:
    """The jobs on the targets of the server; the first sample of a job has no rates.

    Parameters
    ----------
    exclude
        Ids of jobs to exclude, as shell patterns, such as `*.*` for processes outside of jobs.
    max_jobs
        Maximum number of jobs in a sample, where a job counts once for each target. Further ones
        are left out, counted in `ccpipe_failed_reads_total`, and logged once.
    root
        Root of the file system to read; set it to read a captured tree.

    """

    INTERVAL = 60.0

    def __init__(
        self, *, exclude: Sequence[str] = (), max_jobs: int = MAX_JOBS, root: str = "/"
    ) -> None:
        if max_jobs < 1:
            raise ConfigError(f"max_jobs is {max_jobs}: it must be positive")
        self._exclude = exclude
        self._max_jobs = max_jobs
        self._root = root
        self._previous = Previous[dict[str, int]]()
        self.soft = SoftErrors("lustre_jobstats")

    def collect(self, time: int) -> Iterator[Message]:
        now = self._read()
        before, seconds = self._previous.swap(now)
        for job, counters in now.items():
            tags = {"type": "node", "stype": "job", "stype-id": job}
            for name, gain in gains(before.get(job, {}), counters).items():
                if seconds > 0:
                    yield metric(name, gain / seconds, time=time, tags=tags)

    def _read(self) -> dict[str, dict[str, int]]:
        """Return the counters by job and target, and by metric."""
        paths = target_files(self._root)
        if not paths:
            raise FileNotFoundError(2, "no Lustre target", str(Path(self._root, "proc/fs/lustre")))
        found: dict[str, dict[str, int]] = {}
        omitted = 0
        for target, path in paths.items():
            with self.soft.noted():
                stats = read_jobs(
                    path,
                    operations=_REQUESTS,
                    is_wanted=lambda job: not proc.matches(job, self._exclude),
                    limit=self._max_jobs - len(found),
                )
                for job, counts in stats.jobs.items():
                    found[proc.tag(f"{job}@{target}")] = _counters(counts)
                omitted += stats.omitted
                self.soft.add(stats.faults)
        if omitted:
            text = f"more than {self._max_jobs} jobs (max_jobs); the others are left out"
            self.soft.note(text, times=omitted)
        self.soft.report(found)
        return found


def _counters(counts: Mapping[str, OperationCount]) -> dict[str, int]:
    found = {}
    for operation, count in counts.items():
        found[_REQUESTS[operation].name] = count.samples
        if operation in _BYTES and count.total is not None:
            found[_BYTES[operation].name] = count.total
    return found


_DIRECTORIES = ("proc/fs/lustre", "sys/fs/lustre")
_KINDS = ("obdfilter", "mdt")  # targets of object servers and of metadata servers
_MAX_LINE = 4096  # characters; a histogram of 32 classes has some 600
_MAX_ID = 256  # Lustre: 32, of which each may be escaped
_MAX_FAULTS = 100  # of a file, beyond which bad lines are ignored

_KEY = re.compile(r"\s*\w+\s*:", re.ASCII)
_COUNT = re.compile(
    r"\{ *samples: *(\d{1,20})(?:, unit: *\w+)?"
    r"(?:, min: *\d+, max: *\d+, sum: *(\d{1,20})(?:, .*)?)? *\}",
    re.ASCII,
)
_ESCAPE = re.compile(rb"\\x([0-9A-Fa-f]{2})")


def target_files(root: str) -> dict[str, Path]:
    """Return the file of each target, such as ``scratch-OST0000``."""
    found: dict[str, Path] = {}
    for directory in _DIRECTORIES:
        for kind in _KINDS:
            for path in sorted(Path(root, directory, kind).glob("*/job_stats")):
                found.setdefault(path.parent.name, path)
    return found


def read_jobs(
    path: Path, *, operations: Collection[str], is_wanted: Callable[[str], bool], limit: int
) -> TargetStats:
    r"""Read the named operations of the first `limit` wanted jobs.

    A bad line only affects itself; a bad id affects all lines of its job.

    ::

        job_stats:
        - job_id:          4711
          snapshot_time:   1740027951
          read_bytes:      { samples:      5, unit: bytes, min:  4096, max: 1048576, sum:  3149824 }
          getattr:         { samples:     11, unit:  reqs }

    Newer versions add fields behind ``sum``, and quote job ids that need it, with ``\x20`` for a
    blank. Sources: Lustre's manual, *Lustre Jobstats*; Lustre,
    ``lustre/obdclass/lprocfs_jobstats.c``.
    """
    stats = TargetStats()
    job: dict[str, OperationCount] | None = None  # None if the lines belong to no reported job
    for number, line in enumerate(_lines(path), 1):
        if not line[:1].isspace():
            job = None
        key, _, value = line.partition(":")
        key = key.strip()
        try:
            if key == "- job_id":
                job = _begin(stats, _job_id(value.strip()), is_wanted, limit)
            elif job is not None and key in operations:
                job[key] = _count(value.strip())
            elif key and not _KEY.match(line):
                raise DataError(f"{line.strip()!r:.60} is not a line of job statistics")
        except DataError as error:
            if len(stats.faults) < _MAX_FAULTS:
                stats.faults.append(DataError(f"{path}: line {number}: {error}"))
    return stats


def _lines(path: Path) -> Iterator[str]:
    """Yield the lines; one that is too long is split."""
    try:
        with path.open("rb") as file:
            while line := file.readline(_MAX_LINE):
                yield line.decode("utf-8", "surrogateescape")
    except OSError as error:
        error.filename = str(path)  # a failed read names no file by itself
        raise


def _begin(
    stats: TargetStats, job: str, is_wanted: Callable[[str], bool], limit: int
) -> dict[str, OperationCount] | None:
    """Add a job, unless it is unwanted or beyond the limit; a repeated one replaces the first."""
    if not is_wanted(job):
        return None
    if job not in stats.jobs and len(stats.jobs) >= limit:
        stats.omitted += 1
        return None
    stats.jobs[job] = {}
    return stats.jobs[job]


def _job_id(text: str) -> str:
    job = text
    if len(text) > 1 and text[0] == text[-1] == '"':
        quoted = text[1:-1].encode("utf-8", "surrogateescape")
        plain = _ESCAPE.sub(lambda found: bytes.fromhex(found[1].decode()), quoted)
        job = plain.decode("utf-8", "surrogateescape")
    if not job or len(job) > _MAX_ID:
        raise DataError(f"{text!r:.60} is not the id of a job")
    return job


def _count(text: str) -> OperationCount:
    found = _COUNT.fullmatch(text)
    if found is None:
        raise DataError(f"{text!r:.60} is not a counter")
    return OperationCount(int(found[1]), int(found[2]) if found[2] else None)
