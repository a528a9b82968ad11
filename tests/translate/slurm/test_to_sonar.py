"""Slurm's records as Sonar's, in the specification's units."""

import pytest
from msgspec.structs import replace

from ccpipe.config import Site
from ccpipe.errors import ConfigError
from ccpipe.formats import sonar
from ccpipe.formats.slurm.cluster import Cluster, Node, Partition, read_sinfo
from ccpipe.formats.slurm.records import LiveJob, SacctRow, SlurmId
from ccpipe.formats.slurm.text import SacctReader, read_scontrol
from ccpipe.jobs import Job, Jobs
from ccpipe.translate.slurm.jobs import job_of_row as as_job
from ccpipe.translate.slurm.to_sonar import (
    SlurmToSonar,
    cluster_envelope,
    job_of_live,
    job_of_row,
    jobs_envelope,
    spec_state,
)
from tests.formats.slurm.captured import UTC, captured, names, raw_cells, raw_milliseconds

TIME = 1795170834 * 10**9


@pytest.mark.parametrize("name", names("sacct/*sonar_fields*noconvert.txt"))
def test_every_captured_row_makes_record(name: str) -> None:
    payload = captured(name)
    reading = SacctReader(zone=UTC).read(payload)
    assert not reading.rejected
    jobs = [spec_state(job_of_row(row)) for row in reading.records]
    line = sonar.encode(jobs_envelope(jobs, cluster="fox", time=TIME))
    decoded = sonar.decode(line, strict=True)
    assert not decoded.rejected
    for column in ("UserCPU", "SystemCPU"):
        texts = raw_cells(payload, column)
        assert len(jobs) == len(texts)
        exact = [raw_milliseconds(text) if text else 0 for text in texts]
        sent = [1000 * getattr(job.sacct, column) for job in jobs]
        assert all(abs(a - b) <= 500 for a, b in zip(exact, sent, strict=True))


def test_record_has_units_of_specification() -> None:
    """Minutes, KiB rounded up, seconds; the signal is in the exit code."""
    row = SacctRow(
        SlurmId(3), job_name="multi", user="alice", state="FAILED", submit=TIME, start=TIME,
        end=TIME + 60 * 10**9, suspended=20, time_limit=90 * 60.0, node_list="c[1-2,5],d1",
        priority=0, req_cpus=4, req_mem=800 * 2**20, req_mem_of="job", req_nodes=2, exit_code=0,
        exit_signal=11, max_rss=1025, ave_disk_read=10**6, tres_usage_in_ave="fs/disk=146462",
    )  # fmt: skip
    job = job_of_row(row)
    assert job.nodes == ("c[1-2,5]", "d1")
    assert job.time_limit.value == 90
    assert job.priority.value == 0
    assert job.requested_memory_per_node == 400 * 1024
    assert job.exit_code == 128 + 11
    assert job.submit_time == "2026-11-20T10:33:54Z"
    assert job.suspend_time == 20
    assert job.sacct is not None
    assert job.sacct.ElapsedRaw == 40
    assert job.sacct.MaxRSS == 2
    assert job.sacct.AveDiskRead == 144
    assert job_of_row(replace(row, time_limit=float("inf"))).time_limit == sonar.INFINITE


def test_record_omits_expected_times() -> None:
    pending = LiveJob(SlurmId(3), state="PENDING", start=TIME, end=TIME, time_limit=60.0)
    assert (job_of_live(pending).start_time, job_of_live(pending).end_time) == ("", "")
    running = LiveJob(SlurmId(3), state="RUNNING", start=TIME, end=TIME, node_list="c1")
    assert job_of_live(running).start_time
    assert not job_of_live(running).end_time


def test_record_has_allocation_from_scontrol() -> None:
    """``gres_detail`` has scontrol's report of a running job's CPUs and memory."""
    payload = captured("scontrol/show_job_d_running.txt")
    (found,) = read_scontrol(payload, zone=UTC).records
    job = job_of_live(found)
    assert job.gres_detail == ("OverSubscribe=OK", "Nodes=c1 CPU_IDs=1-2 Mem=600 GRES=")
    assert job.allocated_resources == "cpu=2,mem=600M,node=1,billing=2"
    assert job.requested_memory_per_node == 2 * 300 * 1024
    row = SacctRow(SlurmId(35), oversubscribe="OK", allocation=found.allocation)
    assert job_of_row(row).gres_detail == job.gres_detail


