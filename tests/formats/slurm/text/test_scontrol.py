"""scontrol's text: every captured job, node and partition, on several lines or on one."""

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.formats.slurm.job_id import SlurmId
from ccpipe.formats.slurm.records import Allocation
from ccpipe.formats.slurm.text.scontrol import (
    read_jobs,
    read_nodes,
    read_partitions,
)
from ccpipe.formats.slurm.timestamp import SECOND
from tests.formats.slurm.agreement import differences
from tests.formats.slurm.captured import UTC, captured, names

JOBS = names("scontrol/*job*.txt")
ONLY_IN_DETAIL = {"allocation", "derived_exit_code", "derived_exit_signal"}


@pytest.mark.parametrize("name", JOBS)
def test_every_captured_job_is_read(name: str) -> None:
    """With the number, state and run time that the raw text has."""
    payload = captured(name)
    reading = read_jobs(payload, zone=UTC)
    assert reading.rejected == []
    raw = payload.decode()
    assert [str(job.id.job) for job in reading.records] == re.findall(
        r"^JobId=(\d+)", raw, re.MULTILINE
    )
    assert [job.state for job in reading.records] == re.findall(r"JobState=(\w+)", raw)
    clocks = re.findall(r"RunTime=(\d\d):(\d\d):(\d\d)", raw)
    seconds = sum(int(h) * 3600 + int(m) * 60 + int(s) for h, m, s in clocks)
    assert sum(job.run_time or 0 for job in reading.records) == seconds > 0


@pytest.mark.parametrize("phase", ["phase1_linux", "phase3_pss_influx"])
def test_one_line_says_what_several_say(phase: str) -> None:
    """But for what only ``-d`` prints: a name with a newline, too."""
    several = read_jobs(captured(f"scontrol/{phase}.show_job_d.txt"), zone=UTC).records
    one = read_jobs(captured(f"scontrol/{phase}.show_job_oneline.txt"), zone=UTC).records
    assert differences(several, one, lambda job: job.id).keys() == ONLY_IN_DETAIL
    nodes, partitions = f"scontrol/{phase}.show_node", f"scontrol/{phase}.show_partition"
    assert read_nodes(captured(f"{nodes}.txt"), zone=UTC) == read_nodes(
        captured(f"{nodes}_oneline.txt"), zone=UTC
    )
    assert read_partitions(captured(f"{partitions}.txt")) == read_partitions(
        captured(f"{partitions}_oneline.txt")
    )


def test_a_job_that_runs() -> None:
    """With what it has on its node."""
    (job,) = read_jobs(captured("scontrol/show_job_d_running.txt"), zone=UTC).records
    assert (job.id, job.name, job.user, job.uid) == (SlurmId(35), "live", "alice", 2001)
    assert (job.state, job.run_time, job.time_limit) == ("RUNNING", 28, 180)
    assert job.start == 1795171041 * SECOND
    assert (job.nodes, job.cpus, job.tasks, job.batch_host) == (1, 2, 2, "c1")
    assert (job.memory_per_cpu, job.memory_per_node) == (300 * 2**20, None)
    assert (job.alloc_tres, job.req_tres) == ("cpu=2,mem=600M,node=1,billing=2", None)
    assert job.allocation == (
        Allocation(node_list="c1", cpu_count=2, cpu_ids="1-2", memory=600 * 2**20),
    )
    assert (job.reason, job.dependency, job.command) == (None, None, None)


def test_a_job_that_is_suspended() -> None:
    """Since when, and how long it had run before."""
    (job,) = read_jobs(captured("scontrol/show_job_suspended.txt"), zone=UTC).records
    assert (job.state, job.priority) == ("SUSPENDED", 0)
    assert (job.suspended_at, job.ran_before_suspension) == (1795170895 * SECOND, 21)


def test_arrays_heterogeneous_jobs_and_names() -> None:
    """As squeue's JSON of the same moment has them, which is tested there."""
    found = read_jobs(captured("scontrol/phase1_linux.show_job_d.txt"), zone=UTC).records
    by_id = {job.id.job: job for job in found}
    assert by_id[13].id == SlurmId(13, array_job=13, array_task=6)
    assert by_id[36].id == SlurmId(36, array_job=36, pending_tasks="0-9%2")
    assert by_id[18].id == SlurmId(18, het_job=17, het_offset=1)
    assert by_id[39].name == "line1\nline2\ttab"
    assert by_id[39].std_out == "/home/slurmrun/jobs/line1\nline2\ttab-39.out"
    assert (by_id[10].name, by_id[10].comment) == (
        'later job|pipe "q" é',
        'a|b;c,d "quote" ünï',
    )
    assert (by_id[11].time_limit, by_id[41].time_limit) == (math.inf, 93840)


def test_gpus_of_a_job() -> None:
    """By index, of each node."""
    payload = (
        b"JobId=3 JobName=a\n   JobState=RUNNING\n   NodeList=g[1-2]\n   JOB_GRES=gpu:a100:3\n"
    )
    payload += b"     Nodes=g1 CPU_IDs=0-3 Mem=0 GRES=gpu:a100:2(IDX:0-1)\n"
    payload += b"     Nodes=g2 CPU_IDs=0,2 Mem=0 GRES=gpu:a100:1(IDX:3)\n"
    (job,) = read_jobs(payload).records
    assert [(part.node_list, part.cpu_count, part.gres) for part in job.allocation] == [
        ("g1", 4, "gpu:a100:2(IDX:0-1)"),
        ("g2", 2, "gpu:a100:1(IDX:3)"),
    ]


