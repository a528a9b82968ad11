"""``CcBackendSink``: against the real cc-backend where it was built; its answers as recorded."""

import asyncio
import json
import subprocess
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ccpipe.config import Duration
from ccpipe.errors import ConfigError, DeniedError, RejectedError, UnavailableError
from ccpipe.formats.lineprotocol import to_lines
from ccpipe.jobs import Job, JobNode, message
from ccpipe.message import Message, event
from ccpipe.pipeline import Limits, run
from ccpipe.sinks import cc_backend
from ccpipe.sinks.cc_backend import CcBackendSink
from ccpipe.telemetry import Telemetry
from tests.bridges.clustercockpit import CLUSTER, peer
from tests.bridges.test_clustercockpit_backend import Backend
from tests.conftest import eventually
from tests.sinks.answers import Answers, served
from tests.sinks.conftest import NOON, SECOND, Given, KeptDeadLetters, carry, metric
from tests.sinks.stand_in_cc_backend import Key, StandIn, StandInNats

START = int(time.time()) - 3600


def start(job: int) -> Message:
    payload = {
        "jobId": job, "user": "alice", "project": "p", "cluster": CLUSTER, "subCluster": "main",
        "startTime": START, "numNodes": 1, "resources": [{"hostname": "n1"}], "walltime": 3600,
    }  # fmt: skip
    return event("job", "start_job", json.dumps(payload), time=START * SECOND, tags={})


def stop(job: int) -> Message:
    payload = {"jobId": job, "cluster": CLUSTER, "startTime": START, "stopTime": START + 600,
               "jobState": "completed"}  # fmt: skip
    return event("job", "stop_job", json.dumps(payload), time=START * SECOND, tags={})


class RestBackend(Backend):
    """The real cc-backend with a user of the role ``api``; it can be started again."""

    def __init__(self, directory: Path, nats: str = "") -> None:
        super().__init__(directory, nats)
        config = json.loads((directory / "config.json").read_text())
        if not nats:  # its NATS API disables the other for jobs
            del config["nats"]
            del config["main"]["api-subjects"]
        config["main"]["api-allowed-ips"] = ["*"]
        (directory / "config.json").write_text(json.dumps(config))

    async def token(self) -> str:
        command = [str(peer("cc-backend")), "-add-user", "bridge:api:secret", "-jwt", "bridge"]
        done = await asyncio.to_thread(
            subprocess.run, command, cwd=self.directory, capture_output=True, text=True, check=True
        )
        return next(word for word in (done.stdout + done.stderr).split() if word.count(".") == 2)


async def test_jobs_are_stored_in_real_database(tmp_path: Path) -> None:
    """Also repeated ones, ones sent while it is down, and one that it refuses."""
    peer("cc-backend")
    backend = RestBackend(tmp_path)
    telemetry = Telemetry()
    async with backend:
        (tmp_path / "token").write_text(await backend.token())
        sink = CcBackendSink(url=backend.url, token_file=str(tmp_path / "token"))
        await sink.check()
        with pytest.raises(DeniedError):
            await CcBackendSink(url=backend.url).check()
        first = [start(1), start(2), stop(1)]
        assert await carry(Given(first, first), sink) == []
        letters = await carry(Given([stop(9), start(3)]), sink)
        assert [b'jobId\\":9' in one.original.replace(b" ", b"") for one in letters] == [True]
        assert "finding job failed" in letters[0].reason
        await eventually(lambda: backend.jobs() == (3, 1))
    carried = asyncio.create_task(carry(Given([stop(2), start(4)], [stop(4)]), sink, telemetry))
    await eventually(lambda: telemetry.total(telemetry.retries) > 0)
    async with backend:
        assert await carried == []
        await eventually(lambda: backend.jobs() == (4, 3))


@pytest.mark.parametrize(
    ("status", "text", "error"),
    [
        (201, '{"message":"success"}', None),
        (200, '{"jobId": 1}', None),
        (422, '{"error":"a job with that jobId, cluster and startTime already exists: 1"}', None),
        (422, '{"error":"jobId 1 on fritz : job has already been stopped (state is: x)"}', None),
        (500, '{"error":"insert failed: UNIQUE constraint failed: job_cache.job_id"}', None),
        (500, '{"error":"insert failed: CHECK constraint failed: shared"}', RejectedError),
        (422, '{"error":"something else"}', RejectedError),
        (400, '{"error":"parsing request body failed"}', RejectedError),
        (404, '{"error":"finding job failed: sql: no rows in result set"}', RejectedError),
        (404, "404 page not found", ConfigError),
        (200, "<html>Please log in</html>", UnavailableError),
        (500, '{"error":"insert into database failed"}', UnavailableError),
        (401, '{"error":"no"}', DeniedError),
    ],
)
async def test_response_is_classified_by_its_text(
    answers: Answers, status: int, text: str, error: type[Exception] | None
) -> None:
    """As in the source of cc-backend 1.5.4."""
    answers.status, answers.text = 200, "{}"
    async with CcBackendSink(url=answers.url) as sink:
        answers.status, answers.text = status, text
        if error is None:
            await sink.write(to_lines([start(1), stop(1)]))
            paths = [request.path for request in answers.requests[-2:]]
            assert paths == ["/api/jobs/start_job/", "/api/jobs/stop_job/"]
            assert json.loads(answers.bodies[-1])["jobId"] == 1
        else:
            with pytest.raises(error) as caught:
                await sink.write(to_lines([start(1)]))
            assert getattr(caught.value, "indices", [0]) == [0]


