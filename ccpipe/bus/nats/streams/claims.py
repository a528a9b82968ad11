"""Which process reads which partition: one table, updated by all processes of a durable name.

The table is the last message of a subject. A process writes it on condition that the last message
is the one it has read: if two processes write at once, one fails and reads again. Clocks are not
compared: a process counts as dead if its heartbeat counter has not changed for a time that the
others measure.
"""

import math
import time
from collections.abc import Iterable
from typing import NamedTuple

import msgspec
import nats.errors
import nats.js.errors
from nats.js import JetStreamContext, api

from ccpipe.bus.nats.errors import explain
from ccpipe.bus.nats.streams.stream import DESCRIPTION, NAME_IN_USE, stream_name
from ccpipe.bus.subjects import Subjects, escape
from ccpipe.config import Bus
from ccpipe.errors import UnavailableError

EXPECTED = "Nats-Expected-Last-Subject-Sequence"
WRONG_SEQUENCE = 10071
"""JetStream's error code for an unexpected last sequence."""


class ClaimTable(msgspec.Struct):
    """Processes by name with their heartbeat counters, in order of arrival; partition owners."""

    members: dict[str, int] = {}
    owners: dict[str, str] = {}
    """The owner of each partition, by the name of its consumer."""

    def of(self, member: str) -> list[str]:
        return [partition for partition, owner in self.owners.items() if owner == member]

    def share(self, member: str, partitions: int) -> int:
        """Return a process's number of partitions: equal shares, the remainder to the first."""
        place = list(self.members).index(member)
        return partitions // len(self.members) + (place < partitions % len(self.members))

    def remove(self, members: set[str]) -> None:
        self.members = {name: n for name, n in self.members.items() if name not in members}
        self.owners = {p: owner for p, owner in self.owners.items() if owner not in members}

    def claim(self, member: str, partitions: list[str], preferred: list[str]) -> list[str]:
        """Claim free partitions up to a process's share, preferred ones first; return new ones."""
        free = [each for each in partitions if each not in self.owners]
        free.sort(key=lambda each: each not in preferred)
        missing = self.share(member, len(partitions)) - len(self.of(member))
        new = free[: max(0, missing)]
        self.owners |= dict.fromkeys(new, member)
        return new


class Observer:
    """Measures for how long each process's heartbeat counter has not changed."""

    def __init__(self, max_gap: float) -> None:
        """Start over after `max_gap` seconds without an observation, which count for no process.

        Then this process was stalled, or the broker was unreachable and no process could write.
        """
        self._max_gap = max_gap
        self._seen: dict[str, tuple[int, float]] = {}
        self._last = -math.inf

    def silent(self, table: ClaimTable) -> dict[str, float]:
        """Return seconds by process; 0 for one that has changed, or is seen for the first time."""
        now = time.monotonic()
        before = self._seen if now - self._last < self._max_gap else {}
        self._last = now
        self._seen = {
            name: before[name] if name in before and before[name][0] == beats else (beats, now)
            for name, beats in table.members.items()
        }
        return {name: now - since for name, (_, since) in self._seen.items()}


async def owners_of(
    jetstream: JetStreamContext, subjects: Subjects, durables: Iterable[str]
) -> dict[str, str]:
    """Return the reader of each partition of some durable names, by consumer; read-only."""
    found: dict[str, str] = {}
    for durable in durables:
        version = await _find(jetstream, _stream(subjects), _subject(subjects, durable))
        found |= version.table.owners if version else {}
    return found


class Version(NamedTuple):
    """The table and its sequence number, on which the next write depends."""

    table: ClaimTable
    sequence: int


def _stream(subjects: Subjects) -> str:
    return f"{stream_name(subjects)}-replicas"


def _subject(subjects: Subjects, durable: str) -> str:
    return f"{escape(subjects.cluster)}.replicas.{escape(durable)}"


async def _find(jetstream: JetStreamContext, stream: str, subject: str) -> Version | None:
    try:
        message = await jetstream.get_last_msg(stream, subject)
    except nats.js.errors.NotFoundError:
        return None
    except (nats.errors.Error, TimeoutError, OSError) as error:
        raise explain(error, f"reading {subject}") from None
    try:
        table = msgspec.json.decode(message.data or b"", type=ClaimTable)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise UnavailableError(f"{subject}: cannot be read: {error}") from None
    return Version(table, message.seq or 0)


class Claims:
    """The table of one durable name, in a separate stream of the cluster."""

    def __init__(self, bus: Bus, subjects: Subjects, durable: str) -> None:
        self._bus = bus
        self._stream = _stream(subjects)
        self._subject = _subject(subjects, durable)
        self._subjects = f"{escape(subjects.cluster)}.replicas.*"

    async def read(self, jetstream: JetStreamContext) -> Version:
        """Return the table, empty if missing; creates its stream.

        Raises UnavailableError or DeniedError.
        """
        found = await _find(jetstream, self._stream, self._subject)
        if found is None:
            await self._ensure_stream(jetstream)
            return Version(ClaimTable(), 0)
        return found

    async def write(self, jetstream: JetStreamContext, table: ClaimTable, sequence: int) -> bool:
        """Write the table; return false if it has changed since it was read. Raises as ``read``."""
        headers = {EXPECTED: str(sequence)}
        try:
            await jetstream.publish(self._subject, msgspec.json.encode(table), headers=headers)
        except (nats.errors.Error, TimeoutError, OSError) as error:
            if getattr(error, "err_code", None) == WRONG_SEQUENCE:
                return False
            raise explain(error, f"writing {self._subject}") from None
        return True

    async def _ensure_stream(self, jetstream: JetStreamContext) -> None:
        config = api.StreamConfig(
            name=self._stream,
            subjects=[self._subjects],
            max_msgs_per_subject=1,
            num_replicas=self._bus.stream_replicas,
            storage=api.StorageType.FILE,
            description=DESCRIPTION,
        )
        try:
            await jetstream.add_stream(config)
        except (nats.errors.Error, TimeoutError, OSError) as error:
            if getattr(error, "err_code", None) != NAME_IN_USE:
                raise explain(error, f"creating the stream {self._stream}") from None
