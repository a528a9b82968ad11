"""A step's samples on a real server."""

import asyncio
import json
import sys
from pathlib import Path

import nats
import pytest

from ccpipe.bus.nats.server import NatsServer
from ccpipe.cli.step.publish import SamplePublisher
from ccpipe.config import Bus, Site
from ccpipe.formats.lineprotocol import decode
from ccpipe.message import Message
from ccpipe.node.gather.jobacct import create
from ccpipe.node.gather.profile import Step
from tests.cli.command import command, environment
from tests.conftest import eventually
from tests.processes import frozen
from tests.servers.nats.stored import stored

pytestmark = pytest.mark.timeout(600)


async def test_step_publishes_samples_and_end(nats_server: NatsServer, tmp_path: Path) -> None:
    until = tmp_path / "published"
    wait = "import sys, time, os\nwhile not os.path.exists(sys.argv[1]): time.sleep(0.05)"
    client = await nats.connect(nats_server.url)
    inbox = await client.subscribe("fox.>")
    await client.flush()
    process = await asyncio.create_subprocess_exec(
        *command(
            "step", "--publish", "--job", 17, "--freq", "0.2,network=0.2",
            "--server", nats_server.url,
            "--cluster", "fox", "--", sys.executable, "-c", wait, until,
        ),
        stderr=asyncio.subprocess.PIPE, env=environment(),
    )  # fmt: skip
    lines: list[Message] = []
    events: list[Message] = []
    while not events:
        delivery = await inbox.next_msg(timeout=600)
        found = decode(delivery.data)
        assert not found.rejected
        (events if delivery.subject == "fox.events.step" else lines).extend(found)
        times = {message.time for message in lines if message.name == "task_mem_rss"}
        # The third sample is sent once the stream is made, which a busy disk delays, and has two.
        if len(times) > 2 and "net_bytes_in_diff" in {message.name for message in lines}:
            until.touch()
    _, errors = await asyncio.wait_for(process.communicate(), 600)
    assert b"not published" not in errors, errors.decode()
    await client.close()
    assert {message.tags.get("stype-id") for message in lines} == {"17.0.0", None}
    node = {message.name for message in lines if "stype" not in message.tags}
    assert {"net_bytes_in_diff", "net_pkts_out_diff"} <= node
    assert {message.tags["jobid"] for message in lines} == {"17"}
    assert {"task_mem_rss", "task_cpu_util"} <= {message.name for message in lines}
    assert not [problem for message in [*lines, *events] for problem in message.problems()]
    [event] = events
    assert event.tags["function"] == "stop_step"
    payload = json.loads(str(event.value))
    assert (payload["jobid"], payload["NTasks"]) == (17, "1")
    assert int(payload["MaxRSS"]) > 10**6


async def test_samples_acknowledged_late_count_as_published(
    nats_server: NatsServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """At the end, the step waits for the server while it is connected, and reports that."""
    site = Site(cluster="fox", hostname="n1", bus=Bus(servers=[nats_server.url]))
    publisher = SamplePublisher(site)
    publisher.publish_end(Step(job=1, step="0", node="n1"), create())
    await eventually(lambda: publisher.unconfirmed == 0, 600)
    async with frozen(nats_server.pid):
        publisher.publish_end(Step(job=2, step="0", node="n1"), create())
        closing = asyncio.create_task(asyncio.to_thread(publisher.close))
        errors = ""
        while "waiting for the server to confirm 1 messages" not in errors:
            assert not closing.done(), errors
            await asyncio.sleep(0.1)
            errors += capsys.readouterr().err
    await closing
    assert publisher.unconfirmed == 0
    assert "not published" not in errors + capsys.readouterr().err
    assert len(await stored(nats_server, "ccpipe-fox")) == 2


async def test_command_runs_without_server() -> None:
    process = await asyncio.create_subprocess_exec(
        *command(
            "step", "--publish", "--server", "nats://127.0.0.1:1", "--", "sh", "-c", "exit 4"
        ),
        stderr=asyncio.subprocess.PIPE, env=environment(),
    )  # fmt: skip
    _, errors = await asyncio.wait_for(process.communicate(), 600)
    assert process.returncode == 4
    assert b"messages were not published" in errors


async def test_unacknowledged_samples_wait_in_spool(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    """They are on disk when the publisher ends, and a later one sends them before new samples."""
    spool = tmp_path / "steps"
    away = Site(cluster="fox", hostname="n1", bus=Bus(servers=["nats://127.0.0.1:1"]))
    await asyncio.to_thread(publish_ends, away, spool, range(3))
    assert [path.suffix for path in spool.iterdir()] == [".events"] * 3
    client = await nats.connect(nats_server.url)
    inbox = await client.subscribe("fox.events.step")
    await client.flush()
    there = Site(cluster="fox", hostname="n1", bus=Bus(servers=[nats_server.url]))
    publisher = SamplePublisher(there, spool=spool)
    publisher.publish_end(Step(job=3, step="0", node="n1"), create())
    jobs: list[int] = []
    while len(set(jobs)) < 4:  # the first may arrive twice, while the stream is created
        (message,) = decode((await inbox.next_msg(timeout=600)).data)
        jobs.append(json.loads(str(message.value))["jobid"])
    await asyncio.to_thread(publisher.close)
    await client.close()
    assert sorted(set(jobs)) == jobs[-4:] == [0, 1, 2, 3]


def publish_ends(site: Site, spool: Path, jobs: range) -> None:
    publisher = SamplePublisher(site, spool=spool)
    for job in jobs:
        publisher.publish_end(Step(job=job, step="0", node="n1"), create())
    publisher.close()
