"""Sonar's envelopes in messages: which of them become one batch."""

from typing import NamedTuple

from ccpipe.bus.codecs.sonar import JOINED_BYTES, SonarCodec
from ccpipe.formats import sonar


class Message(NamedTuple):
    """A message as a broker hands it over."""

    subject: str
    payload: bytes
    arrival: int = 0


def message(node: str, subject: str = "fox.sonar.sample") -> Message:
    attributes = sonar.SampleAttributes("2025-02-20T06:05:51Z", "fox", node)
    meta = sonar.MetadataObject("sonar", "0.19.0")
    return Message(subject, sonar.encode(sonar.SampleEnvelope(meta, sonar.SampleData(attributes))))


def node_of(envelope: sonar.Envelope) -> str:
    assert isinstance(envelope.data, sonar.SampleData)
    return envelope.data.attributes.node


def test_codec_joins_neighbours_of_one_subject() -> None:
    """Each batch has one origin for its dead letters, and an entry for each message."""
    received = [
        message("c1"),
        Message("fox.sonar.sample", b"{}"),
        message("c2"),
        message("c3", "wolf.sonar.sample"),
        message("c4"),
    ]
    batches = list(SonarCodec().decode(received))
    assert [count for _, count in batches] == [3, 1, 1]
    assert [list(map(node_of, found)) for found, _ in batches] == [["c1", "c2"], ["c3"], ["c4"]]
    first = batches[0][0]
    assert [bad.original for bad in first.rejected] == [b"{}"]
    assert first.provenance is not None
    assert first.provenance.origins == ["fox.sonar.sample"] * 3
    assert list(first.provenance.ends) == [1, 1, 2]


def test_codec_ends_batch_at_limit() -> None:
    """A batch takes memory for its payloads, many times their size."""
    one = message("c1")
    limit = -(-JOINED_BYTES // len(one.payload))
    counts = [count for _, count in SonarCodec().decode([one] * (2 * limit + 1))]
    assert counts == [limit, limit, 1]


def test_codec_decodes_no_messages() -> None:
    assert list(SonarCodec().decode([])) == []
