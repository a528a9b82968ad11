"""Slurm's records as jobs."""

import pytest
from msgspec.structs import replace

from ccpipe.formats.slurm.records import Allocation, LiveJob, SacctRow, SlurmId
from ccpipe.formats.slurm.text import SacctReader, SqueueReader, read_scontrol
from ccpipe.jobs import PENDING, REQUEUED, RUNNING, Job, JobNode
from ccpipe.jobs.pending import PendingJob
from ccpipe.translate.slurm.jobs import job_of_live, job_of_row, pending_of_live
from ccpipe.translate.slurm.to_sonar import slurm_job
from ccpipe.translate.sonar.sonar_to_cc import job_of
from tests.formats.slurm.captured import UTC, captured, names

TIME = 1795170834 * 10**9
ROW = SacctRow(
    SlurmId(7), state="COMPLETED", user="alice", submit=TIME, start=TIME, end=TIME + 9 * 10**9,
    node_list="c1",
)  # fmt: skip


def captured_jobs() -> list[Job]:
    printed = read_scontrol(captured("scontrol/phase1_linux.show_job_d.txt"), zone=UTC).records
    details = {job.id.job: job for job in printed}
    jobs = []
    for row in SacctReader(zone=UTC).read(captured("sacct/phase1_linux.all_fields_D.txt")).records:
        known = details.get(row.id.job)
        jobs.append(job_of_row(row, "fox"))
        if known and not row.id.step:
            shared = known.oversubscribe
            whole = replace(row, allocation=known.allocation, oversubscribe=shared)
            jobs.append(job_of_row(whole, "fox"))
    for name in names("snapshots/squeue*"):
        for live in SqueueReader(zone=UTC).read(captured(name)).records:
            known = details.get(live.id.job, live)
            whole_job = replace(live, allocation=known.allocation, alloc_tres=known.alloc_tres)
            jobs.append(job_of_live(whole_job, "fox"))
    return jobs


def test_slurm_and_sonar_records_make_equal_jobs() -> None:
    """An event is the same, whether it is made of Slurm's record or of Sonar's."""
    jobs = [job for job in captured_jobs() if not job.step]
    assert any(node.hwthreads for job in jobs for node in job.nodes)
    for job in jobs:
        assert replace(job, raw=None, usage=None) == job_of("fox", slurm_job(job))


@pytest.mark.parametrize(
    ("state", "expected"),
    [("COMPLETED", "completed"), ("NODE_FAIL", "node_fail"), ("REQUEUED", REQUEUED),
     ("SUSPENDED", RUNNING), ("REVOKED", PENDING)],
)  # fmt: skip
def test_states_map_to_lifecycle_states(state: str, expected: str) -> None:
    """A run that is requeued has ended, its job has not."""
    assert job_of_row(replace(ROW, state=state), "fox").state == expected


def test_job_omits_expected_times() -> None:
    pending = LiveJob(SlurmId(3), state="PENDING", start=TIME, end=TIME, time_limit=60.0)
    job = job_of_live(pending, "fox")
    assert (job.state, job.start, job.end, job.walltime) == (PENDING, 0, 0, 60)
    job = job_of_live(replace(pending, state="RUNNING", node_list="c1"), "fox")
    assert (job.state, job.start, job.end) == (RUNNING, TIME, 0)


def test_nodes_have_resources_of_job() -> None:
    """One that cannot be read has its name only; a job of one node has all of its resources."""
    parts = (
        Allocation(node_list="c[1-2]", cpu_ids="0-1", memory=2**30, gres="gpu:a100:1(IDX:3)"),
        Allocation(node_list="c3", cpu_ids="x"),
    )
    job = job_of_row(replace(ROW, node_list="c[1-3]", allocation=parts), "fox")
    assert job.nodes == (
        *(JobNode(name, (0, 1), ("3",), cpus=2, gpus=1, memory=1024) for name in ("c1", "c2")),
        JobNode("c3"),
    )
    job = job_of_row(replace(ROW, alloc_tres="cpu=2,mem=2G,gres/gpu=1"), "fox")
    assert job.nodes == (JobNode("c1", cpus=2, gpus=1, memory=2048),)
    assert (job.hwthreads, job.accelerators) == (2, 1)


def test_job_with_invalid_node_list_has_no_nodes() -> None:
    assert job_of_row(replace(ROW, node_list="c[1-"), "fox").nodes == ()


def test_step_has_id_and_raw_record() -> None:
    row = replace(ROW, id=SlurmId(7, "batch"))
    job = job_of_row(row, "fox")
    assert (job.id, job.step, job.submit, job.raw) == (7, "batch", TIME, row)


def test_pending_job_has_what_was_requested() -> None:
    live = LiveJob(
        SlurmId.read("36_[0-9%2]", "36"), state="PENDING", user="alice", account="physics",
        partition="main,long", submit=TIME, nodes=2, cpus=8, time_limit=90.0, name="a",
        reason="Resources",
    )  # fmt: skip
    assert pending_of_live(live, "fox") == PendingJob(
        cluster="fox", id=36, user="alice", name="a", project="physics", partition="main,long",
        submit=TIME // 10**9, nodes=2, hwthreads=8, walltime=120, tasks=10, reason="Resources",
    )  # fmt: skip


def test_job_whose_nodes_boot_waits_for_them() -> None:
    """Slurm has no reason then."""
    assert pending_of_live(LiveJob(SlurmId(1), state="CONFIGURING"), "c").reason == "Configuring"
