"""What all envelopes share: their producer, and errors."""

import json

from hypothesis import given

from ccpipe.formats.sonar import Envelope, ErrorObject, KVPair, MetadataObject, decode, encode
from tests.formats.sonar import examples
from tests.formats.sonar.examples import changed, one
from tests.formats.sonar.strategies import records


def test_soft_errors_stand_in_the_data() -> None:
    """They are no reason to lose the sample."""
    error = json.loads(examples.ERROR)["errors"][0]
    envelope = one(changed(examples.SAMPLE, "data.attributes.errors", [error]), strict=False)
    assert envelope.data.attributes.errors[0].node == "c1-26.fox"
    assert len(envelope.data.attributes.jobs) == 2


@given(records(MetadataObject), records(ErrorObject))
def test_any_producer_and_error_are_read_back(meta: MetadataObject, error: ErrorObject) -> None:
    """Every field of both types, whatever valid value it has, survives encode and decode."""
    envelope = Envelope(meta, errors=(error,))
    assert decode(encode(envelope), strict=True) == [envelope]


def test_attributes_of_the_producer_keep_their_order() -> None:
    """They are an array of pairs of key and value, whose value may be empty."""
    attrs = [{"key": "python", "value": "3.11"}, {"key": "batchless"}]
    meta = one(changed(examples.SAMPLE, "meta.attrs", attrs), strict=False).meta
    assert meta.attrs == (KVPair("python", "3.11"), KVPair("batchless", ""))
