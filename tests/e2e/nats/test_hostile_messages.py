"""A message that violates the protocol affects no other one, on any path.

With nats-py's own parser any of them ended the read loop: its receiver stopped permanently.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterable
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import nats
import pytest

from ccpipe.bus.nats.client import Client
from ccpipe.bus.nats.connection import Connection
from ccpipe.bus.nats.control_requests import control_request, send_requests
from ccpipe.bus.nats.protocol.frames import Delivery
from ccpipe.bus.nats.publisher import Outgoing, Publisher
from ccpipe.bus.nats.server import NatsServer
from ccpipe.bus.nats.source import NatsSource
from ccpipe.bus.subjects import Subjects
from ccpipe.config import Site
from ccpipe.telemetry import Telemetry
from ccpipe.translate.gridengine.translator import AccountingJobs
from tests.cli.command import command, environment
from tests.conftest import eventually
from tests.pipeline.parts import ListSink, running, values
from tests.responding import responding


class Hostile(NamedTuple):
    """A message that breaks a rule, or that only looks as if it did."""

    name: str
    subject: bytes
    """The subject after the cluster's name."""
    header: bytes
    flaw: str
    """Why it becomes a dead letter; empty where its payload is good and is stored."""


GOOD_HEADER = b"NATS/1.0\r\nA: b\r\n\r\n"
MESSAGES = [
    Hostile("subject", b"events.\xff", b"", "the subject is not valid UTF-8"),
    Hostile("subject and header", b"events.\xc3(", GOOD_HEADER, "the subject is not valid UTF-8"),
    Hostile("three bytes", b"metrics", b"abc", "the header is not a NATS header"),
    Hostile("another protocol", b"metrics", b"HTTP/1.1\r\n\r\n", "the header is not a NATS header"),
    Hostile("open header", b"metrics", b"NATS/1.0\r\nA: b", "the header is not a NATS header"),
    Hostile("header Status", b"metrics", b"NATS/1.0\r\nStatus: 503\r\n\r\n", ""),
    Hostile("status line", b"metrics", b"NATS/1.0 409 Consumer Deleted\r\n\r\n", ""),
    Hostile("bytes in a header", b"metrics", b"NATS/1.0\r\n\xff: \xfe\r\n:\r\nx\r\n\r\n", ""),
    Hostile("white space in a subject", b"events.\x0b\x0c\x00", b"", ""),
]


