"""Jobs of a simulated cluster: they arrive, wait for nodes, run and end; nodes fail and drain."""

import heapq
import math
import random
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

import msgspec

from ccpipe.jobs import Job, JobNode
from ccpipe.jobs.pending import PendingJob
from ccpipe.simulate.kinds import (
    CPU_KINDS,
    FULL_MEMORY,
    GPU_KINDS,
    JOB_MEMORY,
    SERIAL,
    SLOW_NODE,
    JobKind,
)

SECOND = 10**9
MILLISECOND = 10**6
MEDIAN_SECONDS = 1200.0
"""Median run time of jobs. Durations are log-normal, as at real sites."""
SIGMA = 1.2
LOAD = 0.9  # mean utilisation of the nodes
MAX_WAITING = 1000
"""Maximum length of the queue, beyond which no jobs are submitted."""
OUTAGE_SECONDS = 1800
FIRST_FAILURE = 120 * SECOND
"""Time from the start to the first failure of a node, if nodes fail at all."""
FIRST_DRAIN = 60 * SECOND
DRAINS = 3.0
"""Drained nodes for each node that fails."""
DRAIN_SECONDS = 3600
REASONS = (
    "DIMM_A3: correctable memory errors", "IB link is SDR", "GPU 2 fell off the bus",
    "firmware update", "Kill task failed", "/scratch is not mounted",
)  # fmt: skip
"""Why nodes are drained."""
SLOW = 0.1
"""Share of the jobs of several nodes without GPUs of which one node is out of line."""
SLOW_NODES = 3
"""Number of nodes from which on one can be out of line."""
REQUEUED = 0.03
"""Share of the jobs that are preempted once, and run again; of a node that fails, half are."""
HELD = 0.1
"""Share of the jobs that may not start yet when they are submitted."""
HELD_SECONDS = 1800.0
"""Mean time for which they may not; at the start there are some already."""
HOLD_REASONS = ("Dependency", "BeginTime", "JobHeldUser")
CANCELLED = 0.2
"""Share of them that are cancelled before they may start."""
WALLTIMES = (600, 1800, 3600, 7200, 14_400, 28_800, 43_200, 86_400)
"""Time limits that users request, in seconds."""

_USERS = 97
_PROJECTS = 13
_ENDS = ("completed",) * 17 + ("failed", "cancelled", "timeout")


class JobChange(NamedTuple):
    """A job that started or ended."""

    function: Literal["start_job", "stop_job"]
    job: Job


class NodeChange(NamedTuple):
    """A node that failed, was drained, or returned."""

    time: int
    node: str
    state: Literal["down", "drain", "resume"]
    reason: str = ""


class JobRequest(NamedTuple):
    """A job that waits, and how it will run and end."""

    job: Job
    kind: JobKind
    nodes: int
    duration: int
    end: str
    """The state in which it ends, if it is not interrupted."""


class Held(NamedTuple):
    """A job that may not start yet, and why."""

    partition: "SimulatedPartition"
    request: JobRequest
    reason: str


class Running(NamedTuple):
    """A job that runs, and the numbers of its nodes."""

    job: Job
    request: JobRequest
    nodes: list[int]
    end: str
    """The state in which this run ends, if nothing happens to its nodes."""
    due: int
    """When it ends."""


