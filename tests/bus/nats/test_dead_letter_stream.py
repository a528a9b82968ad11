"""Dead letters on the bus, read back and removed."""

from ccpipe.bus.nats.connection import Connection
from ccpipe.bus.nats.dead_letter_stream import DeadLetterStream
from ccpipe.bus.nats.dead_letters import NatsDeadLetterSink
from ccpipe.bus.subjects import Subjects
from ccpipe.config import Site
from ccpipe.pipeline import DeadLetter
from ccpipe.telemetry import Telemetry

LETTERS = [
    DeadLetter(b"a \xff", "no", "fox.metrics", 3, 17),
    DeadLetter(b"b", "a reason", "x"),
    DeadLetter(b"c", "another"),
]


async def test_what_was_kept_is_read_in_order(site: Site) -> None:
    """With everything that the headers say."""
    async with Connection(site.bus, name="test", telemetry=Telemetry()) as bus:
        await NatsDeadLetterSink(bus, site).write(LETTERS)
        found = [letter async for letter in DeadLetterStream(bus, Subjects.of(site)).read()]
    assert [(x.original, x.reason, x.origin, x.line, x.offset) for x in found] == [
        (x.original, x.reason, x.origin, x.line, x.offset) for x in LETTERS
    ]
    assert [letter.id for letter in found] == ["1", "2", "3"]
    assert found[0].time > 1_700_000_000 * 10**9


async def test_what_was_removed_is_gone_for_everybody(site: Site) -> None:
    """Also where two remove the same letter."""
    async with Connection(site.bus, name="test", telemetry=Telemetry()) as bus:
        await NatsDeadLetterSink(bus, site).write(LETTERS)
        letters = DeadLetterStream(bus, Subjects.of(site))
        found = [letter async for letter in letters.read()]
        await letters.remove(found[:2])
        await letters.remove(found[1:2])
        left = [letter async for letter in DeadLetterStream(bus, Subjects.of(site)).read()]
    assert [letter.original for letter in left] == [b"c"]


async def test_headers_of_others_are_not_trusted(site: Site) -> None:
    """Anybody may publish on the subject."""
    async with Connection(site.bus, name="test", telemetry=Telemetry()) as bus:
        await NatsDeadLetterSink(bus, site).write(LETTERS[:1])
        headers = {"Ccpipe-Line": "9" * 5000, "Ccpipe-Offset": "-1"}
        await bus.jetstream().publish(Subjects.of(site).dead(), b"x", headers=headers)
        found = [letter async for letter in DeadLetterStream(bus, Subjects.of(site)).read()]
    assert [(x.original, x.line, x.offset) for x in found[1:]] == [(b"x", 0, 0)]
