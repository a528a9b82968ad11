"""``ccpipe tail`` on a real broker: stored messages, jobs, envelopes and dead letters."""

import asyncio
import json
from pathlib import Path

import nats
import pytest
from nats.js import api

from ccpipe.bus.nats.connection import Connection
from ccpipe.bus.nats.server import NatsServer
from ccpipe.cli.tail.follow import IdleHint
from ccpipe.config import Bus
from ccpipe.formats.lineprotocol import decode
from ccpipe.telemetry import Telemetry
from tests.cli.command import Ended, ccpipe
from tests.conftest import free_port

SAMPLE = {
    "meta": {"producer": "sonar", "version": "0.19.0"},
    "data": {
        "type": "sample",
        "attributes": {
            "time": "2025-02-20T06:05:51+01:00", "cluster": "fritz", "node": "e1",
            "jobs": [{"job": 7, "user": "ann", "processes": []}],
        },
    },
}  # fmt: skip
START = {"jobId": 4711, "user": "ann", "resources": [{"hostname": "e1"}, {"hostname": "e3"}]}


def load(node: str, value: int) -> bytes:
    return f"load,cluster=fritz,hostname={node},type=node value={value}.0 1740027951\n".encode()


@pytest.fixture
async def stored(nats_server: NatsServer) -> NatsServer:
    client = await nats.connect(nats_server.url)
    stream = client.jetstream()
    await stream.add_stream(
        api.StreamConfig(
            name="all", subjects=["fritz.metrics", "fritz.events.*", "fritz.sonar.*", "fritz.dead"]
        )
    )
    await stream.publish("fritz.events.job", b"\xff broken")  # is skipped
    event = json.dumps(json.dumps(START))
    await stream.publish(
        "fritz.events.job",
        f"job,cluster=fritz,function=start_job,hostname=e1,type=node event={event} 1740027951\n"
        .encode(),
    )  # fmt: skip
    for number in range(1, 5):
        await stream.publish("fritz.metrics", load(f"e{number}", number))
    await stream.publish("fritz.sonar.sample", json.dumps(SAMPLE).encode())
    headers = {"Ccpipe-Reason": "no good", "Ccpipe-Origin": "fritz.metrics", "Ccpipe-Line": "3"}
    await stream.publish("fritz.dead", b"broken \x1b[31m", headers=headers)
    await client.close()
    return nats_server


async def tail(server: NatsServer, *words: str) -> Ended:
    return await asyncio.to_thread(ccpipe, "tail", "--server", server.url, *words)


async def test_stored_messages_are_shown_once_and_then_tail_ends(stored: NatsServer) -> None:
    """In the order in which they were stored."""
    shown = await tail(stored, "--all", "--no-follow", "-o", "line")
    assert shown.code == 0, shown.err
    rows = shown.out.splitlines()
    assert [row.split(",")[0] for row in rows] == ["job", "load", "load", "load", "load"]
    assert b"".join(f"{row}\n".encode() for row in rows[1:]) == b"".join(
        load(f"e{number}", number) for number in range(1, 5)
    )


async def test_since_selects_stored_messages_by_time(stored: NatsServer) -> None:
    """Those stored after a time: an hour ago gives all, the year 2100 none."""
    recent = await tail(stored, "--since", "1h", "--no-follow", "--kind", "metric", "-o", "json")
    assert [json.loads(row)["tags"]["hostname"] for row in recent.out.splitlines()] == [
        "e1", "e2", "e3", "e4",
    ]  # fmt: skip
    none = await tail(stored, "--since", "2100-01-01", "--no-follow", "-o", "line")
    assert (none.code, none.out) == (0, "")


async def test_until_excludes_messages_stored_later(stored: NatsServer) -> None:
    """The command ends without --no-follow."""
    before = await tail(stored, "--all", "--until", "1h", "-o", "line")
    assert (before.code, before.out) == (0, "")
    after = await tail(stored, "--all", "--until", "2100-01-01", "-o", "line")
    assert len(after.out.splitlines()) == 5


async def test_new_messages_follow_stored_ones(stored: NatsServer) -> None:
    """Without a gap or duplicates."""
    client = await nats.connect(stored.url)
    running = asyncio.create_task(
        tail(stored, "fritz.metrics", "--all", "--count", "6", "-o", "line")
    )
    while not running.done():
        for number in (5, 6):
            await client.publish("fritz.metrics", load(f"e{number}", number))
        await asyncio.sleep(0.3)
    await client.close()
    shown = await running
    nodes = [row.split("hostname=")[1].split(",")[0] for row in shown.out.splitlines()]
    assert nodes[:4] == ["e1", "e2", "e3", "e4"]
    assert nodes[4:] in (["e5", "e6"], ["e6", "e5"])


