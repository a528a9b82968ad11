"""Sonar's envelopes as rows of tables."""

from datetime import UTC, datetime

from ccpipe.formats.sonar import MetadataObject, SampleData, SampleEnvelope
from ccpipe.formats.sonar.types.sample import SampleAttributes, SampleSystem
from ccpipe.sinks.postgres.sonar import rows


def test_times_at_the_edge() -> None:
    """A time that no ``datetime`` holds is the nearest that one does."""
    attributes = SampleAttributes(
        time="0001-01-01T00:00:00+23:00", cluster="c", node="n", system=SampleSystem()
    )
    envelope = SampleEnvelope(MetadataObject("sonar", "1"), SampleData(attributes))
    assert rows([envelope])["sonar_samples"][0][0] == datetime.min.replace(tzinfo=UTC)
