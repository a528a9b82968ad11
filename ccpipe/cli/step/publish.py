"""Samples of a step's tasks, published live, with an event at the end."""

import asyncio
import contextlib
import logging
import queue
import threading
import time
from pathlib import Path
from typing import Any

import msgspec

from ccpipe.bus.nats.sink import NatsSink
from ccpipe.cli.step.node_series import Values
from ccpipe.config import Site
from ccpipe.errors import CcpipeError, UnavailableError
from ccpipe.formats.lineprotocol import to_lines
from ccpipe.formats.slurm_metrics import to_metrics
from ccpipe.message import Message, event
from ccpipe.node.agent.spooling import SpoolingSink, open_replay
from ccpipe.node.gather.jobacct import JobacctInfo, to_sacct
from ccpipe.node.gather.jobacct.poller import TaskSample
from ccpipe.node.gather.profile import SERIES, SeriesSelection, Step
from ccpipe.pipeline import Sink
from ccpipe.sinks.dead_letter_file import NODE_BYTES, DeadLetterFile
from ccpipe.telemetry import Telemetry
from ccpipe.terminal import note

log = logging.getLogger(__name__)

CONNECT_SECONDS = 5.0
"""Time limit at the end without a connection."""
CONFIRM_SECONDS = 120.0
"""Time limit at the end for a connected server to confirm the last messages, as a publisher's."""
MAX_WAITING = 10_000
"""Maximum number of messages that wait for the server; further ones are dropped and counted."""


def end_of_step(info: JobacctInfo, site: Site, step: Step) -> Message:
    nodes = [""] * step.node_index + [step.node]
    payload = {
        "jobid": step.job,
        "stepid": step.step,
        "node": step.node,
        **to_sacct(info, nodes, convert=False),
    }
    text = msgspec.json.encode(payload).decode()
    tags = {
        "cluster": site.cluster,
        "hostname": step.node,
        "type": "node",
        "jobid": str(step.job),
        "stepid": step.step,
    }
    return event("step", "stop_step", text, time=time.time_ns(), tags=tags)


class SamplePublisher:
    """Publishes from a separate thread: neither the command nor the sampling waits for it.

    Messages that the server does not accept go to the file `spool`, and are replayed later, also
    by a later process. Without a spool they wait in memory, up to a limit; further ones are
    dropped and counted.
    """

    def __init__(
        self, site: Site, *, max_waiting: int = MAX_WAITING, spool: Path | None = None
    ) -> None:
        self._site, self._max_waiting, self._spool = site, max_waiting, spool
        self._waiting: queue.Queue[list[Message] | None] = queue.Queue()
        self.unconfirmed = 0
        """Number of messages that were neither confirmed by the server nor spooled."""
        self._dropped = 0
        self._closed_at: float | None = None
        self._thread = threading.Thread(target=self._run, name="publish", daemon=True)
        self._thread.start()

    def publish(self, step: Step, samples: list[TaskSample]) -> None:
        found: list[Message] = []
        for one in samples:
            time_ns, task = round(one.time * 10**9), str(one.id.task)
            found += self._metrics(step, "Tasks", one.values, time_ns, task)
        self._put(found)

    def publish_node(self, step: Step, series: SeriesSelection, values: Values) -> None:
        self._put(self._metrics(step, SERIES[series], values, time.time_ns()))

    def _metrics(
        self, step: Step, series: str, values: Values, time_ns: int, task: str | None = None
    ) -> list[Message]:
        names = {"cluster": self._site.cluster, "node": step.node, "step": step.step}
        return list(to_metrics(series, values, time_ns, job=str(step.job), task=task, **names))

    def publish_end(self, step: Step, info: JobacctInfo) -> None:
        self._put([end_of_step(info, self._site, step)])

    def close(self) -> None:
        """Wait until the server has confirmed the last messages, or they are in the spool."""
        self._closed_at = time.monotonic()
        self._waiting.put(None)
        self._thread.join(CONNECT_SECONDS)
        if self._thread.is_alive() and self.unconfirmed:
            note(f"ccpipe: waiting for the server to confirm {self.unconfirmed} messages")
        self._thread.join(CONFIRM_SECONDS)
        if lost := self._dropped + self.unconfirmed:
            note(f"ccpipe: {lost} messages were not published", "yellow")

    def _put(self, batch: list[Message]) -> None:
        if self.unconfirmed + len(batch) > self._max_waiting:
            self._dropped += len(batch)
        else:
            self.unconfirmed += len(batch)
            self._waiting.put(batch)

    def _run(self) -> None:
        try:
            asyncio.run(self._publish())
        except CcpipeError as error:
            log.warning("nothing more is published: %s", error)

    async def _publish(self) -> None:
        telemetry = Telemetry()
        async with contextlib.AsyncExitStack() as stack:
            bus = await stack.enter_async_context(NatsSink(site=self._site, telemetry=telemetry))
            sink: Sink[Any] = bus
            if self._spool is not None:
                path = self._spool.with_name(f"{self._spool.stem}.dead.lp")
                dead = DeadLetterFile(path, max_bytes=NODE_BYTES)
                replay = await open_replay(bus, self._spool, dead, telemetry)
                await stack.enter_async_context(replay.running())
                sink = SpoolingSink(bus, replay, lambda: self._closed_at is not None)
            while (batch := await asyncio.to_thread(self._waiting.get)) is not None:
                await self._write(sink, batch, bus)
                self.unconfirmed -= len(batch)

    async def _write(self, sink: Sink[Any], batch: list[Message], bus: NatsSink) -> None:
        while True:
            try:
                return await sink.write(to_lines(batch))
            except UnavailableError:
                limit = CONFIRM_SECONDS if bus.bus.is_connected else CONNECT_SECONDS
                if self._closed_at is not None and time.monotonic() - self._closed_at > limit:
                    raise
                await asyncio.sleep(0.2)
            except CcpipeError as error:
                log.warning("%d messages are refused: %s", len(batch), error)
                self._dropped += len(batch)
                return None
