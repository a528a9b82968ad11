"""A simulated cluster on a real bus: nodes, GPUs, jobs, events, log lines, and a few bad lines."""

import asyncio
import json
import math
import random
import time
from dataclasses import dataclass, field

from ccpipe.bus.nats.connection import Connection
from ccpipe.formats.lineprotocol.series import escape

GPU_SHARE = 0.25
"""The last nodes have GPUs."""
USERS = ("anna", "boris", "chen", "dora", "emil", "fatima", "goran", "hana")
PROGRAMS = ("lammps", "openfoam", "gromacs", "train-resnet", "vasp", "namd", "icon-ocean", "cp2k")


@dataclass
class MadeJob:
    """A job of the simulated cluster."""

    id: int
    start: int
    nodes: list[str]
    user: str
    name: str
    level: float
    """How busy it keeps its nodes, 0 to 1."""
    intensity: float
    """Floating point operations per byte."""


@dataclass
class MadeCluster:
    """Nodes that behave plausibly, the same for the same seed."""

    name: str = "fritz"
    nodes: int = 200
    metrics: int = 40
    """Metrics of each node; beyond the usual ones they are called ``extra_N``."""
    gpus: bool = True
    seed: int = 1
    jobs: list[MadeJob] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Give most nodes a job."""
        self.random = random.Random(self.seed)  # noqa: S311 - reproducible on purpose
        self.names = [
            f"f{1 + number // 64:02d}{number % 64 + 1:02d}" for number in range(self.nodes)
        ]
        if self.nodes > 64 * 99:
            self.names = [f"n{number:05d}" for number in range(self.nodes)]
        self.with_gpus = set(self.names[-int(GPU_SHARE * self.nodes) :]) if self.gpus else set()
        self.phase = {name: self.random.random() * 2 * math.pi for name in self.names}
        self.job_of: dict[str, MadeJob] = {}
        free = list(self.names)
        now = int(time.time())
        while len(free) > self.nodes // 8:
            size = min(len(free), self.random.choice((1, 1, 2, 4, 8, 16)))
            mine, free = free[:size], free[size:]
            job = MadeJob(
                id=481_200 + len(self.jobs),
                start=now - self.random.randrange(600, 40_000),
                nodes=mine,
                user=self.random.choice(USERS),
                name=self.random.choice(PROGRAMS),
                level=self.random.uniform(0.45, 1.0),
                intensity=10 ** self.random.uniform(-1.2, 1.3),
            )
            self.jobs.append(job)
            self.job_of.update(dict.fromkeys(mine, job))
        # The job of the picture: all of its time is shown.
        max(self.jobs, key=lambda each: len(each.nodes)).start = now

    def payload(self, node: str, now: float) -> bytes:
        """Return the lines of one node."""
        tags = f",cluster={self.name},hostname={node}"
        second = int(now)
        values = self._values(node, now)
        lines = [f"{name}{tags},type=node value={values[name]:.6g} {second}" for name in values]
        lines += [
            f"extra_{number}{tags},type=node value={now % 100 + number:.6g} {second}"
            for number in range(len(values), self.metrics)
        ]
        lines = lines[: self.metrics]
        if node in self.with_gpus:
            lines += self._gpus(node, tags, second)
        return ("\n".join(lines) + "\n").encode()

    def _values(self, node: str, now: float) -> dict[str, float]:
        job = self.job_of.get(node)
        wave = math.sin(now / 40 + self.phase[node])
        slow = math.sin(now / 260 + 3 * self.phase[node])
        noise = self.random.gauss(0, 0.015)
        busy = 0.02 + abs(noise) if job is None else job.level * (0.9 + 0.07 * wave) + noise
        busy = max(0.0, min(1.0, busy))
        bandwidth = busy * (180e3 + 30e3 * slow)  # MByte/s
        intensity = job.intensity * (1 + 0.15 * wave) if job else 0.05
        flops = min(2.6e12 * busy, bandwidth * 1e6 * intensity)
        memory = 263_000_000 * min(0.97, 0.04 + 0.8 * busy * (0.8 + 0.2 * slow))
        return {
            "cpu_load": 72 * busy, "cpu_user": 7200 * busy * 0.96, "cpu_system": 1 + busy,
            "mem_used": memory, "mem_total": 263_000_000, "flops_any": flops,
            "mem_bw": bandwidth, "ipc": 0.4 + 1.8 * busy, "clock": 2000 + 800 * busy,
            "cpu_power": 110 + 330 * busy, "mem_power": 20 + 40 * busy,
            "net_bytes_in_bw": 4e5 + 9e7 * busy * (1 + wave) / 2,
            "net_bytes_out_bw": 3e5 + 7e7 * busy * (1 - wave) / 2,
            "temperature": 34 + 36 * busy + 2 * slow,
            "disk_free": 812 - 40 * busy, "proc_run": 1 + 72 * busy,
        }  # fmt: skip

    def _gpus(self, node: str, tags: str, second: int) -> list[str]:
        job = self.job_of.get(node)
        lines = []
        for gpu in range(4):
            wave = math.sin(second / 25 + gpu + self.phase[node])
            busy = 0.0 if job is None else min(1.0, job.level * (0.85 + 0.14 * wave))
            place = f"{tags},type=accelerator,type-id={gpu}"
            lines += [
                f"nv_util{place} value={100 * busy:.4g} {second}",
                f"nv_fb_mem_used{place} value={2000 + 36000 * busy:.6g} {second}",
                f"nv_power_usage{place} value={55 + 330 * busy:.5g} {second}",
            ]
        return lines

    def start(self, job: MadeJob) -> bytes:
        """Return the event of a job's start."""
        payload = {
            "jobId": job.id, "user": job.user, "project": f"hpc{job.id % 7}", "cluster": self.name,
            "partition": "main", "startTime": job.start, "numNodes": len(job.nodes),
            "numHwthreads": 72 * len(job.nodes), "walltime": 86400,
            "resources": [{"hostname": node} for node in job.nodes],
            "metaData": {"jobName": job.name},
        }  # fmt: skip
        text = json.dumps(payload).replace("\\", "\\\\").replace('"', '\\"')
        tags = f"cluster={self.name},function=start_job,hostname={job.nodes[0]},type=node"
        return f'job,{tags} event="{text}" {job.start}\n'.encode()

    def stop(self, job: MadeJob, state: str) -> bytes:
        """Return the event of a job's stop, now."""
        now = int(time.time())
        payload = {
            "jobId": job.id, "cluster": self.name, "startTime": job.start, "stopTime": now,
            "jobState": state,
        }  # fmt: skip
        text = json.dumps(payload).replace('"', '\\"')
        tags = f"cluster={self.name},function=stop_job,hostname={job.nodes[0]},type=node"
        return f'job,{tags} event="{text}" {now}\n'.encode()

    def log(self, node: str, level: str, text: str) -> bytes:
        """Return a log message."""
        quoted = text.replace("\\", "\\\\").replace('"', '\\"')
        tags = f"cluster={self.name},hostname={escape(node).decode()},loglevel={level},type=node"
        return f'ccpipe,{tags} log="{quoted}" {int(time.time())}\n'.encode()

    @property
    def subject(self) -> str:
        """Where metrics go."""
        return f"{self.name}.metrics"

    async def announce(self, bus: Connection) -> None:
        """Publish the starts of all jobs."""
        for job in self.jobs:
            await bus.publish(f"{self.name}.events.job", self.start(job))
        await bus.flush()

    async def publish(self, bus: Connection, *, seconds: float, interval: float = 1.0) -> int:
        """Publish a payload for each node every interval, spread over it; return the lines."""
        lines = 0
        end = time.monotonic() + seconds
        due = time.monotonic()
        while due < end:
            now = time.time()
            for place in range(0, self.nodes, 20):
                for node in self.names[place : place + 20]:
                    payload = self.payload(node, now)
                    lines += payload.count(b"\n")
                    await bus.publish(self.subject, payload)
                wait = due + interval * (place + 20) / self.nodes - time.monotonic()
                await asyncio.sleep(max(0.0, wait))
            due += interval
        await bus.flush()
        return lines
