"""ClusterCockpit's ``jobScript`` and ``slurmInfo`` of jobs that start, as scontrol prints them.

A script may be large, and slurmctld prints only one at a time: their number, size and time are
bounded in each poll. A job that is beyond a bound starts without the text.
"""

import logging
import re
import time
from collections.abc import Iterable, Mapping

from ccpipe.errors import UnavailableError
from ccpipe.jobs import Job
from ccpipe.sources.slurm.poll import Commands

log = logging.getLogger(__name__)

MAX_BYTES = 64 * 1024
"""Bytes of one text beyond which it is cut."""
MAX_TOTAL = 32 * 2**20
"""Characters of all texts of one poll."""
MAX_CALLS = 100
"""Scripts requested in one poll."""
MAX_SECONDS = 10.0
"""Time that the requests of one poll may take."""
MAX_SHARED = 100
"""Scripts remembered, of array and heterogeneous jobs."""
REPEAT_SECONDS = 60.0
"""Time between two reports of a missing text."""
_BATCH = re.compile(rb"\bBatchFlag=[1-9]")


class StartMetadata:
    """Reads the texts of jobs that start; a text that cannot be had is missing."""

    def __init__(self, commands: Commands, *, job_script: bool, slurm_info: bool) -> None:
        self.commands = commands
        self.job_script = job_script
        self.slurm_info = slurm_info
        self._shared: dict[tuple[int, int], str] = {}
        self._calls = self._total = 0
        self._seconds = 0.0
        self._reported = -REPEAT_SECONDS

    def begin_poll(self) -> None:
        self._calls = self._total = 0
        self._seconds = MAX_SECONDS

    def of(self, jobs: Iterable[Job], printed: Mapping[int, bytes]) -> dict[int, dict[str, str]]:
        """Return the texts of the jobs that have started, by number.

        `printed` is what scontrol printed of each job that has started since the previous poll.
        """
        found: dict[int, dict[str, str]] = {}
        for job in jobs:
            section = None if job.step else printed.get(job.id)
            if section is None or job.id in found:
                continue
            texts = {
                "jobScript": self._script(job)
                if self.job_script and _BATCH.search(section)
                else "",
                "slurmInfo": as_text(section.strip()) if self.slurm_info else "",
            }
            self._total += sum(map(len, texts.values()))
            if self._total > MAX_TOTAL:
                self._report(f"more than {MAX_TOTAL >> 20} MiB of texts in one poll")
                break
            found[job.id] = {key: text for key, text in texts.items() if text}
        return found

    def _script(self, job: Job) -> str:
        """Return a job's script; all tasks of an array share one, as do a job's components."""
        key = job.array_id or job.het_id, job.submit
        if key in self._shared:
            return self._shared[key]
        if self._calls >= MAX_CALLS or self._seconds <= 0:
            self._report(f"more than {MAX_CALLS} scripts or {MAX_SECONDS:g} s in one poll")
            return ""
        begin = time.monotonic()
        self._calls += 1
        try:
            number = job.het_id or job.id
            script = as_text(self.commands.batch_script(number, self._seconds))
        except UnavailableError as error:
            self._report(f"job {job.id}: {error}")
            return ""
        finally:
            self._seconds -= time.monotonic() - begin
        if key[0]:
            self._shared[key] = script
            if len(self._shared) > MAX_SHARED:
                del self._shared[next(iter(self._shared))]
        return script

    def _report(self, reason: str) -> None:
        """Log, once a minute, why a text is missing."""
        if time.monotonic() - self._reported >= REPEAT_SECONDS:
            self._reported = time.monotonic()
            log.warning("jobs start without their script or description: %s", reason)


def as_text(printed: bytes) -> str:
    """Return printed bytes as text that JSON can carry, cut after ``MAX_BYTES``."""
    text = printed[:MAX_BYTES].decode(errors="replace")
    if len(printed) > MAX_BYTES:
        text += f"\n# [ccpipe: cut after {MAX_BYTES} of {len(printed)} bytes]\n"
    return text