def test_pending_array_tasks_are_one_record() -> None:
    """They have the array's number, and the first task's index."""
    job = job_of_live(LiveJob(SlurmId.read("36_[0-9%2]", "36"), state="PENDING"))
    assert (job.job_id, job.array_job_id, job.array_task_id) == (36, 36, 0)


@pytest.mark.parametrize(
    ("state", "end", "expected"),
    [
        ("COMPLETED", "x", "COMPLETED"), ("NODE_FAIL", "x", "FAILED"),
        ("PREEMPTED", "x", "CANCELLED"), ("REQUEUED", "x", "CANCELLED"),
        ("REQUEUED", "", "PENDING"), ("SUSPENDED", "", "RUNNING"), ("COMPLETING", "", "RUNNING"),
    ],
)  # fmt: skip
def test_states_map_to_specification(state: str, end: str, expected: str) -> None:
    job = sonar.SlurmJob(job_id=1, job_state=state, end_time=end)
    assert spec_state(job).job_state == expected


def test_cluster_groups_nodes_by_state() -> None:
    cluster = Cluster(
        [Node("c1", ("IDLE",)), Node("c2", ("IDLE",)), Node("c3", ("DOWN", "DRAIN"))],
        [Partition("normal", "c[1-3]"), Partition("empty", None)],
    )  # fmt: skip
    envelope = cluster_envelope(cluster, name="fox", time=TIME)
    assert not sonar.decode(sonar.encode(envelope), strict=True).rejected
    assert envelope.data is not None
    attributes = envelope.data.attributes
    assert [(p.name, p.nodes) for p in attributes.partitions] == [
        ("normal", ("c[1-3]",)), ("empty", ()),
    ]  # fmt: skip
    assert [(n.names, n.states) for n in attributes.nodes] == [
        (("c[1-2]",), ("IDLE",)), (("c3",), ("DOWN", "DRAIN")),
    ]  # fmt: skip


def test_captured_cluster_conforms_to_specification() -> None:
    cluster = read_sinfo(captured("sinfo/phase1_linux.all_fields.txt"))
    envelope = cluster_envelope(cluster, name="fox", time=TIME)
    assert not sonar.decode(sonar.encode(envelope), strict=True).rejected


def test_batch_makes_envelopes_of_jobs_cluster_and_errors() -> None:
    rows = [SacctRow(SlurmId(n), state="NODE_FAIL", end=TIME) for n in range(1, 4)]
    jobs = Jobs(
        [as_job(row, "fox") for row in rows],
        time=TIME,
        cluster=Cluster([Node("c1", ("IDLE",))]),
        errors=["sacct: timed out"],
    )
    translator = SlurmToSonar(site=Site(cluster="fox", hostname="m"), states="spec", batch_size=2)
    first, second, cluster, error = translator.feed(jobs)
    found = [job for e in (first, second) if isinstance(e.data, sonar.JobsData)
             for job in e.data.attributes.slurm_jobs]  # fmt: skip
    assert [(job.job_id, job.job_state) for job in found] == [(n, "FAILED") for n in (1, 2, 3)]
    assert isinstance(cluster.data, sonar.ClusterData)
    assert error.errors == (
        sonar.ErrorObject("2026-11-20T10:33:54Z", "sacct: timed out", "fox", "m"),
    )
    assert translator.feed(Jobs(time=TIME)) == []


def test_translator_rejects_jobs_of_other_schedulers() -> None:
    others = [
        Job(cluster="fox", id=1, start_metadata={"jobScript": "secret"}),
        Job(cluster="fox", id=2, raw={"jobnumber": 2}),
    ]
    slurms = as_job(SacctRow(SlurmId(3), state="COMPLETED", end=TIME), "fox")
    made = SlurmToSonar(site=Site(cluster="fox")).feed(Jobs([*others, slurms], time=TIME))
    (envelope,) = made
    assert isinstance(envelope.data, sonar.JobsData)
    assert [job.job_id for job in envelope.data.attributes.slurm_jobs] == [3]
    first, second = made.rejected
    assert first.reason.startswith("job 1 is not Slurm's")
    assert first.original == b'{"cluster":"fox","id":1}'
    assert second.original == b'{"jobnumber":2}'


def test_batch_size_must_be_positive() -> None:
    with pytest.raises(ConfigError, match="batch_size"):
        SlurmToSonar(site=Site(cluster="fox"), batch_size=0)
