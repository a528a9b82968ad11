"""A folder of captured outputs, replayed as if the commands were run again.

A file is named by its command and time in seconds since the epoch: ``sacct.1795170834.txt``,
``squeue_all.1795170834.txt``, ``sinfo_N.1795170834.txt``, ``scontrol.1795170834.txt``; anything
between command and time is ignored. Files with the same time form one poll. Text must begin with
the header line (scontrol has none) and contain times in UTC; sacct's may also be JSON.
"""

import re
from collections.abc import Callable, Iterator
from datetime import UTC
from pathlib import Path

from ccpipe.errors import ConfigError, DataError
from ccpipe.formats.slurm.cluster import read_sinfo
from ccpipe.formats.slurm.json import read_json
from ccpipe.formats.slurm.text import SacctReader, SqueueReader, read_scontrol
from ccpipe.sources.slurm.poll import SECOND, Poll, pending_if_requeued

_NAME = re.compile(r"(sacct|squeue|sinfo|scontrol)[^.]*\.([0-9]{1,11})\.(?:txt|json)")


class PollReplay:
    """The polls of a folder, in order of time."""

    def __init__(self, folder: str) -> None:
        self._files: dict[int, list[tuple[str, Path]]] = {}
        for path in sorted(Path(folder).glob("*")):
            if found := _NAME.fullmatch(path.name):
                self._files.setdefault(int(found[2]) * SECOND, []).append((found[1], path))
        if not self._files:
            raise ConfigError(f"replay: {folder} holds no files such as sacct.1795170834.txt")

    def __iter__(self) -> Iterator[Poll]:
        """Yield the polls; a file that cannot be read is reported as a problem of its poll."""
        for time in sorted(self._files):
            poll = Poll(time, has_accounting=False)
            for command, path in self._files[time]:
                try:
                    _READERS[command](path.read_bytes(), poll)
                except (DataError, OSError) as error:
                    poll.problems.append(f"{path.name}: {error}")
            yield poll


def _sacct(payload: bytes, poll: Poll) -> None:
    is_json = payload[:1] == b"{"
    reading = read_json(payload) if is_json else SacctReader(zone=UTC).read(payload)
    poll.rows += reading.records
    poll.rejected += reading.rejected
    poll.has_accounting = True


def _squeue(payload: bytes, poll: Poll) -> None:
    reading = SqueueReader(zone=UTC).read(payload)
    # A table may have been captured without times.
    poll.jobs = [pending_if_requeued(j, poll.time) if j.start else j for j in reading.records]
    poll.rejected += reading.rejected
    poll.listed = frozenset(job.id.job for job in reading.records)


def _scontrol(payload: bytes, poll: Poll) -> None:
    reading = read_scontrol(payload, zone=UTC)
    poll.details = {job.id.job: job for job in reading.records}
    poll.rejected += reading.rejected


def _sinfo(payload: bytes, poll: Poll) -> None:
    poll.cluster = read_sinfo(payload)
    poll.rejected += poll.cluster.rejected


_READERS: dict[str, Callable[[bytes, Poll], None]] = {
    "sacct": _sacct, "squeue": _squeue, "scontrol": _scontrol, "sinfo": _sinfo,
}  # fmt: skip
