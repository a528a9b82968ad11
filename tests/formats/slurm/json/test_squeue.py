"""The JSON of squeue, scontrol and slurmrestd, in both dialects."""

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.formats.nodelist import expand
from ccpipe.formats.slurm.job_id import SlurmId
from ccpipe.formats.slurm.json.squeue import read_json
from ccpipe.formats.slurm.records import Allocation, LiveJob
from ccpipe.formats.slurm.resources import index_list
from ccpipe.formats.slurm.text import scontrol, squeue
from ccpipe.formats.slurm.timestamp import SECOND
from tests.formats.slurm.agreement import differences
from tests.formats.slurm.captured import UTC, captured, names

FILES = [
    *names("squeue/*.json"),
    "slurmrestd/slurm_v0.0.38_jobs.json",
    "modern24.11/scontrol_show_job_running.json",
    "modern24.11/squeue/squeue.json",
    "modern24.11/squeue/squeue_running.json",
]


def jobs(name: str) -> list[LiveJob]:
    """Read a captured document, none of whose jobs may be dropped."""
    reading = read_json(captured(name))
    assert reading.rejected == []
    return reading.records


@pytest.mark.parametrize("name", FILES)
def test_every_captured_job_is_read(name: str) -> None:
    """With its number, state and user as the raw document has them."""
    raw = json.loads(captured(name))["jobs"]
    found = jobs(name)
    assert [job.id.job for job in found] == [job["job_id"] for job in raw]
    states = [job["job_state"] for job in raw]
    words = [[state] if isinstance(state, str) else state for state in states]
    assert [[job.state, *job.state_flags] for job in found] == words
    assert [job.user for job in found] == [job["user_name"] for job in raw]


def test_scontrol_and_json_of_the_same_moment_agree() -> None:
    """All fields of 41 jobs in all states, but for what one of them does not print."""
    text = scontrol.read_jobs(captured("scontrol/phase1_linux.show_job_d.txt"), zone=UTC).records
    found = differences(text, jobs("squeue/phase1_linux.json"), lambda job: job.id)
    only_in_text = {"run_time", "nice", "cpus_per_task", "std_err", "time_limit",
                    "derived_exit_code", "derived_exit_signal"}  # fmt: skip
    only_in_json = {"cluster", "req_tres", "description"}
    assert found.keys() == only_in_text | only_in_json | {"allocation", "reason", "std_out"}
    for field in only_in_text:
        assert all(theirs is None for _, _, theirs in found[field])
    for field in only_in_json:
        assert all(mine is None for _, mine, _ in found[field])
    assert [mine for _, mine, _ in found["time_limit"]] == [math.inf]
    assert all("%x" in str(theirs) for _, _, theirs in found["std_out"])


def test_scontrols_cpus_are_the_jsons_cores() -> None:
    """On nodes with one socket and one thread for each core both numbers are the same."""
    text = scontrol.read_jobs(captured("scontrol/phase1_linux.show_job_d.txt"), zone=UTC).records
    by_id = {job.id: job for job in jobs("squeue/phase1_linux.json")}
    compared = 0
    for job in text:
        cores = {part.node_list: (part.cores, part.memory) for part in by_id[job.id].allocation}
        for part in job.allocation:
            expected = tuple((0, cpu) for cpu in index_list(part.cpu_ids))
            nodes = [name for name in cores if name in expand(part.node_list)]
            assert [cores[name] for name in nodes] == [(expected, part.memory)] * len(nodes)
            compared += len(nodes)
    assert compared == sum(len(job.allocation) for job in by_id.values()) > 20


def test_squeues_text_and_json_of_the_same_moment_agree() -> None:
    """The jobs that waited, in the fields that both have."""
    text = squeue.read(captured("squeue/phase1_linux.all_fields.txt"), zone=UTC).records
    waiting = {job.id.job for job in text}
    document = [job for job in jobs("squeue/phase1_linux.json") if job.id.job in waiting]
    found = differences(text, document, lambda job: job.id)
    for field in list(found):
        if all(mine is None for _, mine, _ in found[field]):
            del found[field]  # squeue was not asked for it
    assert found.keys() == {"name", "min_memory", "reason", "run_time", "time_limit", "nice"}
    assert [key for key, _, _ in found["name"]] == [SlurmId(10)]
    for key, memory, _ in found["min_memory"]:
        job = next(job for job in document if job.id == key)
        assert memory in (job.memory_per_cpu, job.memory_per_node)
    described = {job.id: job.description for job in document}
    assert all(described[key] == mine for key, mine, _ in found["reason"])  # type: ignore[index]