async def test_record_that_is_not_job_is_rejected(answers: Answers) -> None:
    """It is named; jobs before it may be sent again without harm."""
    answers.status, answers.text = 200, "{}"
    other = event("job", "hold_job", "{}", time=NOON, tags={})
    async with CcBackendSink(url=answers.url) as sink:
        for record in (metric(1.0), other, event("node", "start_job", "{}", time=NOON, tags={})):
            with pytest.raises(RejectedError, match="expected") as caught:
                await sink.write(to_lines([start(1), record]))
            assert caught.value.indices == [1]


async def test_events_that_cc_backend_does_not_know_are_ignored(answers: Answers) -> None:
    """They arrive where all events have one subject, and are no dead letters."""
    known = [event(name, name, "{}", time=1, tags={}) for name in ("jobpending", "nodereason")]
    answers.status, answers.text = 500, "no"
    async with CcBackendSink(url=answers.url) as sink:
        await sink.write(to_lines(known))


async def test_url_of_another_server_is_configuration_error(answers: Answers) -> None:
    answers.status = 404
    with pytest.raises(ConfigError, match="404"):
        await CcBackendSink(url=answers.url).check()


BASE = 1_795_170_000


def job(number: int, cluster: str = "fox") -> Job:
    start = BASE + number
    return Job(
        cluster=cluster, id=number, user="ann", state="completed", nodes=(JobNode("n1"),),
        start=start * SECOND, end=(start + number % 50) * SECOND,
    )  # fmt: skip


def key(number: int) -> Key:
    return "fox", number, BASE + number


def started(*numbers: int) -> list[Message]:
    return [message("start_job", job(number)) for number in numbers]


def stopped(*numbers: int) -> list[Message]:
    return [message("stop_job", job(number)) for number in numbers]


@pytest.fixture
async def backend() -> AsyncIterator[tuple[StandIn, str]]:
    backend = StandIn()
    async with served(backend.answer) as url:
        yield backend, url


def sink_of(backend: tuple[StandIn, str], way: str, state: Path | str = "") -> CcBackendSink:
    there, url = backend
    there.nats_api = way == "nats"
    publish = StandInNats(there) if way == "nats" else None
    return CcBackendSink(url=url, publish=publish, state_file=str(state))


ways = pytest.mark.parametrize("way", ["rest", "nats"])


