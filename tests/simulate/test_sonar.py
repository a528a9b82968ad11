"""Sonar's samples of a simulated node."""

from ccpipe.formats.sonar import SampleAttributes, SampleEnvelope, decode
from ccpipe.jobs import Job
from ccpipe.simulate.jobs import SECOND, Scheduler
from ccpipe.simulate.series import NodeParts
from ccpipe.simulate.sonar import PROCESSES, sample_envelope

NOW = 1_790_000_000 * SECOND
PARTS = NodeParts(hwthread=64)


def sample(job: Job | None) -> SampleAttributes:
    now = job.start + 60 * SECOND if job else NOW
    payload = sample_envelope("fox", "n1", now, job, PARTS, 3)
    [envelope] = decode(payload)
    assert isinstance(envelope, SampleEnvelope)
    assert envelope.data is not None
    return envelope.data.attributes


def job() -> Job:
    scheduler = Scheduler("fox", [f"n{i}" for i in range(9)], hwthreads=64, start=NOW, seed=1)
    changes = scheduler.advance(NOW + 86_400 * SECOND)
    return next(change.job for change in changes if change.function == "start_job")


def test_a_busy_node_shows_the_processes_of_its_job() -> None:
    """They use the node, and never more hardware threads than it has."""
    made = job()
    attributes = sample(made)
    [shown] = attributes.jobs
    assert (shown.job, shown.user) == (made.id, made.user)
    assert len(shown.processes) == PROCESSES
    assert sum(process.cpu_util for process in shown.processes) <= 100 * PARTS.hwthread
    assert attributes.system is not None
    assert len(attributes.system.cpus) == PARTS.hwthread


def test_an_idle_node_has_no_job() -> None:
    attributes = sample(None)
    assert not attributes.jobs
    assert attributes.system is not None
    assert attributes.system.load1 < 1
