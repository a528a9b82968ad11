"""Verification that records belong on the subject that they arrived on.

The broker lets each node publish under its own name only (``ccpipe auth init``); here the tags
``cluster`` and ``hostname``, the event class and the like are compared with that name. No name is
parsed out of a subject: a record is accepted if ccpipe would publish it on the same subject.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ccpipe.bus.codecs import Codec, Packing
from ccpipe.bus.codecs.received import Received
from ccpipe.bus.codecs.sonar import subject_of
from ccpipe.bus.subjects import Subjects
from ccpipe.errors import ConfigError, EncodeError
from ccpipe.formats.lineprotocol import Lines, RejectedLine
from ccpipe.formats.sonar.envelopes import Envelopes
from ccpipe.records import RejectedRecord


class SubjectCheckingCodec(Codec[Lines | Envelopes]):
    """A codec that rejects records which do not belong on the subject that they arrived on."""

    def __init__(self, codec: Codec[Any], subjects: Subjects, names: Iterable[str]) -> None:
        """Check the records of another codec, lines or envelopes.

        Raises ConfigError for any other, and if a template among `names` lacks the node.
        """
        if codec.records not in (Lines, Envelopes):
            raise ConfigError(
                f'identity: "subject" is for lines and envelopes, not for {codec.records.name}'
            )
        self.codec = codec
        self.records = codec.records
        self.subjects = subjects
        for name in {"metrics", "sonar"}.intersection(names):
            if "{hostname}" not in subjects.templates[name]:
                raise ConfigError(
                    f'source.identity: "subject" needs {{hostname}} in bus.subjects.{name}, '
                    f"which is {subjects.templates[name]!r}; `ccpipe auth init` writes subjects "
                    "that contain it"
                )

    def decode(self, messages: Sequence[Received]) -> Iterator[tuple[Lines | Envelopes, int]]:
        check: Any = self._lines if self.records is Lines else self._envelopes
        for message in messages:
            for records, count in self.codec.decode([message]):
                yield check(records, message), count

    def encode(
        self, records: Lines | Envelopes, subjects: Subjects, packing: Packing
    ) -> Iterator[tuple[str, bytes]]:
        return self.codec.encode(records, subjects, packing)

    def _lines(self, lines: Lines, message: Received) -> Lines:
        reasons: dict[tuple[int, int], str] = {}
        for row, key in enumerate(zip(lines.series, lines.fields, strict=True)):
            if key not in reasons:
                try:
                    own = self.subjects.of_message(lines[row])
                except EncodeError as error:
                    reasons[key] = str(error)
                else:
                    reasons[key] = _difference(message.subject, own)
        if not any(reasons.values()):
            return lines
        found = [reasons[key] for key in zip(lines.series, lines.fields, strict=True)]
        good = lines.take([not reason for reason in found])
        bad = {lines.starts[row]: row for row, reason in enumerate(found) if reason}
        foreign = [
            RejectedLine(
                lines.payload.count(b"\n", 0, start) + 1,
                start,
                0,
                found[row],
                lines.payload[start : lines.ends[row]],
            )
            for start, row in bad.items()
        ]
        good.rejected = [*lines.rejected, *foreign]
        return good

    def _envelopes(self, envelopes: Envelopes, message: Received) -> Envelopes:
        found = [_difference(message.subject, subject_of(e, self.subjects)) for e in envelopes]
        if not any(found):
            return envelopes
        good = [envelope for envelope, reason in zip(envelopes, found, strict=True) if not reason]
        foreign = [
            RejectedRecord(envelopes.original(i), reason, i + 1)
            for i, reason in enumerate(found)
            if reason
        ]
        return Envelopes(good, size=envelopes.size, rejected=[*envelopes.rejected, *foreign])


def _difference(subject: str, own: str) -> str:
    return "" if subject == own else f"arrived on {subject}, but belongs on {own}"
