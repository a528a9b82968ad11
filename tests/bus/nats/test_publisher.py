"""Encoded messages onto the bus: each once, in order, also through retries; answers of streams."""

import asyncio
import contextlib
import subprocess
from pathlib import Path

import nats
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nats.aio.msg import Msg

from ccpipe.bus.nats import publisher as module
from ccpipe.bus.nats.client import takes_batches
from ccpipe.bus.nats.connection import Acknowledgements, Answer, Connection, Waiting
from ccpipe.bus.nats.errors import ForbiddenError
from ccpipe.bus.nats.protocol.frames import Deliveries, Delivery, Receive
from ccpipe.bus.nats.publisher import MESSAGE_ID, NoStreamError, Outgoing, Publisher, digest, store
from ccpipe.bus.nats.server import NatsServer
from ccpipe.bus.subjects import Subjects
from ccpipe.config import Bus, Site
from ccpipe.errors import EncodeError, RejectedError, UnavailableError
from ccpipe.telemetry import Telemetry
from tests.bus.nats.conftest import connected
from tests.servers.nats.daemon import nats_daemon
from tests.servers.nats.proxy import Proxy
from tests.servers.nats.stored import stored

SUBJECT = "fox%2Etest.metrics"


async def test_publisher_stores_messages_in_order_and_once(
    site: Site, nats_server: NatsServer
) -> None:
    """A missing stream is created; the same id is stored once."""
    messages = [Outgoing(SUBJECT, b"%d" % i, f"id-{i}") for i in range(100)]
    async with Connection(site.bus, name="test", telemetry=Telemetry()) as bus:
        publisher = Publisher(bus, site.bus, Subjects.of(site))
        for _ in range(2):
            await publisher.publish(messages)
    assert await stored(nats_server) == [(SUBJECT, b"%d" % i) for i in range(100)]


