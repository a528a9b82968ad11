"""Samples of a step's tasks, live on the bus, and at the end an event."""

import asyncio
import contextlib
import queue
import threading
import time
from collections.abc import Iterator

import msgspec

from ccpipe.bus.nats.sink import NatsSink
from ccpipe.config import Site
from ccpipe.errors import CcpipeError
from ccpipe.formats.slurm_metrics import to_metrics
from ccpipe.message import Message, event
from ccpipe.node.gather.jobacct import JobacctInfo, to_sacct
from ccpipe.node.gather.jobacct.poller import TaskSample
from ccpipe.node.gather.profile import Step
from ccpipe.telemetry import Telemetry
from ccpipe.terminal import note

CLOSE_SECONDS = 5.0
"""How long the last messages may take."""
MAX_WAITING = 10_000
"""Messages that wait for the server; further ones are dropped, and counted."""


def messages(sample: TaskSample, site: Site, step: Step) -> Iterator[Message]:
    """Yield a sample as metrics."""
    return to_metrics(
        "Tasks",
        sample.values,
        round(sample.time * 10**9),
        cluster=site.cluster,
        node=step.node,
        job=str(step.job),
        step=step.step,
        task=str(sample.id.task),
    )


def end_of_step(info: JobacctInfo, site: Site, step: Step) -> Message:
    """Return the event of a step that ended: sacct's columns as JSON."""
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
    """Publishes from a thread of its own: neither the command nor the gathering waits for it.

    What the server does not take within a few seconds is dropped, and counted.
    """

    def __init__(self, site: Site, *, max_waiting: int = MAX_WAITING) -> None:
        """Begin to connect."""
        self._site, self._max_waiting = site, max_waiting
        self._waiting: queue.Queue[list[Message] | None] = queue.Queue()
        self._count = self._dropped = 0
        self._thread = threading.Thread(target=self._run, name="publish", daemon=True)
        self._thread.start()

    def publish(self, step: Step, samples: list[TaskSample]) -> None:
        """Publish samples of a step soon."""
        self._put([one for sample in samples for one in messages(sample, self._site, step)])

    def publish_end(self, step: Step, info: JobacctInfo) -> None:
        """Publish the event of a step that ended."""
        self._put([end_of_step(info, self._site, step)])

    def close(self) -> None:
        """Wait for the last messages for a few seconds."""
        self._waiting.put(None)
        self._thread.join(CLOSE_SECONDS)
        if lost := self._dropped + self._count:
            note(f"ccpipe: {lost} messages were not published", "yellow")

    def _put(self, batch: list[Message]) -> None:
        if self._count + len(batch) > self._max_waiting:
            self._dropped += len(batch)
        else:
            self._count += len(batch)
            self._waiting.put(batch)

    def _run(self) -> None:
        with contextlib.suppress(CcpipeError):
            asyncio.run(self._publish())

    async def _publish(self) -> None:
        async with NatsSink(site=self._site, telemetry=Telemetry()) as sink:
            while (batch := await asyncio.to_thread(self._waiting.get)) is not None:
                deadline = time.monotonic() + CLOSE_SECONDS
                while not await self._write(sink, batch):
                    if time.monotonic() > deadline:
                        self._dropped += len(batch)
                        break
                    await asyncio.sleep(0.2)
                self._count -= len(batch)

    async def _write(self, sink: NatsSink, batch: list[Message]) -> bool:
        try:
            await sink.write(batch)
        except CcpipeError:
            return False
        return True