def test_the_raw_status_of_22_05() -> None:
    """768 is code 3; 253 is out of memory."""
    found = [job for name in names("squeue/*.json") for job in jobs(name)]
    killed = {job.exit_signal for job in found if job.state == "OUT_OF_MEMORY"}
    assert killed == {125}
    codes = {(job.exit_code, job.exit_signal) for job in found}
    assert {(3, 0), (0, 11), (0, 125), (137, 0)} <= codes


def test_a_job_of_24_11() -> None:
    """Numbers are objects, states lists, and each node's cores are listed."""
    job = jobs("modern24.11/squeue/squeue_running.json")[0]
    assert (job.state, job.time_limit, job.priority) == ("RUNNING", 600, 10009)
    assert (job.submit, job.end) == (1795171818 * SECOND, 1795172418 * SECOND)
    assert (job.nodes, job.cpus, job.tasks, job.cpus_per_task) == (2, 4, 4, 1)
    assert (job.memory_per_cpu, job.memory_per_node) == (400 * 2**20, None)
    assert (job.cluster, job.oversubscribe, job.is_batch) == ("modern", "OK", True)
    assert job.allocation == tuple(
        Allocation(node_list=node, cpu_count=2, cores=((0, 0), (0, 1)), memory=800 * 2**20)
        for node in ("c1", "c2")
    )


def test_states_with_flags_and_signals_of_24_11() -> None:
    """CANCELLED and COMPLETING at once; limits without bound; a signal by number."""
    found = jobs("modern24.11/scontrol_show_job_running.json")
    assert [job.state_flags for job in found if job.state_flags] == [("COMPLETING",)]
    assert math.inf in {job.time_limit for job in found}
    assert {(0, 11), (3, 0)} <= {(job.exit_code, job.exit_signal) for job in found}
    pending = next(job.id for job in found if job.id.pending_tasks)
    assert pending == SlurmId(10, array_job=10, pending_tasks="0-9%2")
    assert {job.id.het_offset for job in found} == {None, 0, 1}


def test_jobs_of_accounting_are_rejected() -> None:
    """Each by name: they have no state where a live job has its own."""
    reading = read_json(captured("sacct/phase3_pss_influx.json"))
    assert reading.records == []
    assert {bad.reason.partition(": ")[2] for bad in reading.rejected} == {"no job_state"}


@pytest.mark.parametrize(
    ("members", "reason"),
    [
        ({"job_state": "RUNNING"}, "no job_id"),
        ({"job_id": 3}, "no job_state"),
        ({"job_id": 3, "job_state": []}, "no job_state"),
        ({"job_id": 3, "job_state": "R", "priority": "x"}, "priority is no number"),
        ({"job_id": 3, "job_state": "R", "submit_time": -7}, "submit_time is no time: -7"),
        ({"job_id": 3, "job_state": "R", "job_resources": {"allocated_nodes": [1]}}, "no object"),
    ],
)
def test_what_a_job_must_have(members: dict[str, Any], reason: str) -> None:
    """Without it, it is rejected, and the next one is read."""
    good = {"job_id": 4, "job_state": "RUNNING"}
    reading = read_json(json.dumps({"jobs": [members, good]}).encode())
    assert [job.id for job in reading.records] == [SlurmId(4)]
    assert reason in reading.rejected[0].reason


JUNK = st.recursive(
    st.none() | st.integers() | st.text(max_size=3) | st.booleans(),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(["0", "set", "number", "nodes", "sockets"]), inner, max_size=2
        )
    ),
    max_leaves=5,
)
KEYS = sorted(json.loads(captured("modern24.11/squeue/squeue.json"))["jobs"][0])


@given(st.dictionaries(st.sampled_from(KEYS), JUNK, max_size=5))
def test_any_members_are_a_job_or_rejected(members: dict[str, Any]) -> None:
    """Whatever stands in whichever member."""
    job = {"job_id": 3, "job_state": "RUNNING", **members}
    reading = read_json(json.dumps({"jobs": [job]}).encode())
    assert len(reading.records) + len(reading.rejected) == 1
