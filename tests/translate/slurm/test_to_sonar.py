"""Slurm's records as Sonar's, in the specification's units."""

import pytest
from msgspec.structs import replace

from ccpipe.formats.slurm import (
    Cluster,
    LiveJob,
    Node,
    Partition,
    SacctRow,
    SlurmId,
    read_sacct,
    read_sinfo,
    read_squeue,
    scontrol,
)
from ccpipe.formats.sonar import INFINITE, SlurmJob, decode, encode, timestamp
from ccpipe.translate.slurm.to_sonar import (
    cluster_envelope,
    detail_of,
    has_started,
    job_of_live,
    job_of_row,
    jobs_envelope,
    pending_if_requeued,
    spec_state,
)
from tests.formats.slurm.captured import UTC, captured, names, raw_cells, raw_milliseconds

TIME = 1795170834 * 10**9


@pytest.mark.parametrize("name", names("sacct/*sonar_fields*noconvert.txt"))
def test_every_captured_row_is_a_record(name: str) -> None:
    """No row is dropped, each conforms, and the sums of CPU time are those of the raw text."""
    payload = captured(name)
    reading = read_sacct(payload, zone=UTC)
    assert not reading.rejected
    jobs = [spec_state(job_of_row(row)) for row in reading.records]
    line = encode(jobs_envelope(jobs, cluster="fox", time=TIME))
    decoded = decode(line, strict=True)
    assert not decoded.rejected
    for column in ("UserCPU", "SystemCPU"):
        texts = raw_cells(payload, column)
        assert len(jobs) == len(texts)
        exact = [raw_milliseconds(text) if text else 0 for text in texts]
        sent = [1000 * getattr(job.sacct, column) for job in jobs]
        assert all(abs(a - b) <= 500 for a, b in zip(exact, sent, strict=True))


def test_units_are_the_specifications() -> None:
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
    assert job_of_row(replace(row, time_limit=float("inf"))).time_limit == INFINITE


def test_running_row_has_nothing_that_changes() -> None:
    """Its elapsed and suspended time would have it sent at each poll."""
    row = SacctRow(SlurmId(3), state="SUSPENDED", start=TIME, elapsed=30, suspended=7)
    job = job_of_row(row)
    assert (job.suspend_time, job.sacct and job.sacct.ElapsedRaw, job.end_time) == (0, 0, "")


def test_expected_times_are_left_out() -> None:
    """A pending job has no start yet and a running one no end."""
    pending = LiveJob(SlurmId(3), state="PENDING", start=TIME, end=TIME, time_limit=60.0)
    assert (job_of_live(pending).start_time, job_of_live(pending).end_time) == ("", "")
    running = LiveJob(SlurmId(3), state="RUNNING", start=TIME, end=TIME, node_list="c1")
    assert job_of_live(running).start_time
    assert not job_of_live(running).end_time


@pytest.mark.parametrize(
    ("start", "end", "limit", "is_requeued"),
    [
        ("04:05:33", "04:15:33", "10:00", True),
        ("04:12:06", "NONE", "UNLIMITED", True),
        ("N/A", "N/A", "10:00", True),
        ("04:05:15", "04:05:18", "10:00", False),
        ("03:55:33", "04:05:33", "10:00", False),
        ("04:05:15", "04:05:34", "10:00", False),
        ("04:05:15", "04:05:18", "UNLIMITED", False),
    ],
)
def test_requeued_job_is_pending_while_its_last_run_completes(
    start: str, end: str, limit: str, is_requeued: bool
) -> None:
    """As squeue 22.05 prints it during an epilog: old nodes, start now, end at the time limit.

    A run that completes ended already, at its time limit, too, and also where slurmctld's clock is
    ahead by a second.
    """
    header = b"JOBID|STATE|SUBMIT_TIME|START_TIME|END_TIME|NODELIST|TIME_LIMIT\n"
    day = "2026-11-23T"
    begin, until = (f"{day}{text}" if ":" in text else text for text in (start, end))
    row = f"1|COMPLETING|{day}04:05:15|{begin}|{until}|c1|{limit}"
    (found,) = read_squeue(header + row.encode(), zone=UTC).records
    now = timestamp.parse(f"{day}04:05:33Z")
    assert now is not None
    job = pending_if_requeued(found, now)
    record = job_of_live(job)
    if is_requeued:
        assert (job.state, record.start_time, record.nodes) == ("PENDING", "", ())
    else:
        assert job == found
        assert has_started(job)


def test_allocation_is_scontrols() -> None:
    """What scontrol says of a running job's CPUs and memory is in ``gres_detail``."""
    payload = captured("scontrol/show_job_d_running.txt")
    (found,) = scontrol.read_jobs(payload, zone=UTC).records
    detail = detail_of(found)
    job = job_of_live(
        LiveJob(SlurmId(35), state="RUNNING", start=found.start, node_list="c1"), detail
    )
    assert job.gres_detail == ("OverSubscribe=OK", "Nodes=c1 CPU_IDs=1-2 Mem=600 GRES=")
    assert job.allocated_resources == "cpu=2,mem=600M,node=1,billing=2"
    assert job.requested_memory_per_node == 2 * 300 * 1024 or found.cpus == 2


def test_pending_tasks_are_one_record() -> None:
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
def test_states_of_the_specification(state: str, end: str, expected: str) -> None:
    """The specification lists eight states."""
    job = SlurmJob(job_id=1, job_state=state, end_time=end)
    assert spec_state(job).job_state == expected


def test_cluster_groups_nodes_by_state() -> None:
    """States are split and in capitals; a partition may have no nodes."""
    cluster = Cluster(
        [Node("c1", ("IDLE",)), Node("c2", ("IDLE",)), Node("c3", ("DOWN", "DRAIN"))],
        [Partition("normal", "c[1-3]"), Partition("empty", None)],
    )  # fmt: skip
    envelope = cluster_envelope(cluster, name="fox", time=TIME)
    assert not decode(encode(envelope), strict=True).rejected
    assert envelope.data is not None
    attributes = envelope.data.attributes
    assert [(p.name, p.nodes) for p in attributes.partitions] == [
        ("normal", ("c[1-3]",)), ("empty", ()),
    ]  # fmt: skip
    assert [(n.names, n.states) for n in attributes.nodes] == [
        (("c[1-2]",), ("IDLE",)), (("c3",), ("DOWN", "DRAIN")),
    ]  # fmt: skip


def test_captured_cluster_conforms() -> None:
    """Every node of a real cluster has its states."""
    cluster = read_sinfo(captured("sinfo/phase1_linux.all_fields.txt"))
    envelope = cluster_envelope(cluster, name="fox", time=TIME)
    assert not decode(encode(envelope), strict=True).rejected
