"""The four envelopes, and the one of errors."""

import json

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


def test_an_envelope_of_errors() -> None:
    """It does not say which of the four it is."""
    envelope = one(examples.ERROR, strict=True)
    assert type(envelope) is sonar.Envelope
    assert envelope.data is None
    assert envelope.errors[0].detail == "No can do"


def test_a_sample() -> None:
    """A node's state with the fields of newer programs, other than ASCII names included."""
    envelope = one(examples.SAMPLE)
    assert isinstance(envelope, sonar.SampleEnvelope)
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


def test_a_node() -> None:
    """Hardware, topology, cards."""
    envelope = one(examples.SYSINFO)
    assert isinstance(envelope, sonar.SysinfoEnvelope)
    assert envelope.data is not None
    assert envelope.data.attributes.distances == ((10, 21), (21, 10))
    assert envelope.data.attributes.cards[0].max_ce_clock == 2100


def test_jobs() -> None:
    """An array's task and a part of a heterogeneous job; UNLIMITED; an infinite priority."""
    envelope = one(examples.JOBS)
    assert isinstance(envelope, sonar.JobsEnvelope)
    assert envelope.data is not None
    task, part = envelope.data.attributes.slurm_jobs
    assert (task.array_job_id, task.array_task_id, task.job_step) == (1467073, 1, "extern")
    assert (part.het_job_id, part.het_job_offset, part.job_step) == (1467921, 1, "")
    assert (part.time_limit, part.priority) == (sonar.INFINITE, sonar.INFINITE)
    assert task.priority == sonar.ExtendedUint(1001)
    assert task.sacct is not None
    assert task.sacct.AveRSS == 64400000
    assert part.sacct is None


def test_a_cluster() -> None:
    """Partitions, and the states of nodes."""
    envelope = one(examples.CLUSTER)
    assert isinstance(envelope, sonar.ClusterEnvelope)
    assert envelope.data is not None
    assert envelope.data.attributes.slurm
    assert envelope.data.attributes.partitions[1].nodes == ("bigmem-[1-2]", "c1-29")
    assert envelope.data.attributes.nodes[0].states == ("ALLOCATED", "MAINTENANCE")


def test_soft_errors_stand_in_the_data() -> None:
    """They are no reason to lose the sample."""
    error = json.loads(examples.ERROR)["errors"][0]
    envelope = one(changed(examples.SAMPLE, "data.attributes.errors", [error]), strict=False)
    assert envelope.data.attributes.errors[0].node == "c1-26.fox"
    assert len(envelope.data.attributes.jobs) == 2


def test_attributes_of_the_producer_keep_their_order() -> None:
    """They are an array of pairs of key and value, whose value may be empty."""
    attrs = [{"key": "python", "value": "3.11"}, {"key": "batchless"}]
    meta = one(changed(examples.SAMPLE, "meta.attrs", attrs), strict=False).meta
    assert meta.attrs == (sonar.KVPair("python", "3.11"), sonar.KVPair("batchless", ""))