def test_a_job_of_later_versions() -> None:
    """Resources that were requested and allocated stand apart."""
    payload = b"JobId=3 JobName=a\n   JobState=PENDING Reason=Priority FailedNode=c1\n"
    payload += b"   ReqTRES=cpu=4\n   AllocTRES=(null)\n   Licenses=a LicensesAlloc=(null)\n"
    (job,) = read_jobs(payload).records
    assert (job.req_tres, job.alloc_tres, job.licenses) == ("cpu=4", None, "a")


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (b"JobId=3 JobName=a", "no JobState: the record is cut off"),
        (b"JobId=x JobName=a\n   JobState=RUNNING", "not a job's number: 'x'"),
        (b"JobId=3 JobState=RUNNING RunTime=soon", "RunTime: not a duration: 'soon'"),
        (b"JobId=3 JobState=RUNNING StartTime=2026-11-20T10:32:28", "no zone to read it in"),
        (b"JobId=3 JobState=RUNNING JobState=FAILED", "JobState stands twice"),
        (b"JobId=3 JobState=RUNNING Nodes=c1 CPU_IDs=0-x", "not a range of numbers: '0-x'"),
    ],
)
def test_a_bad_job_costs_itself_only(record: bytes, reason: str) -> None:
    """It is named, and the next one is read."""
    reading = read_jobs(record + b"\n\nJobId=4 JobName=b\n   JobState=RUNNING\n")
    assert [job.id for job in reading.records] == [SlurmId(4)]
    assert reason in reading.rejected[0].reason


@pytest.mark.parametrize("name", names("scontrol/*show_node*.txt"))
def test_every_captured_node_is_read(name: str) -> None:
    """With all the words of its state."""
    payload = captured(name)
    reading = read_nodes(payload, zone=UTC)
    assert reading.rejected == []
    states = re.findall(r" State=(\S+)", payload.decode())
    assert ["+".join(node.states) for node in reading.records] == states
    assert len(states) == 13


def test_why_a_node_is_drained() -> None:
    """By whom and since when, where scontrol knows."""
    found = read_nodes(captured("scontrol/phase1_linux.show_node.txt"), zone=UTC).records
    by_name = {node.name: node for node in found}
    assert (by_name["c5"].reason, by_name["c5"].reason_user, by_name["c5"].reason_time) == (
        "maint: fan 2, see INC-17",
        "root",
        1795171030 * SECOND,
    )
    assert (by_name["big01-1"].reason, by_name["big01-1"].reason_user) == ("rack not powered", None)
    assert by_name["c1"].reason is None
    assert by_name["c1"].operating_system == "Linux 6.18.44-fc-v657 #1 SMP PREEMPT_DYNAMIC @0"
    assert (by_name["c1"].cpu_load, by_name["big01-1"].cpu_load) == (3.95, None)
    assert (by_name["gpu-1"].gres, by_name["gpu-1"].memory) == ("gpu:a100:2", 6000 * 2**20)


def test_a_reason_of_several_lines() -> None:
    """Who set it stands behind the first."""
    payload = b"NodeName=c1\n   State=DOWN\n   Reason=fan [root@1795171030]\n       broken\n"
    (node,) = read_nodes(payload).records
    assert (node.reason, node.reason_user) == ("fan\n       broken", "root")
    assert node.reason_time == 1795171030 * SECOND


@pytest.mark.parametrize("name", names("scontrol/*show_partition*.txt"))
def test_every_captured_partition_is_read(name: str) -> None:
    """With its nodes, limits and whether it is the default."""
    reading = read_partitions(captured(name))
    assert reading.rejected == []
    by_name = {partition.name: partition for partition in reading.records}
    assert set(by_name) == {"normal", "accel", "bigmem", "devel", "drained"}
    assert [name for name, partition in by_name.items() if partition.is_default] == ["normal"]
    assert sum(partition.total_nodes or 0 for partition in reading.records) == 16
    assert (by_name["accel"].max_time, by_name["normal"].max_time) == (86400, math.inf)
    assert (by_name["normal"].default_time, by_name["accel"].default_time) == (1800, None)
    assert by_name["drained"].state == "DRAIN"
    assert by_name["normal"].allow_accounts is None


KEYS = st.sampled_from(["JobState", "UserId", "ArrayJobId", "ArrayTaskId", "StartTime", "ExitCode",
                        "NumNodes", "TRES", "HetJobId", "State", "Reason", "CPUTot"])  # fmt: skip
VALUES = st.sampled_from(["RUNNING", "(null)", "N/A", "3", "0:9", "a(1)", "DOWN"]) | st.text(
    max_size=6
)


@given(st.dictionaries(KEYS, VALUES), st.sampled_from(["JobId", "NodeName", "PartitionName"]))
def test_any_values_are_a_record_or_rejected(values: dict[str, str], first: str) -> None:
    """Whatever stands behind whichever key."""
    pairs = "\n   ".join(f"{key}={value}" for key, value in values.items())
    payload = f"{first}=3\n   {pairs}\n".encode("utf-8", "surrogatepass")
    for reading in (
        read_jobs(payload, zone=UTC),
        read_nodes(payload, zone=UTC),
        read_partitions(payload),
    ):
        assert all(bad.reason for bad in reading.rejected)
