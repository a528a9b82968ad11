"""Partitions and nodes of a cluster."""

from hypothesis import given

from ccpipe.formats.sonar import (
    ClusterAttributes,
    ClusterData,
    ClusterEnvelope,
    MetadataObject,
    decode,
    encode,
)
from tests.formats.sonar import examples
from tests.formats.sonar.examples import one
from tests.formats.sonar.strategies import records


def test_a_cluster() -> None:
    """Partitions, and the states of nodes."""
    envelope = one(examples.CLUSTER)
    assert isinstance(envelope, ClusterEnvelope)
    assert envelope.data is not None
    assert envelope.data.attributes.slurm
    assert envelope.data.attributes.partitions[1].nodes == ("bigmem-[1-2]", "c1-29")
    assert envelope.data.attributes.nodes[0].states == ("ALLOCATED", "MAINTENANCE")


@given(records(ClusterAttributes))
def test_any_cluster_is_read_back(attributes: ClusterAttributes) -> None:
    """Every field of the type, whatever valid value it has, survives encode and decode."""
    envelope = ClusterEnvelope(MetadataObject("ccpipe", "1.2.3"), ClusterData(attributes))
    assert decode(encode(envelope), strict=True) == [envelope]
