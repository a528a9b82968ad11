"""The publisher's envelopes."""

from ccpipe.config import Site
from ccpipe.errors import CcpipeError
from ccpipe.formats.sonar import Envelope, SysinfoEnvelope
from ccpipe.node.agent.agent import envelope_sampler, sysinfo
from ccpipe.node.agent.parts import AgentParts
from ccpipe.telemetry import Telemetry


async def test_a_single_sample_has_both_envelopes() -> None:
    """Without waiting for minutes."""
    parts = AgentParts.of(Site(cluster="fox", hostname="n1"), None, Telemetry())
    records = [
        r async for batch in envelope_sampler(parts, once=True).batches() for r in batch.records
    ]
    assert {record.data.type for record in records if record.data} == {"sample", "sysinfo"}


async def test_what_fails_is_an_envelope_of_errors() -> None:
    class Broken:
        def collect(self, time: int) -> list[Envelope]:
            raise CcpipeError(f"no luck at {time}")

    parts = AgentParts.of(Site(cluster="fox", hostname="n1"), None, Telemetry())
    parts.sonar["sonar_sample"] = Broken()
    records = [
        r async for batch in envelope_sampler(parts, once=True).batches() for r in batch.records
    ]
    [failed] = [record for record in records if record.data is None]
    [error] = failed.errors
    assert "no luck" in error.detail
    assert (error.cluster, error.node) == ("fox", "n1")


def test_the_description_of_the_node_has_no_drawings() -> None:
    [envelope, *_] = sysinfo(Site(cluster="fox", hostname="n1"))
    assert isinstance(envelope, SysinfoEnvelope)
    assert envelope.data is not None
    attributes = envelope.data.attributes
    assert (attributes.cluster, attributes.node) == ("fox", "n1")
    assert attributes.topo_svg == ""
