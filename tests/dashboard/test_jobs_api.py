"""Jobs over HTTP, from a running dashboard."""

import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from tests.conftest import eventually
from tests.dashboard.conftest import Served


@pytest.fixture
async def client(live: Served) -> AsyncIterator[aiohttp.ClientSession]:
    payload = json.dumps({
        "jobId": 7, "cluster": "fox.test", "user": "anna", "startTime": 1_740_000_000,
        "resources": [{"hostname": "n1"}], "metaData": {"exitStatus": "0"},
    })  # fmt: skip
    await live.say("events.job", f"job,function=start_job event={json.dumps(payload)}")
    await eventually(lambda: len(live.state.jobs.jobs) == 1)
    async with aiohttp.ClientSession(live.server.url) as session:
        yield session


async def post(client: aiohttp.ClientSession, path: str, body: Any) -> tuple[int, str]:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    async with client.post(path, data=data) as answer:
        return answer.status, await answer.text()


async def test_jobs_are_searched(client: aiohttp.ClientSession) -> None:
    """Also those that were known before the dashboard was."""
    status, text = await post(client, "/api/jobs", {"user": ["anna"]})
    assert status == 200
    answer = json.loads(text)
    assert (answer["total"], answer["jobs"][0]["job"]) == (1, 7)
    assert (answer["jobs"][0]["stop"], answer["jobs"][0]["energy"]) == (0, None)
    assert json.loads((await post(client, "/api/jobs", {"user": ["bo"]}))[1])["total"] == 0


@pytest.mark.parametrize(
    "body", [b"no JSON", b"\xff", {"users": ["anna"]}, {"sort": "x"}, {"limit": 10**9}, b"[" * 9999]
)
async def test_bad_searches_are_refused(client: aiohttp.ClientSession, body: Any) -> None:
    status, text = await post(client, "/api/jobs", body)
    assert status == 400
    assert text.strip()


async def test_report_needs_known_job_and_store(client: aiohttp.ClientSession) -> None:
    key = {"cluster": "fox.test", "job": 8, "start": 1_740_000_000}
    assert await post(client, "/api/job-report", key) == (
        400, "no event of job 8 has been received\n",
    )  # fmt: skip
    status, text = await post(client, "/api/job-report", {**key, "job": 7})
    assert (status, text) == (
        400, "no store of metrics is configured, from which a report is computed\n",
    )  # fmt: skip
    assert (await post(client, "/api/job-report", {**key, "start": 10**30}))[0] == 400