class SimulatedPartition:
    """Some of the nodes, with their queue."""

    def __init__(self, name: str, kinds: Sequence[JobKind], nodes: Sequence[int]) -> None:
        """Take the kinds of its jobs, and the numbers of its nodes in the order of their use."""
        self.name = name
        self.kinds = kinds
        self.size = len(nodes)
        self.free = deque(nodes)
        self.waiting: deque[JobRequest] = deque()
        self.widths = [2**k for k in range(max(1, int(math.log2(max(self.size // 4, 2)))))]
        mean = MEDIAN_SECONDS * math.exp(SIGMA**2 / 2)
        width = sum(w / w for w in self.widths) / sum(1 / w for w in self.widths)
        self.rate = LOAD * self.size / (mean * width)
        """Jobs that are submitted per second."""


class Scheduler:
    """Allocates nodes to jobs, first come first served in each partition.

    Job ids count from the start in milliseconds, so that clusters that start later have others. A
    job that was requeued keeps its id.

    Nodes fail `failures` times a day on average, for half an hour; their jobs end as
    ``node_fail``. Three times as many are drained: these finish their job, and get no other for an
    hour.
    """

    def __init__(
        self,
        cluster: str,
        nodes: list[str],
        *,
        hwthreads: int,
        gpus: int = 0,
        gpu_nodes: int = 0,
        start: int,
        seed: int,
        failures: float = 0.0,
    ) -> None:
        """Start with running jobs; the last `gpu_nodes` nodes have `gpus` GPUs each."""
        self.cluster = cluster
        self.nodes = nodes
        self.hwthreads = hwthreads
        self.gpus = tuple(map(str, range(gpus)))
        """Ids of a node's GPUs, as in the tag ``type-id`` of their metrics."""
        self.draw = random.Random(f"{seed}/jobs")  # noqa: S311 - reproducible on purpose
        self.job_of: list[Job | None] = [None] * len(nodes)  # the job on each node
        self.kind_of: list[JobKind | None] = [None] * len(nodes)
        """The kind of job whose values each node has."""
        self.is_away = bytearray(len(nodes))
        self.is_drained = bytearray(len(nodes))
        self.reasons: dict[str, str] = {}
        """Why nodes are down or drained, by name."""
        self.node_changes: list[NodeChange] = []
        """What happened to nodes; whoever reports it empties the list."""
        self._running: dict[int, Running] = {}
        self._held: dict[int, Held] = {}
        self._draw_hold = random.Random(f"{seed}/hold")  # noqa: S311 - reproducible on purpose
        self._cancelled: set[int] = set()
        """Jobs that were cancelled while they waited, until that was reported."""
        self._events: list[tuple[int, int, str, int]] = []  # time, number, what, of which
        self._numbers = 0
        self._last_id = start // MILLISECOND
        order = self.draw.sample(range(len(nodes)), len(nodes))
        first = len(nodes) - gpu_nodes
        partitions = (
            SimulatedPartition("main", CPU_KINDS, [index for index in order if index < first]),
            SimulatedPartition("gpu", GPU_KINDS, [index for index in order if index >= first]),
        )
        self._partitions = [each for each in partitions if each.size]
        self._partition_of = [partitions[index >= first] for index in range(len(nodes))]
        self._gap = 1 / sum(each.rate for each in self._partitions)
        self._failure_gap = 86_400 / (failures * len(nodes)) if failures else math.inf
        self._schedule(start, "arrive")
        if failures:
            self._schedule(start + FIRST_FAILURE, "fail")
            self._schedule(start + FIRST_DRAIN, "drain")
        for each in self._partitions:  # the cluster is not empty at the start
            while len(each.free) > each.size * (1 - LOAD):
                self._arrive(start, each)
                if not self._place(each, start, []):
                    break
            self._arrive(start, each, is_held=True)

    def advance(self, until: int) -> Iterator[JobChange]:
        """Yield the changes until a time, in nanoseconds since the epoch, in order."""
        while self._events and self._events[0][0] <= until:
            now, _, what, which = heapq.heappop(self._events)
            changes: list[JobChange] = []
            match what:
                case "arrive":
                    rates = [each.rate for each in self._partitions]
                    is_held = self._draw_hold.random() < HELD
                    partition = self.draw.choices(self._partitions, rates)[0]
                    self._arrive(now, partition, is_held=is_held)
                    self._schedule(now + self._exponential(self._gap), "arrive")
                case "end" if which in self._running and now >= self._running[which].due:
                    changes.append(self._finish(which, now))
                case "release":
                    self._release(which)
                case "fail":
                    changes.extend(self._fail(now))
                case "drain":
                    self._drain(now)
                case "return":
                    self._return(which, now)
            while any(self._place(each, now, changes) for each in self._partitions):
                pass
            yield from changes

    def queue(self) -> Iterator[PendingJob]:
        """Yield the jobs that wait: the first of each partition for nodes, others for it."""
        for partition in self._partitions:
            for place, request in enumerate(partition.waiting):
                yield _pending(request, "Priority" if place else "Resources")
        for held in self._held.values():
            yield _pending(held.request, held.reason)

    def state_of(self, number: int) -> str:
        """Return ``running`` or ``cancelled``, once, of a job that left the queue."""
        if number in self._cancelled:
            self._cancelled.remove(number)
            return "cancelled"
        return "running" if number in self._running else ""

    def running(self) -> list[Job]:
        return [each.job for each in self._running.values()]

    def cancel_all(self, now: int) -> Iterator[JobChange]:
        """Yield the ends of the running jobs, as ``cancelled``."""
        for which in list(self._running):
            yield self._end(which, now, "cancelled")

    def _arrive(self, now: int, partition: SimulatedPartition, *, is_held: bool = False) -> None:
        if len(partition.waiting) >= MAX_WAITING:
            return
        kinds, widths = partition.kinds, partition.widths
        kind = self.draw.choices(kinds, [each.weight for each in kinds])[0]
        width = self.draw.choices(widths, [1 / w for w in widths])[0]
        width = 1 if kind is SERIAL else width
        seconds = max(1, round(self.draw.lognormvariate(math.log(MEDIAN_SECONDS), SIGMA)))
        end = self.draw.choice(_ENDS)
        if kind is FULL_MEMORY and end != "completed":
            end = "out_of_memory"
        wanted = [limit for limit in WALLTIMES if limit >= seconds] or [WALLTIMES[-1]]
        walltime = self.draw.choice(wanted[:3])
        self._last_id += 1
        job = Job(
            cluster=self.cluster,
            id=self._last_id,
            state="pending",
            name=self.draw.choice(kind.programs),
            user=f"user{self.draw.randrange(_USERS):02}",
            project=f"project{self.draw.randrange(_PROJECTS):02}",
            partition=partition.name,
            submit=now,
            hwthreads=width * self.hwthreads,
            accelerators=width * len(self.gpus) if kind in GPU_KINDS else 0,
            memory=width * JOB_MEMORY * 1000,
            shared="none",
            walltime=walltime,
        )
        duration = walltime if end == "timeout" else min(seconds, walltime)
        request = JobRequest(job, kind, width, duration * SECOND, end)
        if is_held:
            self._held[job.id] = Held(partition, request, self._draw_hold.choice(HOLD_REASONS))
            delay = self._draw_hold.expovariate(1 / HELD_SECONDS)
            self._schedule(now + round(delay * SECOND), "release", job.id)
        else:
            partition.waiting.append(request)

    def _release(self, which: int) -> None:
        """Let a held job wait for nodes, unless it is cancelled."""
        held = self._held.pop(which)
        if self._draw_hold.random() < CANCELLED:
            self._cancelled.add(which)
        else:
            held.partition.waiting.append(held.request)

    def _place(self, partition: SimulatedPartition, now: int, changes: list[JobChange]) -> bool:
        """Start the first queued job, if enough nodes are free."""
        if not partition.waiting or partition.waiting[0].nodes > len(partition.free):
            return False
        request = partition.waiting.popleft()
        chosen = sorted(partition.free.popleft() for _ in range(request.nodes))
        gpus = self.gpus if request.job.accelerators else ()
        job = msgspec.structs.replace(
            request.job,
            state="running",
            start=now,
            nodes=tuple(JobNode(self.nodes[at], accelerators=gpus) for at in chosen),
        )
        for index in chosen:
            self.job_of[index] = job
            self.kind_of[index] = request.kind
        if len(chosen) >= SLOW_NODES and self.draw.random() < SLOW and not gpus:
            self.kind_of[self.draw.choice(chosen)] = SLOW_NODE
        duration, end = request.duration, request.end
        if job.run == 0 and self.draw.random() < REQUEUED:
            duration, end = max(SECOND, round(duration * self.draw.random())), "preempted"
        self._running[job.id] = Running(job, request, chosen, end, now + duration)
        self._schedule(now + duration, "end", job.id)
        changes.append(JobChange("start_job", job))
        return True

    def _finish(self, which: int, now: int) -> JobChange:
        run = self._running[which]
        if run.end == "preempted":
            self._requeue(run.request)
        return self._end(which, now, run.end)

    def _requeue(self, request: JobRequest) -> None:
        """Queue a job again, before all others."""
        job = msgspec.structs.replace(request.job, run=request.job.run + 1)
        [partition] = [each for each in self._partitions if each.name == job.partition]
        partition.waiting.appendleft(request._replace(job=job))

    def _end(self, which: int, now: int, state: str) -> JobChange:
        run = self._running.pop(which)
        for index in run.nodes:
            self.job_of[index] = self.kind_of[index] = None
            if not (self.is_away[index] or self.is_drained[index]):
                self._partition_of[index].free.append(index)
        return JobChange("stop_job", msgspec.structs.replace(run.job, state=state, end=now))

    def _fail(self, now: int) -> Iterator[JobChange]:
        self._schedule(now + self._exponential(self._failure_gap), "fail")
        index = self.draw.randrange(len(self.nodes))
        if self.is_away[index] or self.is_drained[index]:
            return
        self.is_away[index] = 1
        self._report(now, index, "down", "Not responding")
        self._schedule(now + OUTAGE_SECONDS * SECOND, "return", index)
        job = self.job_of[index]
        if job is None:
            self._partition_of[index].free.remove(index)
            return
        request = self._running[job.id].request
        if job.run == 0 and self.draw.random() < 0.5:  # noqa: PLR2004 - the others want no requeue
            self._requeue(request)
        yield self._end(job.id, now, "node_fail")

    def _drain(self, now: int) -> None:
        self._schedule(now + self._exponential(self._failure_gap / DRAINS), "drain")
        index = self.draw.randrange(len(self.nodes))
        if self.is_away[index] or self.is_drained[index]:
            return
        self.is_drained[index] = 1
        self._report(now, index, "drain", self.draw.choice(REASONS))
        self._schedule(now + DRAIN_SECONDS * SECOND, "return", index)
        if self.job_of[index] is None:
            self._partition_of[index].free.remove(index)

    def _return(self, index: int, now: int) -> None:
        self.is_away[index] = self.is_drained[index] = 0
        self._report(now, index, "resume")
        if self.job_of[index] is None:
            self._partition_of[index].free.append(index)

    def _report(
        self, now: int, index: int, state: Literal["down", "drain", "resume"], reason: str = ""
    ) -> None:
        name = self.nodes[index]
        self.node_changes.append(NodeChange(now, name, state, reason))
        self.reasons[name] = reason
        if not reason:
            del self.reasons[name]

    def _schedule(self, time: int, what: str, which: int = 0) -> None:
        self._numbers += 1
        heapq.heappush(self._events, (time, self._numbers, what, which))

    def _exponential(self, mean: float) -> int:
        return round(self.draw.expovariate(1 / mean) * SECOND)


def _pending(request: JobRequest, reason: str) -> PendingJob:
    job = request.job
    return PendingJob(
        cluster=job.cluster,
        id=job.id,
        user=job.user,
        name=job.name,
        project=job.project,
        partition=job.partition,
        submit=job.submit // SECOND,
        nodes=request.nodes,
        hwthreads=job.hwthreads,
        walltime=job.walltime,
        reason=reason,
    )
