"""Samples of a node: its state, and the processes of its jobs."""

from hypothesis import given

from ccpipe.formats.sonar import (
    MetadataObject,
    SampleAttributes,
    SampleData,
    SampleEnvelope,
    decode,
    encode,
)
from tests.formats.sonar import examples
from tests.formats.sonar.examples import one
from tests.formats.sonar.strategies import records


def test_a_sample() -> None:
    """A node's state with the fields of newer programs, other than ASCII names included."""
    envelope = one(examples.SAMPLE)
    assert isinstance(envelope, SampleEnvelope)
    assert envelope.data is not None
    sample = envelope.data.attributes
    assert sample.system is not None
    assert (sample.node, sample.system.boot) == ("gpu-1.fox", "2025-03-01T06:00:00+00:00")
    assert sample.system.cpus == (726304, 744672, 700787, 707718)
    assert sample.system.disks[0].stats == tuple(range(1, 12))
    first, second = sample.system.gpus
    assert (first.index, first.temperature, second.index, second.failing) == (0, -4, 1, 1)
    batch, other = sample.jobs
    assert (batch.user, batch.epoch, other.epoch) == ("bjørg", 0, 161931769)
    assert batch.processes[0].rolledup == 1
    assert batch.processes[0].gpus[0].gpu_util == 80.0
    assert other.processes[0].in_container


@given(records(SampleAttributes))
def test_any_sample_is_read_back(attributes: SampleAttributes) -> None:
    """Every field of the type, whatever valid value it has, survives encode and decode."""
    envelope = SampleEnvelope(MetadataObject("ccpipe", "1.2.3"), SampleData(attributes))
    assert decode(encode(envelope), strict=True) == [envelope]
