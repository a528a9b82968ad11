"""The four envelopes, and the one of errors."""

import pytest

from ccpipe.formats import sonar
from ccpipe.formats.sonar.layout import fields
from ccpipe.formats.sonar.types.envelope import ENVELOPES
from ccpipe.formats.sonar.types.primitives import Record
from tests.formats.sonar import examples
from tests.formats.sonar.examples import changed, one
from tests.paths import TEST_DATA

LISTED = TEST_DATA / "sonar" / "fields.txt"


def test_each_envelope_is_made_of_what_the_specification_says() -> None:
    """Four kinds of data, each in an envelope of its own, each with its attributes."""
    pairs = dict(line.split() for line in LISTED.read_text().splitlines() if line[0] != "#")
    for data, cls in ENVELOPES.items():
        assert pairs[f"{cls.__name__}.data"] == f"*{data.__name__}"
        attributes = fields(data)["attributes"].record
        assert attributes is not None
        assert pairs[f"{data.__name__}.attributes"] == attributes.__name__


@pytest.mark.parametrize("data", list(ENVELOPES))
def test_all_defaults_are_empty(data: type[Record]) -> None:
    """An omitted field is zero, empty, false or missing: nothing is invented."""
    attributes = fields(data)["attributes"].record
    assert attributes is not None
    assert not any(getattr(attributes(), name) for name in fields(attributes))


def test_attributes_of_the_producer_keep_their_order() -> None:
    """They are an array of pairs of key and value, whose value may be empty."""
    attrs = [{"key": "python", "value": "3.11"}, {"key": "batchless"}]
    meta = one(changed(examples.SAMPLE, "meta.attrs", attrs), strict=False).meta
    assert meta.attrs == (sonar.KVPair("python", "3.11"), sonar.KVPair("batchless", ""))
