"""Running and pending jobs and node states of Grid Engine, from ``qstat`` or ``qhost``.

Accounting reports only ends. This source runs ``qstat -u '*' -g t -xml`` regularly and sends a
start for each new job. A job shorter than the interval may be missed: its start is then sent along
with its end, by ``gridengine_to_cc`` with ``live = true``. qstat also lists the jobs that wait.
From ``qhost -j -q -xml`` the source sends the states of all nodes instead.
"""

import asyncio
import logging
import shutil
import time
from collections.abc import AsyncIterator, Iterator
from xml.etree import ElementTree as ET

from ccpipe.config import Interval, Site
from ccpipe.errors import ConfigError, DataError
from ccpipe.formats.clustercockpit import NodeState, encode_node_states
from ccpipe.formats.gridengine.status import Host, parse_xml, read_hosts, read_pending, read_shares
from ccpipe.formats.lineprotocol import Lines, to_lines
from ccpipe.jobs import Job, RunKey, message
from ccpipe.jobs.pending import QueueReports
from ccpipe.message import Message, event
from ccpipe.pipeline import Batch, Source, wait_for_event
from ccpipe.pipeline.state import StateStore
from ccpipe.process import child
from ccpipe.process.background import call_blocking
from ccpipe.translate.gridengine.jobs import (
    MAX_ARRAY_TASKS,
    Mapping,
    pending_jobs,
    running_jobs,
)

log = logging.getLogger(__name__)

MAX_OUTPUT = 2**30


class Qstat(Source[Lines]):
    """Sends ``start_job`` for each new job, ``jobpending``, and ``nodestate`` of listed hosts."""

    gives = Lines

    def __init__(
        self,
        *,
        site: Site,
        command: list[str] = ["qstat", "-u", "*", "-g", "t", "-xml"],  # noqa: B006 - only read
        poll_interval: Interval = Interval(30),  # noqa: B008 - frozen, as any float
        short_hostnames: bool = True,
        array_factor: int = MAX_ARRAY_TASKS,
        threads_per_slot: int = 1,
        state_file: str = "",
    ) -> None:
        """Take the command and how often to run it.

        Parameters
        ----------
        command
            The program and its arguments, run without a shell. ``qhost -j -q -xml`` lists the
            same jobs, and hosts; its times are epoch seconds, qstat's are local.
        poll_interval
            Time between two runs, and how long one may take.
        short_hostnames, array_factor, threads_per_slot
            As for ``gridengine_to_cc``; both must have the same.
        state_file
            A file, on a local disk, that keeps which jobs are pending. Without it they are sent
            again after a restart, and one that left the queue meanwhile counts as pending for two
            more hours.

        """
        if not command:
            raise ConfigError("command is empty: it must name a program")
        self.site = site
        self.command = command
        self.poll_interval = float(poll_interval)
        self.mapping = Mapping(
            cluster=site.cluster,
            short_hostnames=short_hostnames,
            array_factor=array_factor,
            threads_per_slot=threads_per_slot,
        )
        self._known: set[RunKey] = set()
        self._state = StateStore(state_file)
        self._queue = QueueReports(site.cluster, self._state)
        self._stopped = asyncio.Event()

    async def check(self) -> None:
        if shutil.which(self.command[0]) is None:
            raise ConfigError(f"command: {self.command[0]}: no such program")

    def stop(self) -> None:
        self._stopped.set()

    async def batches(self) -> AsyncIterator[Batch[Lines]]:
        self._state.open()
        while not self._stopped.is_set():
            try:
                output = await call_blocking(
                    lambda: child.run(self.command, timeout=self.poll_interval, output=MAX_OUTPUT)
                )
                tree = parse_xml(output)
                running = running_jobs(read_shares(tree), self.site.cluster)
                found = [*self._new_starts(running), *self._queue_events(tree, running)]
                found += self._node_states(read_hosts(tree, lists_jobs="-j" in self.command))
            except (DataError, OSError) as error:
                log.warning("%s: %s", self.command[0], error)
            else:
                if found:
                    yield Batch(to_lines(found), self._acknowledge, self.command[0])
            await wait_for_event(self._stopped, self.poll_interval)

    def _new_starts(self, jobs: list[Job]) -> list[Message]:
        """Return the starts of new jobs, and forget jobs no longer listed."""
        there = {job.run_key: job for job in jobs}
        new = [job for key, job in there.items() if key not in self._known]
        self._known = set(there)
        return [message("start_job", self.mapping.apply(job)) for job in new if job.user]

    def _queue_events(self, tree: ET.Element, running: list[Job]) -> Iterator[Message]:
        """Yield what has changed in the queue, if the command lists it."""
        rows = read_pending(tree)
        if rows is not None:
            states = {job.array_id or job.id: job.state for job in running}
            yield from self._queue.update(
                pending_jobs(rows, self.mapping),
                time.time_ns(),
                state_of=lambda number: states.get(number, ""),
            )

    async def _acknowledge(self) -> None:
        self._state.commit(is_durable=True)

    def _node_states(self, hosts: list[Host]) -> list[Message]:
        rows = [self._node_state(host) for host in hosts]
        cluster = self.site.cluster
        tags = {"cluster": cluster, "hostname": self.site.hostname, "type": "node"}
        now = time.time_ns()
        return [
            event("nodestate", "nodestate", payload, time=now, tags=tags)
            for payload in encode_node_states(cluster, rows)
        ]

    def _node_state(self, host: Host) -> NodeState:
        used = host.slots_used
        threads = None if used is None else used * self.mapping.threads_per_slot
        states = ["drain"] if host.is_disabled else []
        if not host.is_reachable:
            states.insert(0, "down")
        elif threads == 0:
            states.insert(0, "idle")
        elif threads is not None:
            is_full = host.processors is not None and threads >= host.processors
            states.insert(0, "allocated" if is_full else "mixed")
        name = self.mapping.node(host.name)
        return NodeState(name, states, cpusAllocated=threads, jobsRunning=host.jobs_running)
