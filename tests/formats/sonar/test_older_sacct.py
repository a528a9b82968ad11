"""Jobs with sacct's columns: each goes to its field, or stays where it is."""

from typing import Any

import pytest

from ccpipe.formats.sonar import ExtendedUint, SacctData, SlurmJob
from tests.formats.sonar import examples
from tests.formats.sonar.examples import changed, one

OLD_JOB = {
    "JobID": "1467073_1.extern",
    "JobIDRaw": "1467074.extern",
    "User": "moonunit",
    "Account": "ec666",
    "State": "CANCELLED by 1234",
    "Start": "2025-02-01T10:00:00+01:00",
    "End": "Unknown",
    "Submit": "2025-02-01T09:00:00+01:00",
    "AveCPU": "1-02:03:04",
    "AveRSS": "1.5M",
    "AveDiskRead": "123",
    "MaxRSS": "",
    "ElapsedRaw": "113062",
    "UserCPU": "14:50.006",
    "ExitCode": "3:0",
    "TimelimitRaw": "20160",
    "NodeList": "c1-[1-3,5],bigmem-1",
    "Priority": "1001",
    "ReqMem": "2G",
    "ReqCPUS": "22",
    "Layout": "Cyclic",
    "JobName": "blåbær",
    "AllocTRES": "cpu=1",
}


def envelope_of(*jobs: dict[str, Any]) -> str:
    text = changed(examples.JOBS, "data.type", "slurm_jobs")
    return changed(text, "data.attributes.slurm_jobs", list(jobs))


def test_saccts_columns_go_to_the_fields_of_today() -> None:
    """Numbers, times, volumes, durations and lists of nodes are read."""
    envelope = one(envelope_of(OLD_JOB))
    assert envelope.unknown == {}
    assert envelope.data.attributes.slurm_jobs[0] == SlurmJob(
        job_id=1467074,
        job_step="extern",
        job_name="blåbær",
        job_state="CANCELLED",
        array_job_id=1467073,
        array_task_id=1,
        user_name="moonunit",
        account="ec666",
        submit_time="2025-02-01T09:00:00+01:00",
        time_limit=ExtendedUint(20160),
        nodes=("c1-[1-3,5]", "bigmem-1"),
        priority=ExtendedUint(1001),
        distribution="Cyclic",
        requested_cpus=22,
        requested_memory_per_node=2 * 2**20,
        start_time="2025-02-01T10:00:00+01:00",
        exit_code=3,
        sacct=SacctData(
            AllocTRES="cpu=1",
            AveCPU=86400 + 2 * 3600 + 3 * 60 + 4,
            AveDiskRead=1,
            AveRSS=1536,
            ElapsedRaw=113062,
            UserCPU=14 * 60 + 50,
        ),
    )


def test_minutes_stay_minutes_whoever_reads() -> None:
    """Sacct's limit is in minutes, also where Sonar's own numbers are expected."""
    for profile in ("spec", "sonar"):
        job = one(envelope_of(OLD_JOB), profile=profile).data.attributes.slurm_jobs[0]
        assert job.time_limit == ExtendedUint(20160)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ExitCode", "0:15"),
        ("Start", "2025-02-01T10:00:00"),
        ("TimelimitRaw", "soon"),
        ("NodeList", "None assigned"),
        ("ReqMem", "4Gn"),
        ("ReqCPUS", "\uff11"),
        ("ElapsedRaw", "99999999999999999999"),
        ("AveRSS", "999999999999999P"),
        ("AveCPU", "1:2:3:4"),
    ],
)
def test_what_cannot_be_read_stays_where_it_is(name: str, value: str) -> None:
    """Nothing is lost, and nothing becomes zero unseen."""
    envelope = one(envelope_of({**OLD_JOB, name: value}))
    assert envelope.unknown == {("data", "attributes", "slurm_jobs", 0, name): value}


def test_a_number_that_is_none_stays_too() -> None:
    """Without it the job has no number: a strict reader says so, a tolerant one keeps it."""
    envelope = one(envelope_of({**OLD_JOB, "JobID": "x"}))
    assert envelope.data.attributes.slurm_jobs[0].job_id == 0
    assert envelope.unknown[("data", "attributes", "slurm_jobs", 0, "JobID")] == "x"
