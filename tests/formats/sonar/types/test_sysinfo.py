"""The description of a node."""

from hypothesis import given

from ccpipe.formats.sonar import (
    MetadataObject,
    SysinfoAttributes,
    SysinfoData,
    SysinfoEnvelope,
    decode,
    encode,
)
from tests.formats.sonar import examples
from tests.formats.sonar.examples import one
from tests.formats.sonar.strategies import records


def test_a_node() -> None:
    """Hardware, topology, cards."""
    envelope = one(examples.SYSINFO)
    assert isinstance(envelope, SysinfoEnvelope)
    assert envelope.data is not None
    assert envelope.data.attributes.distances == ((10, 21), (21, 10))
    assert envelope.data.attributes.cards[0].max_ce_clock == 2100


@given(records(SysinfoAttributes))
def test_any_node_is_read_back(attributes: SysinfoAttributes) -> None:
    """Every field of the type, whatever valid value it has, survives encode and decode."""
    envelope = SysinfoEnvelope(MetadataObject("ccpipe", "1.2.3"), SysinfoData(attributes))
    assert decode(encode(envelope), strict=True) == [envelope]
