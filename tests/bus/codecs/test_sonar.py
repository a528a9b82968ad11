"""Sonar's envelopes as payloads."""

from ccpipe.bus.codecs.sonar import SonarCodec
from ccpipe.bus.nats.connection import Delivery
from ccpipe.formats.sonar import ErrorObject, MetadataObject, encode
from ccpipe.formats.sonar.types.envelope import Envelope


def test_envelopes_keep_their_bad_neighbours_apart() -> None:
    """A message that is no envelope is rejected with its reason; the others are read."""
    error = Envelope(MetadataObject("p", "1"), errors=(ErrorObject("", "x", "c"),))
    messages = [
        Delivery("a", encode(error), b"", ""),
        Delivery("b", b"{", b"", ""),
        Delivery("c", encode(error), b"", ""),
    ]
    batches = [batch for batch, _ in SonarCodec().decode(messages)]
    assert [list(batch) for batch in batches] == [[error], [], [error]]
    (bad,) = batches[1].rejected
    assert (bad.original, bad.line) == (b"{", 1)
    assert bad.reason
