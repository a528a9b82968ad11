"""Responses to an export: what a receiver did not store.

::

    Export…ServiceResponse { Export…PartialSuccess partial_success = 1; }
    Export…PartialSuccess  { int64 rejected_… = 1; string error_message = 2; }
    google.rpc.Status      { int32 code = 1; string message = 2; }  // of an error
"""

from typing import NamedTuple

from ccpipe.errors import DataError
from ccpipe.formats.protobuf import fields, message, read_varint, varint


class PartialSuccess(NamedTuple):
    """How many data points or log records were rejected, and why."""

    rejected: int = 0
    reason: str = ""

    def encode(self) -> bytes:
        """Return the body of a response; empty if nothing was rejected."""
        if not self.rejected:
            return b""
        return message(1, b"\x08" + varint(self.rejected) + message(2, _text(self.reason)))


def decode_response(body: bytes) -> PartialSuccess:
    """Decode the body of a response; raises DataError if it is something else, such as HTML."""
    rejected, reason = 0, ""
    for key, start, end in fields(body, 0, len(body)):
        if key != _MESSAGE_1:
            continue
        for part, begin, stop in fields(body, start, end):
            if part == _VARINT_1:
                rejected = read_varint(body, begin, stop)[0]
            elif part == _MESSAGE_2:
                reason = body[begin:stop].decode(errors="replace")
    return PartialSuccess(rejected, reason)


def encode_status(reason: str) -> bytes:
    """Return the body of a response with an error status."""
    return message(2, _text(reason))


def decode_status(body: bytes) -> str:
    """Return the reason in the body of an error; empty if it has none, or is something else."""
    try:
        spans = [
            (start, end) for key, start, end in fields(body, 0, len(body)) if key == _MESSAGE_2
        ]
    except DataError:
        return ""
    return body[slice(*spans[-1])].decode(errors="replace") if spans else ""


def _text(text: str) -> bytes:
    return text.encode(errors="backslashreplace")


_VARINT_1, _MESSAGE_1, _MESSAGE_2 = 1 << 3, 1 << 3 | 2, 2 << 3 | 2