@ways
async def test_jobs_start_and_stop_once_while_connections_break(
    backend: tuple[StandIn, str], way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether or not a request took effect; a stop may follow its start at once."""
    monkeypatch.setattr(cc_backend, "CONFIRM_SECONDS", 0.3)
    there, _ = backend
    sink = sink_of(backend, way)
    there.breaks = 0.05
    batches = []
    for first in range(0, 200, 10):
        numbers = range(first, first + 10)
        batches += [started(*numbers[:5]), stopped(*numbers[:5])]
        batches.append([one for n in numbers[5:] for one in (*started(n), *stopped(n))])
    letters = KeptDeadLetters()
    limits = Limits(max_records=10, max_wait=0, max_backoff=0.05)
    await run(Given(*batches), sink, dead_letter_sink=letters, limits=limits)
    assert letters.letters == []
    assert there.starts == {key(number): 1 for number in range(200)}
    assert there.ends == {key(n): BASE + n + n % 50 for n in range(200)}


@ways
async def test_differences_are_sent_again_at_start(
    backend: tuple[StandIn, str], way: str, tmp_path: Path
) -> None:
    """A job missing there is started, and one that is wrongly running is stopped."""
    there, _ = backend
    sink = sink_of(backend, way, tmp_path / "state")
    assert await carry(Given(started(1, 2, 3, 4), stopped(2, 3)), sink) == []
    del there.jobs[key(1)]
    there.jobs[key(2)] = "running"
    there.jobs["fox", 99, BASE] = "running"  # of another program
    assert await carry(Given(started(5)), sink_of(backend, way, tmp_path / "state")) == []
    assert there.running() == {key(1), key(4), key(5), ("fox", 99, BASE)}
    assert there.jobs[key(2)] == "completed"


@ways
async def test_differences_are_sent_again_after_downtime(
    backend: tuple[StandIn, str], way: str
) -> None:
    """Without a state file too, and before the waiting records."""
    there, _ = backend
    async with sink_of(backend, way) as sink:
        await sink.write(to_lines(started(1, 2)))
        del there.jobs[key(1)]
        await sink.write(to_lines(started(3)))
        assert key(1) not in there.jobs  # not compared yet
        there.is_down = True
        with pytest.raises(UnavailableError):
            await sink.write(to_lines(stopped(3)))
        there.is_down = False
        await sink.write(to_lines(stopped(3)))
    assert there.running() == {key(1), key(2)}


@ways
async def test_differences_are_sent_again_at_intervals(
    backend: tuple[StandIn, str], way: str
) -> None:
    """With the next write."""
    there, url = backend
    there.nats_api = way == "nats"
    publish = StandInNats(there) if way == "nats" else None
    async with CcBackendSink(url=url, publish=publish, compare_interval=Duration(0.01)) as sink:
        await sink.write(to_lines(started(1)))
        there.jobs.clear()
        await asyncio.sleep(0.02)
        await sink.write(to_lines([]))
    assert there.running() == {key(1)}


@ways
async def test_running_jobs_of_several_pages_are_not_started_again(
    backend: tuple[StandIn, str], way: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """All pages are read, also if the last one is full."""
    monkeypatch.setattr(cc_backend, "PAGE_JOBS", 5)
    there, _ = backend
    for numbers in (range(10), range(10, 12)):
        assert await carry(Given(started(*numbers)), sink_of(backend, way, tmp_path / "s")) == []
    assert set(there.starts.values()) == {1}


async def test_stop_sends_lost_start_again(backend: tuple[StandIn, str]) -> None:
    """First the start, then the stop; an unknown job's stop is a dead letter."""
    there, _ = backend
    async with sink_of(backend, "rest") as sink:
        await sink.write(to_lines(started(1)))
        there.jobs.clear()
        await sink.write(to_lines(stopped(1)))
        assert there.jobs == {key(1): "completed"}
        with pytest.raises(RejectedError, match="finding job failed") as caught:
            await sink.write(to_lines([*stopped(1), *stopped(7)]))
        assert caught.value.indices == [1]


async def test_job_refused_by_nats_api_is_dead_letter(
    backend: tuple[StandIn, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It sends no error, but lists others published together, or nothing for long."""
    monkeypatch.setattr(cc_backend, "CONFIRM_SECONDS", 0.3)
    monkeypatch.setattr(cc_backend, "MAX_TRIES", 3)
    there, _ = backend
    wrong = message("start_job", job(2, "unknown"))
    batches = [[*started(1), wrong, *started(3)], [wrong], [*stopped(1, 8), *started(4)]]
    letters = await carry(Given(*batches), sink_of(backend, "nats"))
    functions = [one.original.partition(b"function=")[2].partition(b"_")[0] for one in letters]
    assert functions == [b"start", b"start", b"stop"]
    assert there.running() == {key(3), key(4)}


async def test_disabled_route_is_configuration_error(backend: tuple[StandIn, str]) -> None:
    """As its NATS API disables jobs over REST, retrying is pointless; at start and later."""
    there, _ = backend
    async with sink_of(backend, "rest") as sink:
        there.nats_api = True
        with pytest.raises(ConfigError, match="api-subjects"):
            await sink.write(to_lines(started(1)))
    with pytest.raises(ConfigError, match="api-subjects"):
        await sink.check()


def test_compression_is_configuration_error() -> None:
    """cc-backend would refuse every request, and each job would become a dead letter."""
    with pytest.raises(ConfigError, match="compression"):
        CcBackendSink(compression="gzip")


@ways
async def test_latest_state_of_each_node_is_posted(backend: tuple[StandIn, str], way: str) -> None:
    """With all its numbers, also if jobs are published over NATS."""
    there, _ = backend

    def states(**nodes: int) -> Message:
        rows = [{"hostname": n, "states": ["mixed"], "cpusAllocated": v} for n, v in nodes.items()]
        payload = json.dumps({"cluster": "fox", "nodes": rows})
        return event("nodestate", "nodestate", payload, time=0, tags={})

    async with sink_of(backend, way) as sink:
        await sink.write(to_lines([states(n1=1, n2=2), *started(1), states(n1=3)]))
    assert {name: node["cpusAllocated"] for name, node in there.nodes.items()} == {"n1": 3, "n2": 2}
    assert there.nodes["n1"]["states"] == ["mixed"]
    await eventually(lambda: there.running() == {key(1)})
