"""Decoder of a stream of concatenated JSON values, in bounded memory for any input.

Sonar writes each envelope on its own line; files also have pretty-printed ones, but never an array.
After a bad value, decoding resumes where the next envelope may start: at a brace at the start of a
line, or before a key that only envelopes start with.

Source: Sonar's ``util/formats/newfmt/decode_*.go`` and ``doc/HOWTO-DAEMON.md``.
"""

import re
from codecs import BOM_UTF8

import msgspec

from ccpipe.formats.sonar.decoder import TOO_EARLY, TRAILING, Malformed, decode_value, malformed
from ccpipe.formats.sonar.envelopes import Envelopes, RejectedEnvelope
from ccpipe.formats.sonar.profiles import ReadProfile
from ccpipe.formats.sonar.rules import Problem
from ccpipe.formats.sonar.types.envelope import Envelope

LARGEST = 16 * 2**20
"""Maximum bytes of an envelope."""

_SPACE = re.compile(rb"[ \t\r\n]*+")
_BOUNDARY = re.compile(
    rb'(?<=\n)\{|\{(?=[ \t\r\n]{0,24}+"(?:topic|meta|data|errors)"[ \t\r\n]{0,24}+:)'
)
_OVERLAP = 64
"""Bytes at the end of the buffer that may be the start of a boundary."""
_MAX_TOKEN = 32
"""Bytes at the end of the buffer that may be invalid only because the rest is missing."""
_BRACE = ord("{")
_LAST = b"}\r"
_NO_BRACE = "expected '{', the start of an envelope"
_BOM = "JSON must not begin with a byte order mark"
_SKIP = msgspec.json.Decoder(msgspec.Raw)


def decode(payload: bytes, *, strict: bool = False, profile: ReadProfile = "auto") -> Envelopes:
    """Decode a payload of any number of envelopes.

    Parameters
    ----------
    payload
        Concatenated JSON values, on separate lines or not.
    strict
        Apply all rules of the specification. Otherwise the variants in real archives are accepted:
        other names of fields and types, missing values, unknown fields.
    profile
        Encoding of numbers, see ``profiles``: ``sonar`` for Sonar's own, ``spec`` for the
        specification's, ``auto`` to decide by each envelope's producer.

    Returns
    -------
    Envelopes
        ``rejected`` has the rejected parts with position and reason. No payload raises.

    """
    if payload.startswith(b"{") and payload.find(b"\n") in (-1, len(payload) - 1):
        found = decode_value(payload, strict=strict, profile=profile)  # the usual case, fast
        if isinstance(found, Envelope):
            return Envelopes([found], size=len(payload))
    decoder = Decoder(strict=strict, profile=profile, largest=max(LARGEST, len(payload)))
    whole = Envelopes.concat([decoder.feed(payload), decoder.finish()])
    whole.size = len(payload)
    return whole