async def test_job_option_shows_messages_of_its_nodes(stored: NatsServer) -> None:
    """The nodes are in its start event, which may be old."""
    shown = await tail(
        stored, "--job", "4711", "--all", "--no-follow", "--kind", "metric", "-o", "json"
    )
    assert [json.loads(row)["tags"]["hostname"] for row in shown.out.splitlines()] == ["e1", "e3"]
    missing = await tail(stored, "--job", "1", "--all", "--no-follow")
    assert "no start of job 1 was found" in missing.err


async def test_user_option_selects_by_owner_of_jobs(stored: NatsServer) -> None:
    """Its nodes by the stored start, before the messages that are shown; events are sentences."""
    shown = await tail(stored, "--user", "ann", "--all", "--no-follow", "--kind", "metric")
    assert [row.split()[1] for row in shown.out.splitlines()[1:]] == ["e1", "e3"]
    events = await tail(stored, "--user", "ann", "--all", "--no-follow", "--kind", "event")
    assert "job 4711 started: ann, 2 nodes e[1,3], cluster fritz" in events.out
    other = await tail(stored, "--user", "eve", "--all", "--no-follow")
    assert other.out == ""
    missing = await tail(stored, "--user", "eve", "--since", "1m", "--no-follow")
    assert "no start of a job of eve was found" in missing.err


async def test_envelopes_are_shown_as_row_whole_or_json(stored: NatsServer) -> None:
    """A row with the number of their records, all of it, or the JSON unchanged."""
    table = await tail(stored, "--all", "--no-follow", "--node", "e1")
    assert "sonar.sample" in table.out
    assert "jobs 1" in table.out
    whole = await tail(stored, "--all", "--no-follow", "--kind", "sonar")
    assert '"user": "ann"' in whole.out
    as_json = await tail(stored, "--all", "--no-follow", "--kind", "sonar", "-o", "json")
    assert json.loads(as_json.out) == SAMPLE


async def test_dead_letters_are_shown_with_reason_and_origin(stored: NatsServer) -> None:
    """Control characters are escaped."""
    table = await tail(stored, "--all", "--no-follow", "--kind", "dead")
    assert "fritz.metrics line 3: no good: broken" in table.out
    assert "\x1b" not in table.out
    as_json = await tail(stored, "--all", "--no-follow", "--kind", "dead", "-o", "json")
    assert json.loads(as_json.out) == {
        "dead": "broken \x1b[31m", "subject": "fritz.dead", "reason": "no good",
        "origin": "fritz.metrics", "line": "3",
    }  # fmt: skip


async def test_subject_without_stream_is_reported(nats_server: NatsServer) -> None:
    """It is the reason for an empty history."""
    shown = await tail(nats_server, "nowhere.>", "--all", "--no-follow")
    assert shown.code == 0
    assert "no stream stores nowhere.>" in shown.err


LINES = decode(b"m,cluster=fritz,hostname=e1 value=1\nn,cluster=fritz,hostname=e2 value=2\n")


async def test_each_state_is_reported_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not connected, no messages, no matching ones, no further ones; without a password."""
    monkeypatch.setattr(IdleHint, "DELAY", dict.fromkeys(IdleHint.DELAY, 0.0))
    (tmp_path / "nats").mkdir()
    server = NatsServer(tmp_path / "nats", port=free_port())
    bus = Connection(Bus(servers=[server.url]), name="test", telemetry=Telemetry())
    hint = IdleHint(bus, ["fritz.metrics"])

    def stderr() -> str:
        for _ in range(3):
            hint.report()
        return capsys.readouterr().err

    address = f"nats://127.0.0.1:{server.port}"
    away = stderr()
    assert away.count(f"not connected to {address}, trying again: ") == 1
    assert "`ccpipe up` starts one" in away
    async with server, bus:
        connected = stderr()
        assert f"connected to {address}, but no messages" in connected
        assert connected.count("connected to nats://") == 2
        assert connected.count("no messages have arrived on fritz.metrics") == 1
        hint.record(LINES, decode(b""))
        expected = "2 lines received, none matches; seen: clusters fritz; nodes e1, e2; names m, n"
        assert expected in stderr()
        hint.record(LINES, LINES)
        assert stderr().count("no messages for 0 s") == 1
        assert stderr() == ""
