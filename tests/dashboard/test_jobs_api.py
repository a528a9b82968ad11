"""Jobs over HTTP, from a running dashboard."""

import contextlib
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from ccpipe.config import DashboardOptions
from ccpipe.dashboard.server import DashboardServer
from ccpipe.dashboard.sign_in import SignIn
from tests.conftest import eventually
from tests.dashboard.conftest import Served

START = int(time.time()) - 3600


@pytest.fixture
async def client(live: Served) -> AsyncIterator[aiohttp.ClientSession]:
    payload = json.dumps({
        "jobId": 7, "cluster": "fox.test", "user": "anna", "startTime": START,
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


async def test_report_is_computed_from_store(client: aiohttp.ClientSession) -> None:
    """Which has nothing of this job; an unknown one is an error."""
    key = {"cluster": "fox.test", "job": 7, "start": START}
    status, text = await post(client, "/api/job-report", key)
    assert status == 200, text
    found = json.loads(text)
    assert found["seconds"] >= 3600
    assert [finding["text"] for finding in found["findings"]] == [
        "No metrics are stored for 1 of 1 node: n1."
    ]
    assert await post(client, "/api/job-report", {**key, "job": 8}) == (
        400, "no event of job 8 has been received\n",
    )  # fmt: skip
    assert (await post(client, "/api/job-report", {**key, "start": 10**30}))[0] == 400


@contextlib.asynccontextmanager
async def signed_in(
    live: Served, tmp_path: Path, token: str
) -> AsyncIterator[tuple[str, aiohttp.ClientSession]]:
    """Start another dashboard of the same feed, and sign in; return its address, too."""
    tokens = tmp_path / "tokens"
    tokens.write_text(
        "a-token-of-anna user anna\na-token-of-bodo user bodo\na-token-of-helen support helen\n"
    )
    tokens.chmod(0o600)
    sign_in = SignIn(DashboardOptions(listen="127.0.0.1:0", token_file=str(tokens)))
    async with DashboardServer(live.feed, sign_in=sign_in) as server:
        headers = {"Authorization": f"Bearer {token}"}
        async with aiohttp.ClientSession(server.url, headers=headers) as session:
            yield server.url, session


@pytest.mark.parametrize(
    ("token", "search", "total"),
    [
        ("a-token-of-anna", {}, 1), ("a-token-of-anna", {"user": ["anna", "bo"]}, 1),
        ("a-token-of-bodo", {}, 0), ("a-token-of-bodo", {"user": ["anna"]}, 0),
        ("a-token-of-helen", {}, 1),
    ],
)  # fmt: skip
async def test_user_sees_own_jobs_only(
    client: aiohttp.ClientSession, live: Served, tmp_path: Path, token: str,
    search: dict[str, Any], total: int,
) -> None:  # fmt: skip
    """In searches, whatever he asks for, and in reports."""
    async with signed_in(live, tmp_path, token) as (url, session):
        status, text = await post(session, "/api/jobs", search)
        assert (status, json.loads(text)["total"]) == (200, total)
        key = {"cluster": "fox.test", "job": 7, "start": START}
        status, text = await post(session, "/api/job-report", key)
        assert status == 400
        assert ("no event of job 7" in text) == (total == 0)
        assert (await post(client, f"{url}api/jobs", {}))[0] == 401


async def test_pending_jobs_are_searched(
    client: aiohttp.ClientSession, live: Served, tmp_path: Path
) -> None:
    """By a user only his own, whatever he asks for."""
    for user, number in (("anna", 8), ("bodo", 9)):
        payload = {"cluster": "fox.test", "user": user, "pending": [{"jobId": number}]}
        line = f"jobpending,function=jobpending event={json.dumps(json.dumps(payload))}"
        await live.say("events.jobpending", line)
    await eventually(lambda: len(live.state.jobs.pending.jobs) == 2)

    async def found(session: aiohttp.ClientSession, **search: Any) -> set[int]:
        answer = json.loads((await post(session, "/api/jobs", search))[1])
        return {job["job"] for job in answer["jobs"]}

    assert await found(client, state=["pending"]) == {8, 9}
    async with signed_in(live, tmp_path, "a-token-of-anna") as (_, session):
        assert await found(session) == {7, 8}
        assert await found(session, state=["pending"], user=["bodo"]) == set()
