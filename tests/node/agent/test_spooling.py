"""Publishing through the spool, with a real broker that stops, freezes and restarts."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from ccpipe.bus.nats.connection import Connection
from ccpipe.bus.nats.errors import ForbiddenError
from ccpipe.bus.nats.publisher import Outgoing, Publisher
from ccpipe.bus.nats.server import NatsServer
from ccpipe.bus.nats.sink import NatsSink
from ccpipe.bus.subjects import Subjects
from ccpipe.config import Bus, Site
from ccpipe.errors import UnavailableError
from ccpipe.formats.lineprotocol import decode, to_lines
from ccpipe.message import Message, event, metric
from ccpipe.node.agent import spool as spool_module
from ccpipe.node.agent import spooling
from ccpipe.node.agent.spool import Spool
from ccpipe.node.agent.spooling import SpoolingSink, SpoolReplay
from ccpipe.pipeline import DeadLetter
from ccpipe.telemetry import Telemetry
from tests.conftest import eventually, free_port
from tests.processes import frozen
from tests.servers.nats.daemon import nats_daemon
from tests.servers.nats.stored import stored
from tests.sinks.conftest import KeptDeadLetters

TAGS = {"cluster": "fox.test", "hostname": "n1", "type": "node"}


@pytest.fixture(autouse=True)
def _time_to_connect() -> None:
    """Do not delay opening a sink: here the broker is often unreachable."""


def line(number: int) -> Message:
    return metric("m", number, time=(1_740_000_000 + number) * 10**9, tags=TAGS)


async def numbers(server: NatsServer) -> list[int]:
    values = [line.value for _, text in await stored(server) for line in decode(text)]
    return [value for value in values if isinstance(value, int)]


class Node:
    """A publisher's connection, spool and sink."""

    def __init__(self, server: NatsServer | str, path: Path, **options: int) -> None:
        url = server if isinstance(server, str) else server.url
        self.site = Site(cluster="fox.test", hostname="n1", bus=Bus(servers=[url]))
        self.telemetry = Telemetry()
        self.letters = KeptDeadLetters()
        self.spool = Spool(path, size=options.get("size", 2**20), age=3600)
        self.rate = options.get("rate", 500)
        self.ending = asyncio.Event()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[SpoolingSink]:
        bus = Connection(self.site.bus, name="test", telemetry=self.telemetry)
        sink = NatsSink(site=self.site, telemetry=self.telemetry).using(bus)
        self.spool.open()
        await bus.connect_in_background()
        self.replay = SpoolReplay(
            self.spool,
            Publisher(bus, self.site.bus, Subjects.of(self.site)),
            rate=self.rate,
            dead_letter_sink=self.letters,
            telemetry=self.telemetry,
        )
        try:
            async with self.replay.running():
                yield SpoolingSink(sink, self.replay, self.ending.is_set)
        finally:
            await bus.__aexit__(None, None, None)

    def fill(self, *messages: Outgoing) -> None:
        self.spool.open()
        self.spool.append([(message, False) for message in messages])
        self.spool.close()

    def gauge(self, name: str) -> float | None:
        return self.telemetry.registry.get_sample_value(name)


async def test_sink_writes_nothing_to_disk_while_broker_responds(
    nats_server: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spooling, "DIRECT_SECONDS", 60.0)
    node = Node(nats_server, tmp_path / "spool")
    async with node.running() as sink:
        await sink.write(to_lines([line(1)]))
        assert node.spool.messages == 0
    assert await numbers(nats_server) == [1]


async def test_replay_publishes_in_order_once_broker_is_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """New messages queue behind the old ones; counters and log report the replay."""
    caplog.set_level("INFO")
    server = NatsServer(tmp_path / "nats", port=free_port())
    (tmp_path / "nats").mkdir()
    node = Node(server, tmp_path / "spool")
    async with node.running() as sink:
        for number in range(100):
            await sink.write(to_lines([line(number)]))
        assert node.gauge("ccpipe_spooled_messages") == 100
        assert (node.gauge("ccpipe_spooled_bytes") or 0) > 0
        async with server:
            await eventually(lambda: node.spool.messages < 100, 60)
            for number in range(100, 110):
                await sink.write(to_lines([line(number)]))
            await eventually(lambda: not node.spool.is_waiting, 60)
            await sink.write(to_lines([line(110)]))
            assert await numbers(server) == list(range(111))
            await eventually(lambda: "messages were replayed" in caplog.text)
    assert node.gauge("ccpipe_spooled_messages") == 0
    assert caplog.text.count("messages go to the spool") == 1


async def test_message_ids_survive_restart(nats_server: NatsServer, tmp_path: Path) -> None:
    """A message that the broker stored without acknowledging it is stored once."""
    node = Node(nats_server, tmp_path / "spool")
    async with node.running() as sink:
        await sink.write(to_lines([line(1), line(2)]))
        again = sink.sink.encode(to_lines([line(1), line(2)]))
    node.fill(*again)
    node = Node(nats_server, tmp_path / "spool")
    async with node.running() as sink:
        await sink.write(to_lines([line(3)]))
        await eventually(lambda: node.spool.messages == 0, 60)
    assert len(await stored(nats_server)) == 2


