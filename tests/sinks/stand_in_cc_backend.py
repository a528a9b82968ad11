"""A fake cc-backend, for machines without Go: its responses about jobs, according to its source.

Source: ``internal/api/{job,nats,node}.go`` of 1.5.4. Its cache of jobs without a tag, from which
a stop may be lost, is not reproduced.
"""

import json
import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

from aiohttp import web

from ccpipe.formats.lineprotocol import Lines
from ccpipe.message import Message
from ccpipe.pipeline import Sink

DAY = 86400

Key = tuple[str, int, int]
"""Cluster, id and start."""


class StandIn:
    """Jobs in memory; it may be down, and break off connections at random."""

    def __init__(self) -> None:
        self.jobs: dict[Key, str] = {}
        """States."""
        self.starts: Counter[Key] = Counter()
        self.ends: dict[Key, int] = {}
        self.nodes: dict[str, dict[str, Any]] = {}
        self.nats_api = False
        self.is_down = False
        self.breaks = 0.0
        """Share of requests whose connection breaks off, before or after they took effect."""
        self.dice = random.Random(5)

    def running(self) -> set[Key]:
        return {key for key, state in self.jobs.items() if state == "running"}

    def start(self, job: dict[str, Any]) -> tuple[int, str]:
        assert job["tags"], "it would enter the cache"
        key = job["cluster"], job["jobId"], job["startTime"]
        if key[0] == "unknown":
            return 400, "no such cluster: unknown"
        if any(other[:2] == key[:2] and key[2] - other[2] < DAY for other in self.jobs):
            return 422, "a job with that jobId, cluster and startTime already exists: dbid: 1"
        self.jobs[key] = "running"
        self.starts[key] += 1
        return 201, "success"

    def stop(self, job: dict[str, Any]) -> tuple[int, str]:
        """Stop a job; without its start time, the latest one of this id."""
        keys = [key for key in self.jobs if key[:2] == (job["cluster"], job["jobId"])]
        keys = [key for key in keys if job.get("startTime", key[2]) == key[2]]
        if not keys:
            return 404, "finding job failed: sql: no rows in result set"
        if self.jobs[keys[-1]] != "running":
            return 422, f"job has already been stopped (state is: {self.jobs[keys[-1]]})"
        self.jobs[keys[-1]] = job["jobState"]
        self.ends[keys[-1]] = job["stopTime"]
        return 200, "{}"

    def shown(self, query: Any) -> list[dict[str, Any]]:
        first, last = map(int, query.get("start-time", f"0-{2**40}").split("-"))
        rows = [
            {"jobId": id_, "cluster": cluster, "startTime": start, "jobState": state}
            for (cluster, id_, start), state in sorted(
                self.jobs.items(), key=lambda row: -row[0][2]
            )
            if query.get("state", state) == state
            and query.get("cluster", cluster) == cluster
            and first <= start <= last
        ]
        size, page = int(query["items-per-page"]), int(query["page"])
        return rows[(page - 1) * size : page * size]

    async def answer(self, request: web.Request) -> web.Response:
        breaks = self.is_down or self.dice.random() < self.breaks
        if breaks and (self.is_down or self.dice.random() < 0.5):
            return _broken(request)
        status, body = self._handle(request, await request.read())
        return _broken(request) if breaks else web.Response(status=status, text=body)

    def _handle(self, request: web.Request, body: bytes) -> tuple[int, str]:
        match request.path.strip("/").split("/"):
            case "api", "clusters":
                return 200, "[]"
            case "api", "jobs":
                return 200, json.dumps({"jobs": self.shown(request.query)})
            case "api", "nodestate":
                payload = json.loads(body)
                self.nodes |= {node["hostname"]: node for node in payload["nodes"]}
                return 200, ""
            case "api", "jobs", "start_job" | "stop_job" as function if not self.nats_api:
                if not body:
                    return 400, json.dumps({"error": "parsing request body failed: EOF"})
                status, text = getattr(self, function.removesuffix("_job"))(json.loads(body))
                return status, json.dumps({"error" if status >= 400 else "msg": text})
        return 404, "404 page not found"


def _broken(request: web.Request) -> web.Response:
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


class StandInNats(Sink[Any]):
    """Its NATS API: nothing is answered, and what arrives while it is down is lost."""

    takes = Lines

    def __init__(self, backend: StandIn) -> None:
        self.backend = backend

    async def write(self, records: Sequence[Message]) -> None:
        if self.backend.is_down or self.backend.dice.random() < self.backend.breaks:
            return
        for record in self.backend.dice.sample(list(records), len(records)):
            job = json.loads(str(record.value))
            getattr(self.backend, record.tags["function"].removesuffix("_job"))(job)