async def publish(url: str, messages: Iterable[tuple[bytes, bytes, bytes, bytes]]) -> None:
    address = urlsplit(url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    await reader.readline()
    options = {
        "verbose": False,
        "headers": True,
        "user": address.username,
        "pass": address.password,
    }
    writer.write(b"CONNECT %b\r\n" % json.dumps(options).encode())
    for subject, reply, header, payload in messages:
        words = b" ".join(filter(None, [subject, reply]))
        if header:
            writer.write(b"HPUB %b %d %d\r\n" % (words, len(header), len(header + payload)))
        else:
            writer.write(b"PUB %b %d\r\n" % (words, len(payload)))
        writer.write(header + payload + b"\r\n")
    writer.write(b"PING\r\n")
    while (line := await reader.readline()) != b"PONG\r\n":
        assert line.startswith(b"INFO"), line
    writer.close()
    await writer.wait_closed()


LINE = b"m,cluster=fox.test,hostname=n1,type=node value=%d 1740000000\n"
DEEP = b'{"a":' * 100_000
"""JSON that ends every decoder by its depth."""
FLAWED = [message for message in MESSAGES if message.flaw]


def subject(message: Hostile, cluster: bytes = b"fox%2Etest.") -> bytes:
    return cluster + message.subject


def start(event: bytes) -> bytes:
    text = event.replace(b'"', b'\\"')
    line = b'job,cluster=fox.test,function=start_job,hostname=n1,type=node event="%b" 1740000000\n'
    return line % text


async def send_all(server: NatsServer) -> None:
    lines = [(b"fox%2Etest.metrics", b"", b"", LINE % number) for number in (1000, 2000)]
    hostile = [(subject(m), b"", m.header, LINE % n) for n, m in enumerate(MESSAGES)]
    await publish(server.url, [lines[0], *hostile, lines[1]])


@contextlib.asynccontextmanager
async def bridge(source: NatsSource, *translators: Any) -> AsyncIterator[ListSink]:
    sink, telemetry = ListSink(), source.telemetry
    async with running(source, sink, translators=translators, telemetry=telemetry) as task:
        await eventually(lambda: telemetry.ready or task.done())
        yield sink


@pytest.mark.parametrize("durable", ["hostile", ""])
async def test_bridge_stores_good_and_keeps_malformed_messages(
    nats_server: NatsServer, site: Site, durable: str
) -> None:
    """A malformed one is a dead letter with its reason, its subject and all its bytes."""
    good = [float(n) for n, message in enumerate(MESSAGES) if not message.flaw]
    telemetry = Telemetry()
    source = NatsSource(site=site, telemetry=telemetry, durable=durable)
    async with bridge(source) as sink:
        if durable:
            await eventually(lambda: bool(source.stream))
        await send_all(nats_server)
        await eventually(lambda: len(sink.written) >= len(good) + 2)
        await eventually(lambda: telemetry.total(telemetry.dead) >= len(FLAWED))
        read = source.stream
    assert sorted(values(sink.written)) == [*good, 1000, 2000]
    assert telemetry.total(telemetry.dead) == len(FLAWED)
    client = await nats.connect(nats_server.url)
    stream = client.jetstream()
    dead = await stream.find_stream_name_by_subject("fox%2Etest.dead")
    letters = [await stream.get_msg(dead, n + 1) for n in range(len(FLAWED))]
    if durable:
        info = await stream.consumer_info(read, durable)
        assert info.num_ack_pending == info.num_pending == 0
    await client.close()
    expected = [(n, m) for n, m in enumerate(MESSAGES) if m.flaw]
    for letter, (number, message) in zip(letters, expected, strict=True):
        headers = letter.headers or {}
        assert letter.data == LINE % number
        assert headers["Ccpipe-Reason"] == message.flaw
        origin = subject(message).decode(errors="backslashreplace")
        assert headers["Ccpipe-Origin"] == origin


async def test_stored_hostile_messages_do_not_block_restarted_bridge(
    nats_server: NatsServer, site: Site
) -> None:
    telemetry = Telemetry()
    first = NatsSource(site=site, telemetry=telemetry, durable="d")
    async with bridge(first):
        await eventually(lambda: bool(first.stream))
    await send_all(nats_server)
    async with bridge(NatsSource(site=site, telemetry=Telemetry(), durable="d")) as sink:
        await eventually(lambda: 2000 in values(sink.written))


async def test_subscriber_receives_good_and_counts_malformed_messages(
    nats_server: NatsServer, site: Site
) -> None:
    """No caller receives a message that violates the protocol."""
    telemetry, heard = Telemetry(), list[Delivery]()
    async with Connection(site.bus, name="t", telemetry=telemetry) as bus:
        await bus.subscribe("fox%2Etest.>", heard.append)
        await bus.flush()
        await send_all(nats_server)
        await eventually(lambda: len(heard) == len(MESSAGES) - len(FLAWED) + 2)
        await bus.flush()
    count = telemetry.registry.get_sample_value("ccpipe_bus_errors_total", {"kind": "malformed"})
    assert count == len(FLAWED)


async def test_failing_callback_does_not_lose_next_message(
    nats_server: NatsServer, site: Site
) -> None:
    """The error is counted; messages received with it are still delivered."""
    telemetry, heard = Telemetry(), list[bytes]()

    def receive(delivery: Delivery) -> None:
        heard.append(delivery.payload)
        if delivery.payload == b"1":
            raise ValueError

    async with Connection(site.bus, name="t", telemetry=telemetry) as bus:
        await bus.subscribe("a", receive)
        await bus.flush()
        await publish(nats_server.url, [(b"a", b"", b"", b"%d" % n) for n in range(3)])
        await eventually(lambda: len(heard) == 3)
        await bus.flush()
    assert telemetry.total(telemetry.bus_errors) == 1


async def test_nats_py_subscriptions_survive_hostile_messages(
    nats_server: NatsServer, site: Site
) -> None:
    """Its replies and iterators use the same reader; requests are still answered."""
    reported: list[Exception] = []

    async def report(error: Exception) -> None:
        reported.append(error)

    client = Client(report)
    await client.connect(nats_server.url)
    subscription = await client.subscribe("a.>")
    await client.flush()
    await publish(
        nats_server.url,
        [
            (b"a.\xff", b"", b"", b"1"),
            (b"a.b", b"\xff", b"", b"2"),
            (b"a.b", b"", b"abc", b"3"),
            (b"a.b", b"r", b"NATS/1.0\r\nX: y\r\n\r\n", b"good"),
        ],
    )
    message = await subscription.next_msg(20)
    assert (message.data, message.reply, message.headers) == (b"good", "r", {"X": "y"})
    await client.jetstream().account_info()
    await client.close()
    assert len(reported) == 3


async def test_request_with_hostile_reply_subject_does_not_block_node(
    nats_server: NatsServer, site: Site
) -> None:
    """It has no valid address for a reply; the next request is answered."""
    telemetry = Telemetry()
    async with (
        Connection(site.bus, name="node", telemetry=telemetry) as bus,
        responding(bus, site, {}),
        Connection(site.bus, name="t", telemetry=Telemetry()) as other,
    ):
        asked = b'x,hostname=n1,method=GET,type=node control="" 1740000000\n'
        requests = [
            (b"fox%2Etest.control.get", reply, header, asked)
            for reply, header in ((b"r.\xff", b""), (b"\xff", b""), (b"r", b"abc"))
        ]
        await publish(nats_server.url, requests)
        answers = await send_requests(
            other, site, [control_request("controls", node="n1")], seconds=20
        )
    assert [answer.name for answer in answers] == ["controls"]
    count = telemetry.registry.get_sample_value("ccpipe_bus_errors_total", {"kind": "malformed"})
    assert count == 3


@pytest.mark.parametrize("words", [["-o", "line"], ["--job", "7"]])
async def test_tail_shows_good_messages_and_continues(
    nats_server: NatsServer, words: list[str]
) -> None:
    """It does not stop at any of them, nor at JSON that is nested too deeply to decode."""
    process = await asyncio.create_subprocess_exec(
        *command("tail", "--server", nats_server.url, *words, "--count", "1"),
        *("--for", "500s", *([] if "--job" in words else ["--name", "end"])),
        stdout=asyncio.subprocess.PIPE,
        env=environment(),
    )
    hostile = [(subject(m, b"fox."), b"", m.header, LINE % n) for n, m in enumerate(MESSAGES)]
    hostile += [
        (b"fox.sonar.sample", b"", b"", DEEP),
        (b"fox.events.job", b"", b"", start(DEEP)),
        (b"fox.events.job", b"", b"", start(b'{"jobId": 7, "resources": [{"hostname": "n1"}]}')),
    ]
    end = (b"fox.metrics", b"", b"", b"end" + LINE[1:] % 1)
    ended = asyncio.create_task(process.communicate())
    while not ended.done():
        await publish(nats_server.url, [*hostile, end])
        await asyncio.wait({ended}, timeout=0.2)
    assert process.returncode == 0
    out, _ = ended.result()
    assert b"n1" in out


async def test_too_deeply_nested_job_event_is_skipped(nats_server: NatsServer, site: Site) -> None:
    """A bridge that reads jobs from other sources' events continues with the next message."""
    source = NatsSource(site=site, telemetry=Telemetry(), durable="jobs", subjects=["events"])
    good = b'other,cluster=fox.test,hostname=n1,type=node event="1" 1740000000\n'
    subjects = (b"fox%2Etest.events.job", b"fox%2Etest.events.other")
    payloads = (start(DEEP), good)
    messages = zip(subjects, payloads, strict=True)
    async with bridge(source, AccountingJobs(site=site, live=True)) as sink:
        await eventually(lambda: bool(source.stream))
        await publish(nats_server.url, [(name, b"", b"", payload) for name, payload in messages])
        await eventually(lambda: bool(sink.written))
    assert values(sink.written) == ["1"]


async def test_bad_lines_do_not_block_other_tasks(site: Site, nats_server: NatsServer) -> None:
    """Between messages of bad lines only, heartbeats, signals and ``/health`` still work."""
    turns, seen = 0, []

    async def tick() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with Connection(site.bus, name="test", telemetry=Telemetry()) as bus:
        bad = [Outgoing("fox%2Etest.metrics", b"x\n" * 9000, f"{n}") for n in range(5)]
        await Publisher(bus, site.bus, Subjects.of(site)).publish(bad)
    source = NatsSource(site=site, telemetry=Telemetry(), durable="test")
    async with source:
        ticking = asyncio.create_task(tick())
        async for batch in source.batches():
            seen.append(turns)
            assert batch.ack
            await batch.ack()
            if len(seen) == len(bad):
                source.stop()
        ticking.cancel()
    assert len(set(seen)) == len(bad), seen
