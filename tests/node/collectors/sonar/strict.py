"""Envelopes as a strict reader sees them."""

from ccpipe.formats.sonar import Envelope, decode, encode


def strict(envelope: Envelope) -> Envelope:
    decoded = decode(encode(envelope), strict=True)
    assert decoded.rejected == []
    [again] = decoded
    assert again == envelope
    return again
