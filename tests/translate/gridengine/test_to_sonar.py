"""Grid Engine's jobs in Sonar's envelopes: the specification's rules hold, and the values."""

import pytest

from ccpipe.formats.gridengine import read
from ccpipe.formats.sonar import JobsData, SlurmJob, decode, encode, problems
from ccpipe.translate.gridengine.assembler import JobRuns
from ccpipe.translate.gridengine.jobs import Mapping
from ccpipe.translate.gridengine.to_sonar import jobs_to_sonar
from tests.translate.gridengine.test_assembler import DATA, NOW, job, runs_of

MAPPING = Mapping(cluster="fox")


def sonar(*found: JobRuns) -> tuple[SlurmJob, ...]:
    envelope = jobs_to_sonar(found, MAPPING, time=NOW)
    assert problems(envelope, strict=True) == []
    decoded = decode(encode(envelope))
    assert (decoded, decoded.rejected) == ([envelope], [])
    assert isinstance(envelope.data, JobsData)
    return envelope.data.attributes.slurm_jobs


@pytest.mark.parametrize("name", ["accounting", "derived.jsonl", "reporting.head"])
def test_every_sample_keeps_the_specification(name: str) -> None:
    """No rule of the specification is broken, and each job and PE task has its record."""
    found = runs_of(*read((DATA / name).read_bytes()).records)
    assert len(sonar(*found)) == sum(1 + len(runs.tasks) for runs in found)


def test_units_and_words_are_sonars() -> None:
    """Minutes, kilobytes, TRES and Slurm's states."""
    master = job(
        7, task_number=2, slots=4, granted_pe="mpi", hostname="n1.x", failed=37, exit_status=137,
        category="-l h_rt=90,h_vmem=2G,gpu=1 -pe mpi 4", qname="all.q", project="astro", arid=3,
        usage={"rusage": {"ru_wallclock": 90, "ru_utime": 1.6, "ru_maxrss": 2048},
               "eusage": {"cpu": 80.4, "maxvmem": 4096.0, "maxrss": 1.8446744073709552e19}},
    )  # fmt: skip
    whole, task = sonar(
        JobRuns(master, (job(7, task_number=2, pe_taskid="1.n2", hostname="n2.x"),))
    )
    assert (whole.job_id, whole.array_job_id, whole.array_task_id) == (7000002, 7, 2)
    assert (whole.time_limit.value, whole.job_state, whole.exit_code) == (2, "TIMEOUT", 137)
    assert (whole.nodes, whole.requested_node_count, whole.requested_cpus) == (("n1", "n2"), 2, 4)
    assert whole.requested_memory_per_node == 4 * 2**20
    assert whole.allocated_resources == "cpu=4,mem=8388608K,gres/gpu=4"
    assert (whole.account, whole.partition, whole.reservation) == ("astro", "all.q", "3")
    assert whole.sacct is not None
    assert (whole.sacct.ElapsedRaw, whole.sacct.UserCPU, whole.sacct.AveCPU) == (90, 2, 80)
    assert (whole.sacct.MaxVMSize, whole.sacct.MaxRSS) == (4, 2048)
    assert (task.job_step, task.nodes) == ("1.n2", ("n2",))


def test_a_job_that_never_began_is_pending_without_times() -> None:
    """It is pending, without made-up times."""
    (found,) = sonar(JobRuns(job(failed=8, start_time=None, end_time=None)))
    assert (found.job_state, found.start_time, found.end_time) == ("PENDING", "", "")
