"""Live starts of Grid Engine's jobs, from ``qstat`` or ``qhost``: where nothing writes them down.

Accounting knows only ends. This asks ``qstat -u '*' -g t -xml`` now and then, and tells of each
job that runs and did not run before. A job shorter than the interval may be missed: its start
then comes with its end, from ``accounting_jobs`` with ``live = true``.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator

from ccpipe.config import Interval, Site
from ccpipe.errors import ConfigError, DataError
from ccpipe.formats.gridengine.status import Running, read_shares, running
from ccpipe.formats.lineprotocol.messages import Messages
from ccpipe.message import Message
from ccpipe.pipeline import Batch, Source, wait_for_event
from ccpipe.translate.gridengine.events import MAX_ARRAY_TASKS, Mapping, start_running

log = logging.getLogger(__name__)


class Qstat(Source):
    """Sends ``start_job`` for each job that has begun to run."""

    gives = Messages

    def __init__(
        self,
        *,
        site: Site,
        command: list[str] = ["qstat", "-u", "*", "-g", "t", "-xml"],  # noqa: B006 - only read
        poll: Interval = Interval(30),  # noqa: B008 - frozen, as any float
        short_hostnames: bool = True,
        array_factor: int = MAX_ARRAY_TASKS,
        threads_per_slot: int = 1,
    ) -> None:
        """Take what to ask, and how often.

        Parameters
        ----------
        command
            The program and its arguments; no shell sees them. ``qhost -j -xml`` does as well:
            its times have a zone, those of qstat are of this machine's.
        poll
            Time between two questions, and how long one may take.
        short_hostnames, array_factor, threads_per_slot
            As for ``accounting_jobs``, and the same there.

        Raises
        ------
        ConfigError
            where there is no command.

        """
        if not command:
            raise ConfigError("command is empty: a program must stand there")
        self.command = command
        self.poll = float(poll)
        self.mapping = Mapping(
            cluster=site.cluster,
            short_hostnames=short_hostnames,
            array_factor=array_factor,
            threads_per_slot=threads_per_slot,
        )
        self._known: set[tuple[int, int, int]] = set()
        self._stopped = asyncio.Event()

    def stop(self) -> None:
        """End after the question that is being asked."""
        self._stopped.set()

    async def __aiter__(self) -> AsyncIterator[Batch]:
        """Yield the starts of each question, until stopped."""
        while not self._stopped.is_set():
            try:
                starts = self._news(running(read_shares(await self._ask())))
            except (DataError, OSError, TimeoutError) as error:
                log.warning("%s: %s", self.command[0], str(error) or "no answer in time")
            else:
                if starts:
                    yield Batch(starts, origin=self.command[0])
            await wait_for_event(self._stopped, self.poll)

    def _news(self, jobs: list[Running]) -> list[Message]:
        """Return the starts of jobs that are new, and forget those that are gone."""
        there = {(job.job_number, job.task_number, job.start_time): job for job in jobs}
        new = [job for key, job in there.items() if key not in self._known]
        self._known = set(there)
        return [start_running(job, self.mapping) for job in new if job.owner]

    async def _ask(self) -> bytes:
        """Run the command; raises DataError where it fails, TimeoutError where it takes long."""
        process = await asyncio.create_subprocess_exec(
            *self.command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        try:
            output, complaint = await asyncio.wait_for(process.communicate(), self.poll)
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
        if process.returncode:
            raise DataError(f"exit status {process.returncode}: {complaint[:200]!r}")
        return output
