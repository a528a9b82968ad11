r"""What a Lustre server counts of each job: the files ``job_stats`` of its targets.

::

    job_stats:
    - job_id:          4711
      snapshot_time:   1740027951
      read_bytes:      { samples:      5, unit: bytes, min:  4096, max: 1048576, sum:  3149824 }
      getattr:         { samples:     11, unit:  reqs }

Newer versions add fields behind ``sum``, and quote job ids that need it, with ``\x20`` for a blank.
Sources: Lustre's manual, *Lustre Jobstats*; Lustre, ``lustre/obdclass/lprocfs_jobstats.c``.
"""

import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from ccpipe.errors import DataError

_FOLDERS = ("proc/fs/lustre", "sys/fs/lustre")
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


class OperationCount(NamedTuple):
    """What a job did of one kind since Lustre began to count it."""

    samples: int  # how often
    total: int | None  # of what is measured, such as bytes; None for plain counts


@dataclass(slots=True)
class TargetStats:
    """The jobs of one target."""

    jobs: dict[str, dict[str, OperationCount]] = field(default_factory=dict)  # by id and operation
    omitted: int = 0  # jobs beyond the limit
    faults: list[DataError] = field(default_factory=list)  # one for each bad line


def files(root: str) -> dict[str, Path]:
    """Return the file of each target, such as ``scratch-OST0000``."""
    found: dict[str, Path] = {}
    for folder in _FOLDERS:
        for kind in _KINDS:
            for path in sorted(Path(root, folder, kind).glob("*/job_stats")):
                found.setdefault(path.parent.name, path)
    return found


def read(
    path: Path, *, operations: Collection[str], is_wanted: Callable[[str], bool], limit: int
) -> TargetStats:
    """Read the first `limit` of the jobs that are wanted, and of each the named operations.

    A bad line only affects itself, and that of an id all lines of the job.
    """
    stats = TargetStats()
    job: dict[str, OperationCount] | None = None  # None where the lines are of no job to report
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
    """Yield the lines; one that is too long comes in pieces."""
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
    """Add a job, unless it is not wanted or one too many; listed again, it begins anew."""
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