async def test_publisher_retries_while_stream_has_no_leader(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cluster of servers refuses messages until it has elected one; the stream exists."""
    attempts = 0

    async def refuse(*_: object) -> None:
        nonlocal attempts
        attempts += 1
        raise NoStreamError(SUBJECT, "no stream stores it")

    async with Connection(site.bus, name="test", telemetry=Telemetry()) as bus:
        publisher = Publisher(bus, site.bus, Subjects.of(site))
        await publisher.publish([Outgoing(SUBJECT, b"1", "id-1")])
        monkeypatch.setattr("ccpipe.bus.nats.publisher.store", refuse)
        with pytest.raises(UnavailableError, match="has no leader") as caught:
            await publisher.publish([Outgoing(SUBJECT, b"2", "id-2")])
    assert not isinstance(caught.value, NoStreamError)
    assert attempts == 2


async def test_publisher_retries_while_no_server_answers_about_stream(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Servers without a leader do not know; a node, which may not create one, retries."""

    async def no_stream(*_: object) -> None:
        raise NoStreamError(SUBJECT, "no stream stores it")

    async def no_answer(*_: object) -> list[str]:
        raise UnavailableError("looking for a stream: no answer")

    async def refuse(*_: object) -> None:
        raise ForbiddenError(["$JS.API.STREAM.INFO.s"])

    async with Connection(site.bus, name="test", telemetry=Telemetry()) as bus:
        publisher = Publisher(bus, site.bus, Subjects.of(site))
        await publisher.publish([Outgoing(SUBJECT, b"1", "id-1")])
        monkeypatch.setattr("ccpipe.bus.nats.publisher.store", no_stream)
        monkeypatch.setattr("ccpipe.bus.nats.streams.jetstream.names_of", no_answer)
        monkeypatch.setattr("ccpipe.bus.nats.streams.stream.ensure_stream", refuse)
        with pytest.raises(UnavailableError, match="no answer") as caught:
            await publisher.publish([Outgoing(SUBJECT, b"2", "id-2")])
    assert not isinstance(caught.value, NoStreamError)


async def test_publisher_keeps_order_after_failure_in_middle(
    site: Site, nats_server: NatsServer
) -> None:
    async with Connection(site.bus, name="test", telemetry=Telemetry()) as bus:
        publisher = Publisher(bus, site.bus, Subjects.of(site))
        good = [Outgoing(SUBJECT, b"%d" % i, f"id-{i}") for i in range(40)]
        huge = Outgoing(SUBJECT, b"x" * (bus.max_payload + 1), "huge")
        with pytest.raises(RejectedError):
            await publisher.publish([*good, huge])
        await publisher.publish(good)
    assert await stored(nats_server) == [(SUBJECT, b"%d" % i) for i in range(40)]


async def test_publisher_keeps_order_after_refused_message(nats_server: NatsServer) -> None:
    """Later messages on its subject wait for its retry; other subjects do not."""
    messages = [Outgoing(f"fox%2Etest.events.{i % 2}", b"%d" % i, f"id-{i}") for i in range(40)]
    async with Proxy(nats_server) as proxy:
        site = Site(cluster="fox.test", hostname="n1", bus=proxy.bus)
        async with Connection(site.bus, name="test", telemetry=Telemetry()) as bus:
            publisher = Publisher(bus, site.bus, Subjects.of(site))
            await publisher.publish(messages[:2])  # there is a stream
            bus.refuse_batches()
            proxy.refuses = {b"4", b"21"}
            with pytest.raises(UnavailableError, match="refused by the proxy"):
                await publisher.publish(messages)
            with contextlib.suppress(UnavailableError):
                await publisher.publish(messages)
            await publisher.publish(messages)
    assert not proxy.refuses
    found = await stored(nats_server)
    for subject in ("fox%2Etest.events.0", "fox%2Etest.events.1"):
        expected = [message.payload for message in messages if message.subject == subject]
        assert [payload for where, payload in found if where == subject] == expected


LIMIT = 2**20


@given(st.binary(), st.binary(), st.binary(), st.binary())
def test_ids_are_equal_only_for_equal_content(a: bytes, b: bytes, c: bytes, d: bytes) -> None:
    """An id covers subject and payload, and where one ends."""
    if b"\0" not in a + c:
        assert (digest(a, b) == digest(c, d)) == ((a, b) == (c, d))


@given(
    st.text(st.characters(exclude_categories=["Cs"])),
    st.binary(),
    st.dictionaries(
        st.text(st.characters(codec="ascii")), st.text(st.characters(exclude_categories=["Cs"]))
    ),
)
def test_message_is_one_command_or_cannot_be_encoded(
    subject: str, payload: bytes, headers: dict[str, str]
) -> None:
    """No subject and no header can add a word, a header or a command."""
    try:
        line, body, end = Outgoing(subject, payload, "id", headers).command("reply", LIMIT)
    except EncodeError:
        return
    command, _, header = line.partition(b"\r\n")
    words = command.split(b" ")
    assert words[:3] == [b"HPUB", subject.encode(), b"reply"]
    assert [int(word) for word in words[3:]] == [len(header), len(header) + len(payload)]
    assert (body, end) == (payload, b"\r\n")
    lines = header.split(b"\r\n")
    assert lines[0] == b"NATS/1.0"
    assert lines[-3:] == [f"{MESSAGE_ID}: id".encode(), b"", b""]
    assert len(lines) == 4 + len(headers)


def test_headers_arrive_unchanged() -> None:
    line, *_ = Outgoing("a", b"", "7", {"Ccpipe-Reason": "a: b"}).command("r", LIMIT)
    header = line.partition(b"\r\n")[2]
    assert Delivery("a", b"", header).headers == {"Ccpipe-Reason": "a: b", MESSAGE_ID: "7"}


def test_message_beyond_servers_limit_is_rejected() -> None:
    """With its header, for which the server would close the connection."""
    with pytest.raises(RejectedError, match="max_payload is 1048576"):
        Outgoing("a", b"x" * LIMIT, "id").command("r", LIMIT)


async def test_subject_without_stream_is_named(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """With no subscriber at all, or only one that sends no acknowledgement."""
    monkeypatch.setattr(module, "STORE_SECONDS", 0.2)
    async with Connection(site.bus, name="t", telemetry=Telemetry()) as bus:
        with pytest.raises(NoStreamError, match="a: no stream stores it") as caught:
            await store(bus, [Outgoing("a", b"", "1")], set())
        assert caught.value.subject == "a"
        await bus.subscribe("a", lambda delivery: None)
        with pytest.raises(NoStreamError, match="did not answer in time"):
            await store(bus, [Outgoing("a", b"", "1")], set())


async def test_closed_connection_is_unavailable(site: Site) -> None:
    async with Connection(site.bus, name="t", telemetry=Telemetry()) as bus:
        pass
    with pytest.raises(UnavailableError):
        await store(bus, [Outgoing("a", b"", "1")], set())


def bus_at(port: int) -> Bus:
    return Bus(servers=[f"nats://127.0.0.1:{port}"])


async def fill(bus: Connection, stored: list[str]) -> None:
    """Store large messages until that fails; the ids of those that were stored are added."""
    for number in range(100):
        await store(bus, [Outgoing("a", b"y" * 200_000, f"{number}")], set())
        stored.append(f"{number}")


@pytest.mark.long
async def test_full_disk_is_reported_until_server_is_restarted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk (here in memory) is inferred, as the server does not report it.

    With free space it still refuses, which the error explains; after a restart it works again, and
    all acknowledged messages are still there.
    """
    monkeypatch.setattr("ccpipe.bus.nats.publisher.STORE_SECONDS", 2.0)
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=20m", "none", disk], check=True)
    configuration = f'jetstream {{ store_dir: "{disk}", max_file_store: 1GB }}'
    try:
        async with nats_daemon(tmp_path, configuration) as port, connected(bus_at(port)) as bus:
            await bus.jetstream().add_stream(name="S", subjects=["a"])
            (disk / "ballast").write_bytes(b"x" * 17 * 2**20)
            stored: list[str] = []
            with pytest.raises(UnavailableError, match=r"disk is full.*restart nats-server"):
                await fill(bus, stored)
            (disk / "ballast").unlink()
            with pytest.raises(UnavailableError, match="restart nats-server"):
                await store(bus, [Outgoing("a", b"small", "after")], set())
        async with nats_daemon(tmp_path, configuration) as port, connected(bus_at(port)) as bus:
            await store(bus, [Outgoing("a", b"small", "after")], set())
            state = (await bus.jetstream().stream_info("S")).state
        assert state.messages == len(stored) + 1
    finally:
        subprocess.run(["umount", disk], check=True)


NOISE = (b"", b"ok", b"{", b"[1]", b"{}", b'{"stream": ""}', b'{"stream": 1}', b'{"error": null}')


async def test_reply_of_subscriber_is_not_acknowledgement(
    site: Site, nats_server: NatsServer
) -> None:
    client = await nats.connect(nats_server.url)

    async def reply(message: Msg) -> None:
        for noise in NOISE:
            await client.publish(message.reply, noise)

    async with connected(site.bus) as bus:
        stored: set[str] = set()
        messages = [Outgoing("a", b"%d" % number, f"{number}") for number in range(20)]
        await bus.jetstream().add_stream(name="s", subjects=["a"])
        await client.subscribe("a", cb=reply)
        await client.flush()
        await store(bus, messages, stored)
        assert stored == {message.id for message in messages}
        assert (await bus.jetstream().stream_info("s")).state.messages == 20
    await client.close()


async def test_waiting_publisher_fails_when_connection_is_lost(nats_server: NatsServer) -> None:
    async with Proxy(nats_server) as proxy:
        bus = Connection(proxy.bus, name="t", telemetry=Telemetry(), forever=False)
        async with bus:
            await bus.jetstream().add_stream(name="s", subjects=["a"])
            proxy.speaks.clear()
            waiting = asyncio.create_task(store(bus, [Outgoing("a", b"x", "1")], set()))
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(waiting), 0.3)
            assert not waiting.done()
            proxy.cut()
            with pytest.raises(UnavailableError, match="was lost"):
                await waiting


async def test_publisher_sends_batch_without_waiting_for_each(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All messages on a subject are stored although no answer has arrived."""
    monkeypatch.setattr(module, "STORE_SECONDS", 60.0)
    messages = [Outgoing(SUBJECT, b"%d" % i, f"id-{i}") for i in range(20)]
    async with Proxy(nats_server) as proxy:
        site = Site(cluster="fox.test", hostname="n1", bus=proxy.bus)
        async with connected(site.bus) as bus:
            publisher = Publisher(bus, site.bus, Subjects.of(site))
            await publisher.publish(messages[:1])
            proxy.speaks.clear()
            waiting = asyncio.create_task(publisher.publish(messages))
            while len(await stored(nats_server)) < len(messages):
                await asyncio.sleep(0.01)
            assert not waiting.done()
            proxy.speaks.set()
            await waiting
            assert bus.takes_batches
    assert await stored(nats_server) == [(SUBJECT, each.payload) for each in messages]


@pytest.mark.parametrize("refused", [b"0", b"7", b"19"])
async def test_publisher_keeps_order_when_batch_is_interrupted(
    nats_server: NatsServer, refused: bytes
) -> None:
    """After a message that is refused none is stored; those that are missing are sent again."""
    messages = [Outgoing(SUBJECT, b"%d" % i, f"id-{i}") for i in range(20)]
    async with Proxy(nats_server) as proxy:
        site = Site(cluster="fox.test", hostname="n1", bus=proxy.bus)
        async with connected(site.bus) as bus:
            publisher = Publisher(bus, site.bus, Subjects.of(site))
            await publisher.publish([Outgoing(SUBJECT, b"first", "first")])
            proxy.refuses = {refused}
            await publisher.publish(messages)
            assert bus.takes_batches
    assert not proxy.refuses
    found = [payload for _, payload in await stored(nats_server)]
    assert found == [b"first", *(each.payload for each in messages)]


@pytest.mark.parametrize("repeated", [[0], [0, 1, 2], [5], [19], [3, 4, 18, 19]])
async def test_batch_stores_each_message_once_when_some_are_stored(
    site: Site, nats_server: NatsServer, repeated: list[int]
) -> None:
    """As after a lost connection, which confirmed nothing."""
    messages = [Outgoing(SUBJECT, b"%d" % i, f"id-{i}") for i in range(20)]
    async with connected(site.bus) as bus:
        publisher = Publisher(bus, site.bus, Subjects.of(site))
        before = [messages[number] for number in repeated]
        await publisher.publish(before)
        kept: set[str] = set()
        await store(bus, messages, kept)
        assert kept == {message.id for message in messages}
        assert bus.takes_batches
    found = [payload for _, payload in await stored(nats_server)]
    others = [each.payload for each in messages if each not in before]
    assert found == [*(each.payload for each in before), *others]


async def test_publisher_stores_each_alone_when_stream_allows_no_batches(
    site: Site, nats_server: NatsServer
) -> None:
    """A stream of the site, or of an earlier version; it is asked once in a connection."""
    messages = [Outgoing("a", b"%d" % i, f"id-{i}") for i in range(20)]
    async with connected(site.bus) as bus:
        await bus.jetstream().add_stream(name="s", subjects=["a"])
        kept: set[str] = set()
        await store(bus, messages, kept)
        assert not bus.takes_batches
        assert (await bus.jetstream().stream_info("s")).state.messages == len(kept) == 20


async def test_batch_is_stored_when_subjects_belong_to_two_streams(
    site: Site, nats_server: NatsServer
) -> None:
    """A batch belongs to one; later messages of this connection are sent without."""
    messages = [Outgoing("ab"[i % 2], b"%d" % i, f"id-{i}") for i in range(20)]
    async with connected(site.bus) as bus:
        for name in "ab":
            await bus.jetstream().add_stream(name=name, subjects=[name], allow_batched=True)
        kept: set[str] = set()
        await store(bus, messages, kept)
        assert not bus.takes_batches
        for name in "ab":
            assert (await bus.jetstream().stream_info(name)).state.messages == 10
    assert kept == {message.id for message in messages}


async def test_large_write_is_several_batches(
    site: Site, nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is limited in messages and bytes; order is kept between them."""
    monkeypatch.setattr(module, "BATCH", 7)
    monkeypatch.setattr(module, "BATCH_BYTES", 100)
    sizes = [1, 20, 20, 20, 20, 20, 300, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]
    messages = [Outgoing(SUBJECT, b"%03d" % i * size, f"id-{i}") for i, size in enumerate(sizes)]
    async with connected(site.bus) as bus:
        await Publisher(bus, site.bus, Subjects.of(site)).publish(messages)
    assert await stored(nats_server) == [(SUBJECT, each.payload) for each in messages]


async def test_waiting_batch_fails_when_connection_is_lost(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was stored by then is stored once when it is published again."""
    monkeypatch.setattr(module, "STORE_SECONDS", 60.0)
    messages = [Outgoing("a", b"%d" % i, f"id-{i}") for i in range(20)]
    async with Proxy(nats_server) as proxy, connected(proxy.bus) as bus:
        await bus.jetstream().add_stream(name="s", subjects=["a"], allow_batched=True)
        proxy.speaks.clear()
        kept: set[str] = set()
        waiting = asyncio.create_task(store(bus, messages, kept))
        while len(await stored(nats_server, "s")) < len(messages):
            await asyncio.sleep(0.01)
        proxy.cut()
        with pytest.raises(UnavailableError, match="was lost"):
            await waiting
        assert not kept
    async with connected(Bus(servers=[nats_server.url])) as bus:
        await store(bus, messages, kept)
    assert len(kept) == len(await stored(nats_server, "s")) == 20


@pytest.mark.parametrize(
    ("version", "expected"),
    [("", False), ("2.9.25", False), ("2.13.9", False), ("2.14.0", True), ("3.0.0-RC.1", True)],
)
def test_batches_depend_on_version_of_server(version: str, expected: bool) -> None:
    assert takes_batches(version) is expected


class _Kept(Waiting):
    """Keeps its answers."""

    def __init__(self) -> None:
        self.answers: list[Answer] = []

    def answered(self, reply: str, answer: Answer) -> None:
        self.answers.append(answer)

    def proceed(self) -> None:
        pass

    def lost(self) -> None:
        pass


@given(st.lists(st.binary() | st.sampled_from(NOISE)), st.binary())
async def test_any_bytes_are_acknowledgement_or_ignored(
    payloads: list[bytes], header: bytes
) -> None:
    """The stream's own one is still awaited, unless one of them looks like it."""
    receivers: list[Receive] = []

    async def subscribe(_: str, receive: Receive) -> None:
        receivers.append(receive)

    acknowledgements = Acknowledgements(lambda: "inbox", subscribe)
    await acknowledgements.open()
    kept = _Kept()
    reply = acknowledgements.expect(kept)
    receivers[0](Deliveries([Delivery(reply, payload, header) for payload in payloads]))
    seen = len(kept.answers)
    receivers[0](Deliveries([Delivery(reply, b'{"stream": "s", "seq": 7}')] * 2))
    assert len(kept.answers) == max(seen, 1) == 1


async def test_cancelled_publisher_waits_for_nothing(site: Site) -> None:
    """A late acknowledgement is dropped, and does not disturb the next call."""
    async with connected(site.bus) as bus:
        await bus.subscribe("a", lambda delivery: None)  # so that it has a subscriber
        waiting = asyncio.create_task(store(bus, [Outgoing("a", b"x", "1")], set()))
        while not bus.acknowledgements._waiting:
            await asyncio.sleep(0.01)
        waiting.cancel()
        await asyncio.wait({waiting})
        assert not bus.acknowledgements._waiting
