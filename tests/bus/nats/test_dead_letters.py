"""Dead letters on the bus."""

from ccpipe.bus.nats.connection import Connection
from ccpipe.bus.nats.dead_letters import DeadLetterStream, NatsDeadLetterSink
from ccpipe.bus.nats.protocol.frames import Delivery
from ccpipe.bus.nats.publisher import HEADER_ROOM, MESSAGE_ID
from ccpipe.bus.nats.server import NatsServer
from ccpipe.bus.subjects import Subjects
from ccpipe.config import Bus, Site
from ccpipe.pipeline import DeadLetter
from ccpipe.telemetry import Telemetry
from tests.conftest import eventually


async def test_dead_letters_keep_their_bytes_reason_and_origin(
    site: Site, nats_server: NatsServer
) -> None:
    """They are stored on <cluster>.dead once, however often they are written."""
    letters = [
        DeadLetter(b"m f=\xff", "the bytes are not\nvalid UTF-8 \u00fc", "fox.metrics", 3, 17),
        DeadLetter(b"m v=1", "refused", "s"),
    ]
    async with Connection(site.bus, name="t", telemetry=Telemetry()) as bus:
        await NatsDeadLetterSink(bus, site).write(letters)
        await NatsDeadLetterSink(bus, site).write(letters)
        stream = bus.jetstream()
        name = await stream.find_stream_name_by_subject("fox%2Etest.dead")
        assert (await stream.stream_info(name)).state.messages == 2
        first = await stream.get_msg(name, 1)
    assert first.data == b"m f=\xff"
    assert first.headers is not None
    assert {k: v for k, v in first.headers.items() if k != MESSAGE_ID} == {
        "Ccpipe-Reason": "the bytes are not valid UTF-8 \\xfc",
        "Ccpipe-Origin": "fox.metrics",
        "Ccpipe-Line": "3",
        "Ccpipe-Offset": "17",
    }


async def test_dead_letter_beyond_servers_limit_is_truncated(site: Site) -> None:
    """The first bytes are stored, and a header contains the full size."""
    async with Connection(site.bus, name="t", telemetry=Telemetry()) as bus:
        room = bus.max_payload - HEADER_ROOM
        await NatsDeadLetterSink(bus, site).write([DeadLetter(b"x" * (room + 5), "too large", "")])
        kept = await bus.jetstream().get_msg("ccpipe-fox%2Etest-dead", 1)
    assert kept.data == b"x" * room
    assert kept.headers is not None
    assert kept.headers["Ccpipe-Cut-From"] == str(room + 5)
    assert "Ccpipe-Origin" not in kept.headers


async def test_dead_letters_are_published_without_jetstream(nats_server: NatsServer) -> None:
    """Subscribers of <cluster>.dead receive them, with the same headers."""
    core = Site(cluster="c", bus=Bus(servers=[nats_server.url], jetstream=False))
    received: list[Delivery] = []
    async with Connection(core.bus, name="t", telemetry=Telemetry()) as bus:
        await bus.subscribe("c.dead", received.append)
        await NatsDeadLetterSink(bus, core).write([DeadLetter(b"m v=1", "refused", "s")])
        await eventually(lambda: len(received) == 1)
    assert received[0].payload == b"m v=1"
    assert dict(received[0].headers) == {"Ccpipe-Reason": "refused", "Ccpipe-Origin": "s"}


DEAD_LETTERS = [
    DeadLetter(b"a \xff", "no", "fox.metrics", 3, 17),
    DeadLetter(b"b", "a reason", "x"),
    DeadLetter(b"c", "another"),
]


async def test_dead_letters_are_read_in_order(site: Site) -> None:
    async with Connection(site.bus, name="test", telemetry=Telemetry()) as bus:
        await NatsDeadLetterSink(bus, site).write(DEAD_LETTERS)
        found = [letter async for letter in DeadLetterStream(bus, Subjects.of(site)).read()]
    assert [(x.original, x.reason, x.origin, x.line, x.offset) for x in found] == [
        (x.original, x.reason, x.origin, x.line, x.offset) for x in DEAD_LETTERS
    ]
    assert [letter.id for letter in found] == ["1", "2", "3"]
    assert found[0].time > 1_700_000_000 * 10**9


async def test_removed_dead_letter_is_deleted_from_stream(site: Site) -> None:
    async with Connection(site.bus, name="test", telemetry=Telemetry()) as bus:
        await NatsDeadLetterSink(bus, site).write(DEAD_LETTERS)
        letters = DeadLetterStream(bus, Subjects.of(site))
        found = [letter async for letter in letters.read()]
        await letters.remove(found[:2])
        await letters.remove(found[1:2])
        left = [letter async for letter in DeadLetterStream(bus, Subjects.of(site)).read()]
    assert [letter.original for letter in left] == [b"c"]


async def test_headers_of_other_publishers_are_not_trusted(site: Site) -> None:
    """Any client may publish on the subject."""
    async with Connection(site.bus, name="test", telemetry=Telemetry()) as bus:
        await NatsDeadLetterSink(bus, site).write(DEAD_LETTERS[:1])
        headers = {"Ccpipe-Line": "9" * 5000, "Ccpipe-Offset": "-1"}
        await bus.jetstream().publish(Subjects.of(site).dead(), b"x", headers=headers)
        found = [letter async for letter in DeadLetterStream(bus, Subjects.of(site)).read()]
    assert [(x.original, x.line, x.offset) for x in found[1:]] == [(b"x", 0, 0)]