async def test_sink_spools_after_timeout_of_frozen_broker(
    nats_server: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that accepts bytes but does not respond delays a write by two seconds."""
    node = Node(nats_server, tmp_path / "spool")
    async with node.running() as sink:
        await sink.write(to_lines([line(1)]))
        await eventually(lambda: node.spool.messages == 0, 60)
        monkeypatch.setattr(spooling, "DIRECT_SECONDS", 0.3)
        async with frozen(nats_server.pid):
            for number in (2, 3):
                await sink.write(to_lines([line(number)]))
            assert node.spool.messages == 2
        await eventually(lambda: node.spool.messages == 0, 60)
    assert await numbers(nats_server) == [1, 2, 3]


async def test_full_spool_drops_metrics_and_keeps_events(
    tmp_path: Path, unused_port: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Counter and log report the loss; also on a subject that both share."""
    server = NatsServer(tmp_path, port=unused_port)
    node = Node(server, tmp_path / "spool", size=409_600)
    job = event("job", "start_job", "{}", time=10**18, tags=TAGS)
    async with node.running() as sink:
        await sink.write(to_lines([job]))
        for number in range(200):
            await sink.write(to_lines([line(number)]))
        held = [each.message.payload for each in node.spool.oldest(1000)]
        assert b"start_job" in held[0]
        assert len(held) == node.spool.messages
        assert sink._is_event(Outgoing("fox%2Etest.metrics", b'job event="x" 1', "i"))
    dropped = node.telemetry.registry.get_sample_value(
        "ccpipe_dropped_lines_total", {"component": "spool"}
    )
    assert dropped == 201 - len(held)
    reported = [record for record in caplog.records if "dropped its oldest" in record.message]
    assert len(reported) == 2  # when it began, and at the end
    counts = [record.args[1] for record in reported if isinstance(record.args, tuple)]
    assert sum(count for count in counts if isinstance(count, int)) == dropped


async def test_replay_writes_permanently_rejected_message_to_dead_letters(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    node = Node(nats_server, tmp_path / "spool", size=2**23)
    huge = Outgoing.of("fox%2Etest.metrics", b"x" * (2**20 + 1))
    good = [Outgoing.of("fox%2Etest.metrics", b"m value=%di" % i) for i in range(2)]
    node.fill(good[0], huge, good[1])
    async with node.running():
        await eventually(lambda: node.spool.messages == 0, 60)
    assert [letter.original for letter in node.letters.letters] == [huge.payload]
    assert await numbers(nats_server) == [0, 1]


class FullDeadLetterSink(KeptDeadLetters):
    """Dead letters on a full disk."""

    async def write(self, letters: Sequence[DeadLetter]) -> None:
        raise UnavailableError("dead.lp: No space left on device")


async def test_replay_continues_when_dead_letter_cannot_be_stored(
    nats_server: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message stays in the spool without blocking the others, until there is space."""
    monkeypatch.setattr(spool_module, "RETRY_SECONDS", 1.0)
    monkeypatch.setattr(spooling, "RETRY_SECONDS", (0.1, 0.2))
    node = Node(nats_server, tmp_path / "spool", size=2**23)
    node.letters = FullDeadLetterSink()
    huge = Outgoing.of("fox%2Etest.metrics", b"x" * (2**20 + 1))
    node.fill(huge)
    async with node.running() as sink:
        await eventually(lambda: not node.spool.is_waiting, 60)
        await sink.write(to_lines([line(1)]))
        async with asyncio.timeout(60):
            while await numbers(nats_server) != [1] or node.spool.messages > 1:
                await asyncio.sleep(0.02)
        assert node.spool.messages == 1
        room = node.replay.dead_letter_sink = KeptDeadLetters()
        await eventually(lambda: node.spool.messages == 0, 60)
    assert [letter.original for letter in room.letters] == [huge.payload]


async def test_replay_continues_after_unexpected_error(
    nats_server: NatsServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It is logged, and neither ends the task nor blocks new messages; all are published."""
    monkeypatch.setattr(spool_module, "RETRY_SECONDS", 1.0)
    monkeypatch.setattr(spooling, "RETRY_SECONDS", (0.1, 0.2))
    node = Node(nats_server, tmp_path / "spool")
    node.fill(*[Outgoing.of("fox%2Etest.metrics", b"m value=%di" % i) for i in range(3)])
    failures = iter((ZeroDivisionError("one"), RuntimeError("two")))
    real = Publisher.publish

    async def publish(publisher: Publisher, messages: Sequence[Outgoing]) -> None:
        if publisher is node.replay.publisher and (failure := next(failures, None)):
            raise failure
        await real(publisher, messages)

    monkeypatch.setattr(Publisher, "publish", publish)
    async with node.running() as sink:
        await eventually(lambda: "ZeroDivisionError: one" in caplog.text, 60)
        await sink.write(to_lines([line(3)]))
        await eventually(lambda: node.spool.messages == 0, 60)
    assert "RuntimeError: two" in caplog.text
    assert sorted(await numbers(nats_server)) == [0, 1, 2, 3]


async def test_replay_loses_only_damaged_message(
    nats_server: NatsServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    node = Node(nats_server, tmp_path / "spool")
    node.fill(*[Outgoing.of("fox%2Etest.metrics", b"m value=%di" % i) for i in range(5)])
    (file,) = (tmp_path / "spool").iterdir()
    content = file.read_bytes()
    file.write_bytes(content.replace(b"value=2", b"value=6"))
    async with node.running():
        await eventually(lambda: node.spool.messages == 0, 60)
    assert await numbers(nats_server) == [0, 1, 3, 4]
    assert "1 of its 5 messages are lost, 1 lines" in caplog.text
    assert node.telemetry.total(node.telemetry.dropped_lines) == 1
    assert file.with_name("damaged").read_bytes().count(b"value=6") == 1


@pytest.fixture
def full(small_disk: Path) -> Path:
    node = Node("nats://127.0.0.1:1", small_disk / "spool")
    node.fill(*[Outgoing.of("fox%2Etest.metrics", b"m value=%di" % i) for i in range(30)])
    with contextlib.suppress(OSError), (small_disk / "filler").open("wb", buffering=0) as filler:
        while True:
            filler.write(b"x" * 4096)
    return small_disk / "spool"


async def retried(sink: SpoolingSink, message: Message) -> None:
    while True:
        try:
            return await sink.write(to_lines([message]))
        except UnavailableError:
            await asyncio.sleep(0.05)


async def test_sink_publishes_after_spool_when_disk_is_full(tmp_path: Path, full: Path) -> None:
    """The spool is published first, each message once, then the messages that the disk rejected."""
    (tmp_path / "nats").mkdir()
    server = NatsServer(tmp_path / "nats", port=free_port())
    node = Node(server, full)
    async with node.running() as sink:
        with pytest.raises(UnavailableError, match="No space left"):
            await sink.write(to_lines([line(30)]))
        writing = asyncio.create_task(retried(sink, line(30)))
        async with server:
            await writing
            for number in range(31, 40):
                await retried(sink, line(number))
            await eventually(lambda: node.spool.messages == 0, 60)
            assert await numbers(server) == list(range(40))
            assert len(await stored(server)) == 40


async def test_sink_publishes_ahead_of_spool_at_shutdown_when_disk_is_full(
    nats_server: NatsServer, full: Path
) -> None:
    """The spool outlives the process; before the shutdown the order is kept."""
    node = Node(nats_server, full, rate=1)
    async with node.running() as sink:
        await eventually(lambda: node.spool.messages == 29, 60)  # the broker is there
        with pytest.raises(UnavailableError, match="No space left"):
            await sink.write(to_lines([line(30)]))
        node.ending.set()
        await sink.write(to_lines([line(30)]))
        left = node.spool.messages
        assert left > 0
    assert 30 in await numbers(nats_server)
    node = Node(nats_server, full)
    async with node.running():
        await eventually(lambda: node.spool.messages == 0, 60)
    assert sorted(await numbers(nats_server)) == list(range(31))


async def test_replay_keeps_rate(nats_server: NatsServer, tmp_path: Path) -> None:
    """Nodes that reconnect together do not flood the broker."""
    node = Node(nats_server, tmp_path / "spool", rate=20)
    node.fill(*[Outgoing.of("fox%2Etest.metrics", b"m value=%d" % i) for i in range(40)])
    loop = asyncio.get_running_loop()
    begun = loop.time()
    async with node.running():
        await eventually(lambda: node.spool.messages == 0, 60)
    assert loop.time() - begun >= 1.0


async def test_forbidden_message_is_rejected_without_spooling(tmp_path: Path) -> None:
    """It would never be accepted; the error has its position, and the others are published."""
    configuration = f"""
    jetstream {{ store_dir: "{tmp_path / "js"}" }}
    authorization {{ users: [ {{ user: u, password: p, permissions {{
      publish: ["$JS.API.>", "*.metrics"], subscribe: ["_INBOX.>"] }} }} ] }}
    """
    async with nats_daemon(tmp_path, configuration) as port:
        node = Node(f"nats://u:p@127.0.0.1:{port}", tmp_path / "spool")
        async with node.running() as sink:
            await eventually(lambda: sink.sink.bus.is_connected)
            await sink.write(to_lines([line(0)]))  # the stream is there
            job = event("job", "f", "{}", time=1_740_000_000 * 10**9, tags=TAGS)
            with pytest.raises(ForbiddenError) as caught:
                await sink.write(to_lines([line(1), job, line(2)]))
            assert caught.value.indices == [1]
            await sink.write(to_lines([line(1), line(2)]))  # as the pipe does with what is left
            state = (await sink.sink.bus.jetstream().stream_info("ccpipe-fox%2Etest")).state
    assert state.messages == 2
    assert node.spool.messages == 0
