"""Slurm's jobs, with sacct's figures."""

from hypothesis import given

from ccpipe.formats.sonar import (
    INFINITE,
    ExtendedUint,
    JobsAttributes,
    JobsData,
    JobsEnvelope,
    MetadataObject,
    decode,
    encode,
)
from tests.formats.sonar import examples
from tests.formats.sonar.examples import one
from tests.formats.sonar.strategies import records


def test_jobs() -> None:
    """An array's task and a part of a heterogeneous job; UNLIMITED; an infinite priority."""
    envelope = one(examples.JOBS)
    assert isinstance(envelope, JobsEnvelope)
    assert envelope.data is not None
    task, part = envelope.data.attributes.slurm_jobs
    assert (task.array_job_id, task.array_task_id, task.job_step) == (1467073, 1, "extern")
    assert (part.het_job_id, part.het_job_offset, part.job_step) == (1467921, 1, "")
    assert (part.time_limit, part.priority) == (INFINITE, INFINITE)
    assert task.priority == ExtendedUint(1001)
    assert task.sacct is not None
    assert task.sacct.AveRSS == 64400000
    assert part.sacct is None


@given(records(JobsAttributes))
def test_any_list_of_jobs_is_read_back(attributes: JobsAttributes) -> None:
    """Every field of the type, whatever valid value it has, survives encode and decode."""
    envelope = JobsEnvelope(MetadataObject("ccpipe", "1.2.3"), JobsData(attributes))
    assert decode(encode(envelope), strict=True) == [envelope]