class Decoder:
    """Decodes a stream that arrives in blocks of any size.

    It buffers one envelope of up to `largest` bytes; a larger one is rejected.
    """

    def __init__(
        self, *, strict: bool = False, profile: ReadProfile = "auto", largest: int = LARGEST
    ) -> None:
        self.strict = strict
        self.profile = profile
        self.largest = largest
        self._buffer = bytearray()
        self._offset = 0  # of the buffer in the stream
        self._line, self._line_index = 1, 0  # line number at an index of the buffer
        self._bad: Malformed | None = None  # at the start of the buffer, end unknown yet
        self._searched = 1  # bytes already searched for the end
        self._retry_size = 0  # buffered bytes before an incomplete value is retried
        self._found: list[Envelope] = []
        self._rejected: list[RejectedEnvelope] = []

    def feed(self, block: bytes) -> Envelopes:
        """Add the next bytes; return the complete envelopes."""
        self._buffer += block
        if block[-_OVERLAP:].rstrip().endswith(b"}"):
            self._retry_size = 0
        return self._run(final=False)

    def finish(self) -> Envelopes:
        """End the stream; return the rest."""
        self._retry_size = 0
        return self._run(final=True)

    @property
    def complete(self) -> int:
        """Bytes of the stream already decoded or rejected; the rest is buffered."""
        return self._offset

    def _run(self, *, final: bool) -> Envelopes:
        buffer = self._buffer
        position: int | None = 0
        start = 0
        while position is not None:
            space = _SPACE.match(buffer, position)
            start = position if space is None or self._bad else space.end()
            if start == len(buffer):
                break
            fresh = self._offset + start == 0 or b"\n" in buffer[position:start]
            position = self._take(start, fresh=fresh, final=final)
        self._go_to_line_of(start)
        self._offset, self._line_index = self._offset + start, 0
        del buffer[:start]
        complete = Envelopes(self._found, rejected=self._rejected)
        self._found, self._rejected = [], []
        return complete

    def _take(self, start: int, *, fresh: bool, final: bool) -> int | None:
        """Decode the value at `start`; return its end, or None if more bytes are needed."""
        if self._bad is None and self._buffer[start] != _BRACE:
            has_mark = self._buffer.startswith(BOM_UTF8, start)
            self._bad = Malformed(0, _BOM if has_mark else _NO_BRACE)
        if self._bad is not None:
            return self._skip(start, self._bad, final=final)
        if fresh and (end := self._take_line(start)):
            return end
        if len(self._buffer) - start < self._retry_size:
            return None
        return self._take_framed(start, final=final)

    def _take_line(self, start: int) -> int | None:
        """Decode the value if it is exactly one line, as Sonar writes it: the fast path."""
        end = self._buffer.find(b"\n", start, start + self.largest)
        if end < 0 or self._buffer[end - 1] not in _LAST:
            return None
        if self._accept(start, end):
            return None
        self._go_to_line_of(start)
        self._line_index = end  # no line ends in between; counting them is slow
        return end

    def _take_framed(self, start: int, *, final: bool) -> int | None:
        with memoryview(self._buffer)[start : start + self.largest] as rest:
            size, bad = _measure(rest)
        if bad is None:
            bad = self._accept(start, start + size)
        elif bad.rule is TOO_EARLY and size == self.largest:
            bad = Malformed(0, f"the envelope is larger than {self.largest} bytes")
        elif bad.offset > size - _MAX_TOKEN and not final:
            self._retry_size = 2 * size
            return None
        if bad is None:
            return start + size
        return self._skip(start, bad, final=final)

    def _accept(self, start: int, end: int) -> Malformed | None:
        """Decode a complete value; return the error if it is not JSON after all."""
        found = decode_value(self._buffer[start:end], strict=self.strict, profile=self.profile)
        if isinstance(found, Malformed):
            return found
        if isinstance(found, list):
            self._reject(start, end, start, found)
        else:
            self._found.append(found)
        return None

    def _skip(self, start: int, bad: Malformed, *, final: bool) -> int | None:
        """Reject from `start` up to where the next envelope may start."""
        buffer = self._buffer
        boundary = _BOUNDARY.search(buffer, start + self._searched)
        if boundary is not None:
            end = boundary.start()
        elif final or len(buffer) - start >= 2 * self.largest:
            end = len(buffer)
        else:
            self._bad = bad
            self._searched = max(1, len(buffer) - start - _OVERLAP)
            return None
        self._bad, self._searched, self._retry_size = None, 1, 0
        self._reject(start, end, min(start + bad.offset, end), [Problem("$", bad.rule)])
        return end

    def _reject(self, start: int, end: int, error_at: int, found: list[Problem]) -> None:
        self._go_to_line_of(error_at)
        original = bytes(self._buffer[start:end].rstrip())
        self._rejected.append(
            RejectedEnvelope(
                self._line, self._offset + error_at, tuple(found), original, self._offset + start
            )
        )

    def _go_to_line_of(self, place: int) -> None:
        self._line += self._buffer.count(b"\n", self._line_index, place)
        self._line_index = place


def _measure(rest: memoryview) -> tuple[int, Malformed | None]:
    """Return the end of the value at the start of `rest`, or the error."""
    try:
        _SKIP.decode(rest)
    except (msgspec.DecodeError, RecursionError) as error:
        bad = malformed(rest, error)
        # msgspec reports the byte after the first trailing byte.
        return (bad.offset - 1, None) if bad.rule is TRAILING else (len(rest), bad)
    return len(rest), None
