"""``CcBackendSink``: against the real cc-backend where it was built; its answers as recorded."""

import asyncio
import json
import subprocess
import time
from pathlib import Path

import pytest

from ccpipe.errors import ConfigError, DeniedError, RejectedError, UnavailableError
from ccpipe.formats.lineprotocol import to_lines
from ccpipe.message import Message, event
from ccpipe.sinks.cc_backend import CcBackendSink
from ccpipe.telemetry import Telemetry
from tests.bridges.clustercockpit import CLUSTER, peer
from tests.bridges.test_clustercockpit_backend import Backend
from tests.conftest import eventually
from tests.sinks.answers import Answers
from tests.sinks.conftest import NOON, SECOND, Given, carry, metric

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

    def __init__(self, folder: Path, nats: str = "") -> None:
        super().__init__(folder, nats)
        config = json.loads((folder / "config.json").read_text())
        if not nats:  # its NATS API disables the other for jobs
            del config["nats"]
            del config["main"]["api-subjects"]
        config["main"]["api-allowed-ips"] = ["*"]
        (folder / "config.json").write_text(json.dumps(config))

    async def token(self) -> str:
        command = [str(peer("cc-backend")), "-add-user", "bridge:api:secret", "-jwt", "bridge"]
        done = await asyncio.to_thread(
            subprocess.run, command, cwd=self.folder, capture_output=True, text=True, check=True
        )
        return next(word for word in (done.stdout + done.stderr).split() if word.count(".") == 2)


async def test_jobs_in_the_real_database(tmp_path: Path) -> None:
    """Also those that come again, while it is down, and one that it refuses."""
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
async def test_what_an_answer_means(
    answers: Answers, status: int, text: str, error: type[Exception] | None
) -> None:
    """By cc-backend's own words, as its source has them (1.5.4)."""
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


async def test_what_is_no_job(answers: Answers) -> None:
    """It is named, and what was before it does no harm when it comes again."""
    answers.status, answers.text = 200, "{}"
    other = event("job", "hold_job", "{}", time=NOON, tags={})
    async with CcBackendSink(url=answers.url) as sink:
        for record in (metric(1.0), other, event("node", "start_job", "{}", time=NOON, tags={})):
            with pytest.raises(RejectedError, match="expected") as caught:
                await sink.write(to_lines([start(1), record]))
            assert caught.value.indices == [1]


async def test_an_address_that_is_not_cc_backends(answers: Answers) -> None:
    """It is the recipe's fault."""
    answers.status = 404
    with pytest.raises(ConfigError, match="404"):
        await CcBackendSink(url=answers.url).check()
