"""Samples of a step's tasks, live on the bus.

Each task is a series of its own in ClusterCockpit's store, which files by ``stype`` and
``stype-id``: ``stype=task`` with job, step and task. The same ids are tags of their own for stores
that select by any tag.
"""

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
from ccpipe.message import Message, event, metric
from ccpipe.node.gather.jobacct import JobacctInfo, to_sacct
from ccpipe.node.gather.jobacct.poller import TaskSample
from ccpipe.node.gather.profile import Step
from ccpipe.telemetry import Telemetry
from ccpipe.terminal import note

CLOSE_SECONDS = 5.0
"""How long the last messages may take."""
MAX_WAITING = 10_000
"""Messages that wait for the server; further ones are dropped, and counted."""

_METRICS = {
    "CPUFrequency": ("task_cpu_freq", 1),
    "CPUTime": ("task_cpu_time", 1),
    "CPUUtilization": ("task_cpu_util", 1),
    "RSS": ("task_mem_rss", 1024),
    "VMSize": ("task_mem_virtual", 1024),
    "Pages": ("task_major_faults", 1),
    "ReadMB": ("task_read_bytes", 2**20),
    "WriteMB": ("task_write_bytes", 2**20),
    "GPUMemMB": ("task_gpu_mem", 2**20),
    "GPUUtilization": ("task_gpu_util", 1),
}
"""Metrics by Slurm's field, with the factor to bytes; the frequency is in kHz, the time in s."""


def messages(sample: TaskSample, site: Site, step: Step) -> Iterator[Message]:
    """Yield a sample as metrics; bytes read and written are those since the last sample."""
    tags = {
        **_tags(site, step),
        "stype": "task",
        "stype-id": f"{step.job}.{step.step}.{sample.id.task}",
        "taskid": str(sample.id.task),
    }
    at = round(sample.time * 10**9)
    for field, value in sample.values.items():
        if value is not None:
            name, factor = _METRICS[field]
            yield metric(name, value * factor, time=at, tags=tags)


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
    return event("step", "stop_step", text, time=time.time_ns(), tags=_tags(site, step))


def _tags(site: Site, step: Step) -> dict[str, str]:
    return {
        "cluster": site.cluster,
        "hostname": step.node,
        "type": "node",
        "jobid": str(step.job),
        "stepid": step.step,
    }


class SamplePublisher:
    """Publishes from a thread of its own: neither the command nor the gathering waits for it."""

    def __init__(self, site: Site, step: Step) -> None:
        """Begin to connect."""
        self._site, self._step = site, step
        self._waiting: queue.Queue[list[Message] | None] = queue.Queue()
        self._count = self._dropped = 0
        self._thread = threading.Thread(target=self._run, name="publish", daemon=True)
        self._thread.start()

    def publish(self, samples: list[TaskSample]) -> None:
        """Publish samples soon."""
        self._put([one for sample in samples for one in messages(sample, self._site, self._step)])

    def close(self, info: JobacctInfo) -> None:
        """Publish the event, and wait for the last messages for a few seconds."""
        self._put([end_of_step(info, self._site, self._step)])
        self._waiting.put(None)
        self._thread.join(CLOSE_SECONDS)
        if lost := self._dropped + self._count:
            note(f"ccpipe: {lost} messages were not published", "yellow")

    def _put(self, batch: list[Message]) -> None:
        if self._count + len(batch) > MAX_WAITING:
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
                while True:
                    try:
                        await sink.write(batch)
                    except CcpipeError:
                        if time.monotonic() > deadline:
                            raise
                        await asyncio.sleep(0.2)
                    else:
                        break
                self._count -= len(batch)
