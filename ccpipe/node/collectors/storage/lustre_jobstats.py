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

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from ccpipe.errors import ConfigError
from ccpipe.message import Message, metric
from ccpipe.node.linux import lustre_jobstats, proc
from ccpipe.node.linux.lustre_jobstats import OperationCount
from ccpipe.node.sampling.collector import Metric, Previous, SoftErrors

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
    "getattr": _request("lustre_job_getattr_rate", meaning="attributes asked for"),
    "setattr": _request("lustre_job_setattr_rate", meaning="attributes set"),
    "statfs": _request("lustre_job_statfs_rate", meaning="free-space requests (statfs)"),
    "sync": _request("lustre_job_sync_rate", meaning="sync requests"),
}

METRICS = (*_BYTES.values(), *_REQUESTS.values())

MAX_JOBS = 10_000
"""In one sample, unless the option `max_jobs` has another number."""


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
        self,
        *,
        exclude: Sequence[str] = (),
        max_jobs: int = MAX_JOBS,
        root: str = "/",
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
            last = before.get(job, {})
            known = [name for name in counters if name in last]
            gains = proc.gained([last[name] for name in known], [counters[name] for name in known])
            if gains and seconds > 0:
                tags = {"type": "node", "stype": "job", "stype-id": job}
                for name, gain in zip(known, gains, strict=True):
                    yield metric(name, gain / seconds, time=time, tags=tags)

    def _read(self) -> dict[str, dict[str, int]]:
        """Return the counters by job and target, and by metric."""
        paths = lustre_jobstats.files(self._root)
        if not paths:
            raise FileNotFoundError(2, "no Lustre target", str(Path(self._root, "proc/fs/lustre")))
        found: dict[str, dict[str, int]] = {}
        omitted = 0
        for target, path in paths.items():
            with self.soft.noted():
                stats = lustre_jobstats.read(
                    path,
                    operations=_REQUESTS,
                    is_wanted=lambda job: not proc.matches(job, self._exclude),
                    limit=self._max_jobs - len(found),
                )
                for job, counts in stats.jobs.items():
                    found[proc.tag(f"{job}@{target}")] = _counters(counts)
                omitted += stats.omitted
                for fault in stats.faults:
                    with self.soft.noted():
                        raise fault
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
