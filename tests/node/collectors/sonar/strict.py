"""Envelopes as a strict reader sees them."""

from ccpipe.formats.sonar import Envelope, decode, encode


def strict(envelope: Envelope) -> Envelope:
    """Write an envelope and read it back by the specification's rules."""
    decoded = decode(encode(envelope), strict=True)
    assert decoded.rejected == []
    [again] = decoded
    assert again == envelope
    return again
