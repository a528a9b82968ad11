"""Records onto the bus."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, Self

from ccpipe.bus.codecs import Codec, Packing
from ccpipe.bus.codecs.line import LineCodec
from ccpipe.bus.nats.connection import Connection, check
from ccpipe.bus.nats.errors import ForbiddenError
from ccpipe.bus.nats.publisher import HEADER_ROOM, Outgoing, Publisher, digest
from ccpipe.bus.subjects import Subjects
from ccpipe.config import Site, Size
from ccpipe.errors import RejectedError
from ccpipe.pipeline import Limits, Sink
from ccpipe.records import Provenance, Records
from ccpipe.telemetry import Telemetry


class NatsSink(Sink[Any]):
    """Publishes records on the subjects of their kind, in messages of a few hundred lines.

    With JetStream a write returns when the broker has stored every message. A message published
    again within the broker's duplicate window is stored once, since it has the same id: a hash of
    its content and subject, or of the id of the stream message that contained its records. The
    latter is the same however records are batched, also after a crash. Without JetStream a write
    returns when the server has received everything.
    """

    # Each message has a timeout; after it, the next attempt publishes only what is not stored.
    limits = Limits(max_wait=0.0, write_timeout=math.inf)

    def __init__(
        self,
        *,
        site: Site,
        telemetry: Telemetry,
        codec: Codec[Any] | None = None,
        max_lines: int = 500,
        max_bytes: Size = Size(64 * 2**10),
        min_batch: int = 50,
        subjects: dict[str, str | dict[str, str]] | None = None,
    ) -> None:
        """Take the options.

        Parameters
        ----------
        codec
            Message format: ``line`` (default) or ``sonar``.
        max_lines
            Maximum number of records in a message.
        max_bytes
            Maximum size of a message, unless a single record is larger.
        min_batch
            Records from messages of fewer records than this are published together, others message
            by message.
        subjects
            Overrides of ``[bus.subjects]`` for what this sink publishes.

        """
        self.site = site
        self.telemetry = telemetry
        self.subjects = Subjects.of(site, subjects)
        self.max_lines = max_lines
        self.max_bytes = max_bytes
        self.min_batch = min_batch
        self.codec: Codec[Any] = codec or LineCodec()
        self.takes = self.codec.records
        self._is_ours = True
        self._connect(Connection(site.bus, name="publisher", telemetry=telemetry))

    def _connect(self, bus: Connection) -> None:
        self.bus = bus
        self._publisher = Publisher(bus, self.site.bus, self.subjects)

    def using(self, bus: Connection) -> Self:
        self._is_ours = False
        self._connect(bus)
        return self

    async def __aenter__(self) -> Self:
        if self._is_ours:
            await self.bus.connect_in_background()
        return self

    async def __aexit__(self, *exit_: object) -> None:
        if self._is_ours:
            await self.bus.__aexit__(None, None, None)

    async def check(self) -> None:
        await check(self.site.bus, self.telemetry)

    async def write(self, records: Records) -> None:
        known = records.provenance
        if self.site.bus.jetstream and known and known.has_ids:
            messages = list(self._encode_origins(records, known))
        else:
            messages = self.encode(records)
        self.bus.require_connected()  # refused credentials end the pipe here
        try:
            await self._publisher.publish(messages)
        except ForbiddenError as error:
            raise self.located(error, records) from None

    def encode(self, records: Records) -> list[Outgoing]:
        return [Outgoing.of(subject, payload) for subject, payload in self._encode(records)]

    def located(self, error: ForbiddenError, records: Records) -> ForbiddenError:
        """Return the error with the indices of the records for its subjects."""
        each = (records[row : row + 1] for row in range(len(records)))
        subjects = [next(self._encode(one))[0] for one in each]
        indices = [i for i, subject in enumerate(subjects) if subject in error.subjects]
        return ForbiddenError(error.subjects, indices)

    def _encode_origins(self, records: Records, known: Provenance) -> Iterator[Outgoing]:
        begin = 0
        for end, origin in known.large(self.min_batch):
            part = records[begin:end] if end - begin < len(records) else records
            try:
                if origin is None:
                    yield from self.encode(part)
                else:
                    yield from _of_origin(origin, self._encode(part))
            except RejectedError as error:
                if error.indices is None:
                    raise
                raise RejectedError(str(error), [begin + i for i in error.indices]) from None
            begin = end

    def _encode(self, records: Records) -> Iterator[tuple[str, bytes]]:
        packing = Packing(self.max_lines, self.max_bytes, self.bus.max_payload - HEADER_ROOM)
        return self.codec.encode(records, self.subjects, packing)


def _of_origin(
    origin: tuple[str, int, int], encoded: Iterable[tuple[str, bytes]]
) -> Iterator[Outgoing]:
    """Yield the records of one stream message, in numbered parts for each subject."""
    parts: Counter[str] = Counter()
    consumer, number, time = origin
    for subject, payload in encoded:
        parts[subject] += 1
        message_id = digest(consumer, f"{number} {time} {parts[subject]}", subject)
        yield Outgoing(subject, payload, message_id)
