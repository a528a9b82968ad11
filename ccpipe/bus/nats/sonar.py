"""Sonar's envelopes off the bus and onto it: ``<cluster>.sonar.<type>``, one to a message."""

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from ccpipe.bus.nats.connection import Delivery
from ccpipe.bus.nats.sink import HEADER_ROOM, NatsSink
from ccpipe.bus.nats.source import NatsSource
from ccpipe.bus.subjects import escape
from ccpipe.config import Duration, Site
from ccpipe.errors import RejectedError
from ccpipe.formats.sonar import Envelope, ReadProfile, WriteProfile, decode, encode
from ccpipe.pipeline import Batch, DeadLetter
from ccpipe.telemetry import Telemetry


class SonarSource(NatsSource):
    """Hands over envelopes: ``NatsSource`` with another format."""

    gives: ClassVar[str] = "envelopes"

    def __init__(
        self,
        *,
        site: Site,
        telemetry: Telemetry,
        subjects: list[str] = ["sonar"],  # noqa: B006 - read, never changed
        durable: str = "",
        queue: str = "",
        profile: ReadProfile = "auto",
        strict: bool = False,
        ack_wait: Duration = Duration(20),
        drain: Duration = Duration(0),
    ) -> None:
        """Listen as ``NatsSource`` does; `profile` and `strict` are those of ``sonar.decode``."""
        super().__init__(
            site=site,
            telemetry=telemetry,
            subjects=subjects,
            durable=durable,
            queue=queue,
            ack_wait=ack_wait,
            drain=drain,
        )
        self.profile = profile
        self.strict = strict

    def read(self, delivery: Delivery) -> Batch:
        """Decode one message: an envelope, though more than one do no harm."""
        envelopes, rejected = decode(delivery.payload, strict=self.strict, profile=self.profile)
        letters = [
            DeadLetter(
                bad.original,
                bad.reason,
                delivery.subject,
                bad.line,
                bad.offset,
            )
            for bad in rejected
        ]
        size = len(delivery.payload)
        return Batch(envelopes, origin=delivery.subject, letters=letters, size=size)


class SonarSink(NatsSink):
    """Publishes envelopes: ``NatsSink`` with another format."""

    takes: ClassVar[str] = "envelopes"

    def __init__(self, *, site: Site, telemetry: Telemetry, profile: WriteProfile = "spec") -> None:
        """Write as `profile` says; see ``sonar.encode``."""
        super().__init__(site=site, telemetry=telemetry)
        self.profile: WriteProfile = profile

    def messages(self, records: Sequence[Any]) -> Iterator[tuple[str, bytes]]:
        """Encode each envelope, to the subject of its cluster and type."""
        room = self.bus.max_payload - HEADER_ROOM
        for index, envelope in enumerate(records):
            payload = encode(envelope, profile=self.profile)
            if len(payload) > room:
                reason = f"an envelope of {len(payload)} bytes is beyond the server's max_payload"
                raise RejectedError(reason, [index])
            yield self._subject(envelope), payload

    def _subject(self, envelope: Envelope) -> str:
        data = envelope.data
        cluster = envelope.errors[0].cluster if data is None else data.attributes.cluster
        node = envelope.errors[0].node if data is None else getattr(data.attributes, "node", "")
        return self.subjects.templates["sonar"].format(
            cluster=escape(cluster or self.site.cluster),
            hostname=escape(node or self.site.hostname),
            name="error" if data is None else data.type,
            method="",
        )
