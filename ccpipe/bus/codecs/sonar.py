"""Sonar's envelopes as the payload of messages."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from typing import cast, get_args

from ccpipe.bus.codecs import Codec, Packing
from ccpipe.bus.codecs.received import Received
from ccpipe.bus.subjects import Subjects, escape
from ccpipe.errors import RejectedError
from ccpipe.formats.sonar import Envelope, ReadProfile, WriteProfile
from ccpipe.formats.sonar import decode as decode_envelopes
from ccpipe.formats.sonar import encode as encode_envelope
from ccpipe.formats.sonar.envelopes import Envelopes
from ccpipe.records import Provenance

JOINED_BYTES = 2**15
"""Size of payloads at which a batch ends: its envelopes are read while in the processor's cache."""


class SonarCodec(Codec[Envelopes]):
    """Sonar's JSON: writes one envelope per message; reads one or several."""

    records = Envelopes

    def __init__(
        self, *, profile: ReadProfile | WriteProfile = "auto", strict: bool = False
    ) -> None:
        """Take the options.

        Parameters
        ----------
        profile
            How numbers are encoded, and for which reader. One for one direction only, such as
            ``jobanalyzer`` for writing, leaves the other direction at its default.
        strict
            Reject envelopes that violate the specification.

        """
        self.reads = cast("ReadProfile", profile if profile in get_args(ReadProfile) else "auto")
        self.writes = cast("WriteProfile", profile if profile in get_args(WriteProfile) else "spec")
        self.strict = strict

    def decode(self, messages: Sequence[Received]) -> Iterator[tuple[Envelopes, int]]:
        """Decode messages; neighbours of one subject, the origin of dead letters, are joined."""
        for subject, neighbours in groupby(messages, attrgetter("subject")):
            parts, size = list[Envelopes](), 0
            for message in neighbours:
                part = decode_envelopes(message.payload, strict=self.strict, profile=self.reads)
                part.provenance = Provenance.of_message(subject, len(part))
                parts.append(part)
                size += part.size
                if size >= JOINED_BYTES:
                    yield Envelopes.concat(parts), len(parts)
                    parts, size = [], 0
            if parts:
                yield Envelopes.concat(parts), len(parts)

    def encode(
        self, records: Iterable[Envelope], subjects: Subjects, packing: Packing
    ) -> Iterator[tuple[str, bytes]]:
        for index, envelope in enumerate(records):
            payload = encode_envelope(envelope, profile=self.writes)
            if len(payload) > packing.limit:
                reason = f"an envelope of {len(payload)} bytes exceeds the server's max_payload"
                raise RejectedError(reason, [index])
            yield subject_of(envelope, subjects), payload


def subject_of(envelope: Envelope, subjects: Subjects) -> str:
    data = envelope.data
    cluster = envelope.errors[0].cluster if data is None else data.attributes.cluster
    node = envelope.errors[0].node if data is None else getattr(data.attributes, "node", "")
    return subjects.templates["sonar"].format(
        cluster=escape(cluster or subjects.cluster),
        hostname=escape(node or subjects.hostname),
        name="error" if data is None else data.type,
        method="",
    )
