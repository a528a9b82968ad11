"""Jobs of a simulated cluster: they arrive, wait for nodes, run and end."""

import heapq
import math
import random
from collections import deque
from collections.abc import Iterator
from typing import Literal, NamedTuple

import msgspec

from ccpipe.jobs import Job, JobNode

SECOND = 10**9
MILLISECOND = 10**6
MEDIAN_SECONDS = 1200.0
"""Median run time of jobs. Durations are log-normal, as at real sites."""
SIGMA = 1.2
LOAD = 0.9  # mean utilisation of the nodes
MAX_WAITING = 1000
"""Maximum length of the queue, beyond which no jobs are submitted."""
OUTAGE_SECONDS = 1800

_USERS = 97
_PROJECTS = 13
_NAMES = ("gromacs", "openfoam", "namd", "vasp", "train", "lammps", "icon")
_ENDS = ("completed",) * 17 + ("failed", "cancelled", "timeout")


class JobChange(NamedTuple):
    """A job that started or ended."""

    function: Literal["start_job", "stop_job"]
    job: Job


class Scheduler:
    """Allocates nodes to jobs, first come first served.

    Job ids count from the start in milliseconds, so that clusters that start later have others.

    Nodes fail `failures` times a day on average, for half an hour; their jobs end as
    ``node_fail``.
    """

    def __init__(
        self,
        cluster: str,
        nodes: list[str],
        *,
        hwthreads: int,
        gpus: int = 0,
        start: int,
        seed: int,
        failures: float = 0.0,
    ) -> None:
        self.cluster = cluster
        self.nodes = nodes
        self.hwthreads = hwthreads
        self.gpus = tuple(map(str, range(gpus)))
        """Ids of a node's GPUs, as in the tag ``type-id`` of their metrics."""
        self.draw = random.Random(f"{seed}/jobs")  # noqa: S311 - reproducible on purpose
        self.job_of: list[Job | None] = [None] * len(nodes)  # the job on each node
        self.is_away = bytearray(len(nodes))
        self._free = deque(self.draw.sample(range(len(nodes)), len(nodes)))
        self._running: dict[int, tuple[Job, list[int]]] = {}
        self._waiting: deque[tuple[int, int, int]] = deque()  # submit, nodes, duration
        self._events: list[tuple[int, int, str, int]] = []  # time, number, what, of which
        self._numbers = 0
        self._last_id = start // MILLISECOND
        self._widths = [2**k for k in range(max(1, int(math.log2(max(len(nodes) // 4, 2)))))]
        mean = MEDIAN_SECONDS * math.exp(SIGMA**2 / 2)
        width = sum(w / w for w in self._widths) / sum(1 / w for w in self._widths)
        self._gap = mean * width / (LOAD * len(nodes))
        self._failure_gap = 86_400 / (failures * len(nodes)) if failures else math.inf
        self._schedule(start, "arrive")
        if failures:
            self._schedule(start + self._exponential(self._failure_gap), "fail")
        while len(self._free) > len(nodes) * (1 - LOAD):  # the cluster is not empty at the start
            self._arrive(start)
            if not self._place(start, []):
                break

    def advance(self, until: int) -> Iterator[JobChange]:
        """Yield the changes until a time, in nanoseconds since the epoch, in order."""
        while self._events and self._events[0][0] <= until:
            now, _, what, which = heapq.heappop(self._events)
            changes: list[JobChange] = []
            if what == "arrive":
                self._arrive(now)
                self._schedule(now + self._exponential(self._gap), "arrive")
            elif what == "end" and which in self._running:
                changes.append(self._end(which, now, self.draw.choice(_ENDS)))
            elif what == "fail":
                changes.extend(self._fail(now))
            elif what == "return":
                self.is_away[which] = 0
                self._free.append(which)
            while self._place(now, changes):
                pass
            yield from changes

    def running(self) -> list[Job]:
        return [job for job, _ in self._running.values()]

    def cancel_all(self, now: int) -> Iterator[JobChange]:
        """Yield the ends of the running jobs, as ``cancelled``."""
        for which in list(self._running):
            yield self._end(which, now, "cancelled")

    def _arrive(self, now: int) -> None:
        if len(self._waiting) < MAX_WAITING:
            width = self.draw.choices(self._widths, [1 / w for w in self._widths])[0]
            seconds = self.draw.lognormvariate(math.log(MEDIAN_SECONDS), SIGMA)
            self._waiting.append((now, width, max(1, round(seconds)) * SECOND))

    def _place(self, now: int, changes: list[JobChange]) -> bool:
        """Start the first queued job, if enough nodes are free."""
        if not self._waiting or self._waiting[0][1] > len(self._free):
            return False
        submit, width, duration = self._waiting.popleft()
        chosen = sorted(self._free.popleft() for _ in range(width))
        self._last_id += 1
        job = Job(
            cluster=self.cluster,
            id=self._last_id,
            state="running",
            name=_NAMES[self._last_id % len(_NAMES)],
            user=f"user{self.draw.randrange(_USERS):02}",
            project=f"project{self.draw.randrange(_PROJECTS):02}",
            partition="main",
            submit=submit,
            start=now,
            nodes=tuple(JobNode(self.nodes[at], accelerators=self.gpus) for at in chosen),
            hwthreads=width * self.hwthreads,
            accelerators=width * len(self.gpus),
            shared="none",
            walltime=86_400,
        )
        for index in chosen:
            self.job_of[index] = job
        self._running[job.id] = job, chosen
        self._schedule(now + duration, "end", job.id)
        changes.append(JobChange("start_job", job))
        return True

    def _end(self, which: int, now: int, state: str) -> JobChange:
        job, nodes = self._running.pop(which)
        for index in nodes:
            self.job_of[index] = None
            if not self.is_away[index]:
                self._free.append(index)
        return JobChange("stop_job", msgspec.structs.replace(job, state=state, end=now))

    def _fail(self, now: int) -> Iterator[JobChange]:
        self._schedule(now + self._exponential(self._failure_gap), "fail")
        index = self.draw.randrange(len(self.nodes))
        if self.is_away[index]:
            return
        self.is_away[index] = 1
        self._schedule(now + OUTAGE_SECONDS * SECOND, "return", index)
        job = self.job_of[index]
        if job is None:
            self._free.remove(index)
        else:
            yield self._end(job.id, now, "node_fail")

    def _schedule(self, time: int, what: str, which: int = 0) -> None:
        self._numbers += 1
        heapq.heappush(self._events, (time, self._numbers, what, which))

    def _exponential(self, mean: float) -> int:
        return round(self.draw.expovariate(1 / mean) * SECOND)
