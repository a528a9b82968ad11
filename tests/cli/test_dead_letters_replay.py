"""Replay of dead letters: the message published for each, and those that are kept."""

from collections.abc import AsyncIterator, Sequence

import msgspec
import pytest

from ccpipe.bus.nats.connection import Connection
from ccpipe.cli.dead_letters import DeadLetterReplay
from ccpipe.config import Site
from ccpipe.errors import DataError, UnavailableError, UsageError
from ccpipe.formats.dead_letters import StoredDeadLetter
from ccpipe.formats.sonar import encode
from ccpipe.telemetry import Telemetry
from tests.bus.envelopes import SAMPLE

NOON = 1_740_052_800 * 10**9
LINE = b"m,cluster=fox.test,hostname=n1 value=1.0 1740052000"
CONTROL = b'interval,hostname=h3,method=PUT,type=node control="9s" 1740052000'
OURS = "fox%2Etest.metrics.n1"


class Kept:
    """A store of dead letters in memory."""

    def __init__(self, dead_letters: Sequence[StoredDeadLetter]) -> None:
        self.dead_letters = list(dead_letters)

    async def read(self) -> AsyncIterator[StoredDeadLetter]:
        for dead_letter in list(self.dead_letters):
            yield dead_letter

    async def remove(self, dead_letters: Sequence[StoredDeadLetter]) -> None:
        self.dead_letters = [
            dead_letter for dead_letter in self.dead_letters if dead_letter not in dead_letters
        ]


def dead_letter(payload: bytes, origin: str = OURS, *, number: int = 1) -> StoredDeadLetter:
    return StoredDeadLetter(str(number), NOON, "no", payload, origin)


async def test_dead_letter_is_replayed_to_origin_else_by_its_records(site: Site) -> None:
    """A file's origin is not a subject; a line without a timestamp gets its dead letter's."""
    async with Connection(site.bus, name="t", telemetry=Telemetry()) as bus:
        replay = DeadLetterReplay(bus, site, lenient=False, rate=0)
        [message] = replay.messages(dead_letter(LINE))
        assert (message.subject, message.payload) == (OURS, LINE + b"\n")
        [message] = replay.messages(dead_letter(LINE.rpartition(b" ")[0], "load"))
        assert message.subject == "fox%2Etest.metrics"
        assert message.payload == LINE.replace(b"1740052000", b"1740052800") + b"\n"
        theirs = DeadLetterReplay(
            bus, msgspec.structs.replace(site, cluster="fox.no"), lenient=False, rate=0
        )
        [message] = theirs.messages(dead_letter(encode(SAMPLE), "sonar"))
        assert message.subject == "fox%2Eno.sonar.sample"


async def test_message_ids_follow_dead_letters(site: Site) -> None:
    """Replayed twice it is stored once; two dead letters of equal bytes are two messages."""
    async with Connection(site.bus, name="t", telemetry=Telemetry()) as bus:
        replay = DeadLetterReplay(bus, site, lenient=False, rate=0)
        first, same, other = (replay.messages(dead_letter(LINE, number=n))[0] for n in (1, 1, 2))
        assert first.id == same.id != other.id


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (dead_letter(b"broken"), "expected a space and a field"),
        (dead_letter(b"# a comment"), "no records"),
        (dead_letter(b"{}", "sonar"), "must have data or errors"),
        (
            dead_letter(encode(SAMPLE), "sonar"),
            r"belongs on fox%2Eno.sonar.sample, which is not a data",
        ),
        (
            dead_letter(LINE.replace(b"fox.test", b"h3"), "h3.metrics"),
            r"belongs on h3.metrics, which",
        ),
        (dead_letter(CONTROL, "h3.control.put"), "a control request is not data"),
        (dead_letter(CONTROL, OURS), "a control request is not data"),
        (StoredDeadLetter("1", NOON, "no", b"m v", OURS, cut_from=99), "only 3 of 99 bytes"),
    ],
)
async def test_still_invalid_dead_letter_is_reported(
    site: Site, bad: StoredDeadLetter, reason: str
) -> None:
    """Nothing of it is published."""
    async with Connection(site.bus, name="t", telemetry=Telemetry()) as bus:
        with pytest.raises(DataError, match=reason):
            DeadLetterReplay(bus, site, lenient=False, rate=0).messages(bad)


async def test_replay_uses_another_subject_only_if_named(site: Site) -> None:
    """A stream must store it, none is created for it, and control subjects are rejected."""
    kept = Kept([dead_letter(LINE.replace(b"fox.test", b"h3"), "h3.metrics")])
    async with Connection(site.bus, name="t", telemetry=Telemetry()) as bus:
        replay = DeadLetterReplay(bus, site, lenient=False, rate=0, to="h3.metrics")
        with pytest.raises(UnavailableError, match=r"no stream stores this subject"):
            await replay.run(kept.read(), kept)
        await bus.jetstream().add_stream(name="theirs", subjects=["h3.metrics"])
        await replay.run(kept.read(), kept)
        assert (await bus.jetstream().stream_info("theirs")).state.messages == 1
        assert kept.dead_letters == []
        for refused in ("h3.control.put", "h3.*", "h3.", "h 3"):
            with pytest.raises(UsageError, match="--to"):
                DeadLetterReplay(bus, site, lenient=False, rate=0, to=refused)
