"""sacct's JSON says what its text says, but for what is known to be lost."""

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.errors import DataError
from ccpipe.formats.slurm.job_id import SlurmId
from ccpipe.formats.slurm.json import sacct as sacct_json
from ccpipe.formats.slurm.resources import tres
from ccpipe.formats.slurm.sacct_row import SacctRow
from ccpipe.formats.slurm.text import sacct
from ccpipe.formats.slurm.timestamp import SECOND
from tests.formats.slurm.agreement import differences
from tests.formats.slurm.captured import UTC, captured, names

FILES = [*names("sacct/*.json"), "slurmrestd/slurmdb_v0.0.38_jobs.json"]


def rows(name: str) -> list[SacctRow]:
    """Read a captured document, none of whose objects may be dropped."""
    reading = sacct_json.read_json(captured(name))
    assert reading.rejected == []
    return reading.records


@pytest.mark.parametrize("name", FILES)
def test_every_captured_job_and_step_is_read(name: str) -> None:
    """A row for each."""
    jobs = json.loads(captured(name))["jobs"]
    assert len(rows(name)) == len(jobs) + sum(len(job["steps"]) for job in jobs) > 0


@pytest.mark.parametrize("name", FILES)
def test_sums_of_cpu_time_are_those_of_the_raw_document(name: str) -> None:
    """Of the steps, to the microsecond, and so of the jobs."""
    jobs = json.loads(captured(name))["jobs"]
    for kind, field in (("user", "user_cpu"), ("system", "system_cpu"), ("total", "total_cpu")):
        times = [step["time"][kind] for job in jobs for step in job["steps"]]
        expected = sum(time["seconds"] * 10**6 + time["microseconds"] for time in times)
        found = rows(name)
        for is_step in (True, False):
            seconds = [getattr(row, field) for row in found if row.is_step == is_step]
            assert round(math.fsum(seconds) * 10**6) == expected > 0


ONLY_IN_TEXT = {
    "cancelled_by", "db_index", "eligible", "gid", "planned", "req_cpus", "req_nodes",
    "reservation", "submit_line", "uid",
}  # fmt: skip
"""What JSON of 22.05 does not hold, of all rows or of those of steps."""
ROUNDED = {
    "ave_disk_read", "ave_disk_write", "max_disk_read", "max_disk_write", "ave_cpu", "min_cpu",
    "system_cpu", "user_cpu", "total_cpu",
}  # fmt: skip
"""What the text rounds to 0.01 MiB, to seconds or to milliseconds."""
OTHERWISE = {"flags", "exit_code", "derived_exit_code", "time_limit", "alloc_cpus", "cpu_time",
             "consumed_energy"}  # fmt: skip
"""What each says in its own way; see the tests below."""


def test_text_and_json_of_the_same_moment_agree() -> None:
    """All fields of all 91 rows, requeued runs too."""
    text = sacct.read(captured("sacct/phase1_linux.all_fields_D.txt"), zone=UTC).records
    found = differences(text, rows("sacct/phase1_linux.json"), lambda row: (row.id, row.start))
    for field in [name for name in found if "tres" in name]:
        for _, mine, theirs in found.pop(field):
            assert {k: int(v) for k, v in tres(str(mine)).items()} == {
                k: int(v) for k, v in tres(str(theirs)).items()
            }
    assert found.keys() <= ONLY_IN_TEXT | ROUNDED | OTHERWISE
    for field in ONLY_IN_TEXT & found.keys():
        assert all(theirs is None for _, _, theirs in found[field])
    for field in ROUNDED & found.keys():
        bound = 5300 if "disk" in field else 1 if field in ("ave_cpu", "min_cpu") else 0.001
        assert all(abs(mine - theirs) < bound + 1e-9 for _, mine, theirs in found[field])  # type: ignore[operator]


def test_what_the_two_say_in_their_own_way() -> None:
    """JSON of 22.05 loses codes other than 0 and limits without bound, and invents nothing.

    For jobs that never ran, the text prints the CPUs that were asked for as allocated.
    """
    text = sacct.read(captured("sacct/phase1_linux.all_fields_D.txt"), zone=UTC).records
    found = differences(text, rows("sacct/phase1_linux.json"), lambda row: (row.id, row.start))
    for field in ("exit_code", "derived_exit_code"):
        assert {theirs for _, _, theirs in found[field]} == {0}
    assert [(mine, theirs) for _, mine, theirs in found["time_limit"]] == [(math.inf, None)]
    never_ran = {(row.id, row.start) for row in text if not row.alloc_tres}
    assert {key for key, _, _ in found["alloc_cpus"]} <= never_ran
    assert {mine for _, mine, _ in found["consumed_energy"]} == {0}


def test_the_name_of_a_reservation_is_no_address() -> None:
    """22.05 writes where in memory the name is."""
    (job,) = json.loads(captured("sacct/phase1_linux.json"))["jobs"][:1]
    assert isinstance(job["reservation"]["name"], int)
    assert {row.reservation for row in rows("sacct/phase1_linux.json")} == {None}


def number(value: int | None, *, infinite: bool = False) -> dict[str, Any]:
    """Write a number as 23.02 and later do."""
    return {"set": value is not None, "infinite": infinite, "number": value or 0}


MODERN: dict[str, Any] = {
    "job_id": 14,
    "array": {"job_id": 13, "task_id": number(1), "task": "", "limits": {}},
    "het": {"job_id": 0, "job_offset": number(None)},
    "name": "arr",
    "user": "alice",
    "state": {"current": ["FAILED"], "reason": "NonZeroExitCode"},
    "exit_code": {"status": ["ERROR"], "return_code": number(3), "signal": {"id": number(None)}},
    "priority": number(10003),
    "reservation": {"id": 7, "name": "maint"},
    "required": {"CPUs": 2, "memory_per_cpu": number(300), "memory_per_node": number(None)},
    "time": {
        "elapsed": 8, "start": 1795170826, "end": 1795170834, "submission": 1795170825,
        "suspended": 0, "planned": number(1), "limit": number(None, infinite=True),
        "system": {"seconds": 0, "microseconds": 5}, "user": {"seconds": 1, "microseconds": 5},
        "total": {"seconds": 1, "microseconds": 10},
    },
    "tres": {
        "allocated": [{"type": "gres", "name": "gpu", "id": 1001, "count": 2}],
        "requested": [{"type": "mem", "name": "", "id": 2, "count": 600}],
    },
    "submit_line": "sbatch a.sh",
    "restart_cnt": 1,
    "steps": [
        {
            "step": {"id": "14.batch", "name": "batch"},
            "state": ["FAILED"],
            "time": {"start": number(1795170826), "end": number(None), "elapsed": 8},
            "statistics": {"energy": {"consumed": number(17)}},
        },
        {"step": {"id": "13_1.0", "name": "a"}, "state": ["COMPLETED"]},
    ],
}  # fmt: skip


def test_the_dialect_of_later_versions() -> None:
    """Made after the data parsers v0.0.40 to v0.0.46; there is no captured document of theirs."""
    reading = sacct_json.read_json(json.dumps({"jobs": [MODERN]}).encode())
    assert reading.rejected == []
    job, batch, step = reading.records
    assert job.id == SlurmId(14, array_job=13, array_task=1)
    assert (job.state, job.exit_code, job.exit_signal) == ("FAILED", 3, 0)
    assert (job.time_limit, job.planned, job.priority) == (math.inf, 1, 10003)
    assert (job.reservation, job.restarts, job.submit_line) == ("maint", 1, "sbatch a.sh")
    assert (job.user_cpu, job.alloc_tres, job.req_mem) == (1.000005, "gres/gpu=2", 600 * 2**20)
    assert batch.id == SlurmId(14, "batch", array_job=13, array_task=1)
    assert (batch.start, batch.end, batch.consumed_energy) == (1795170826 * SECOND, None, 17)
    assert step.id.step == "0"


def test_another_commands_jobs_are_rejected() -> None:
    """Each by name."""
    reading = sacct_json.read_json(captured("squeue/phase1_linux.json"))
    assert reading.records == []
    assert reading.rejected[0].reason == "jobs[0]: a job of squeue or scontrol, not of sacct"


def test_denied_access_is_reported() -> None:
    """The answer is an error, and no jobs."""
    with pytest.raises(DataError, match="Slurm reports: Access/permission denied"):
        sacct_json.read_json(captured("slurmrestd/slurmdb_v0.0.38_config.json"))


JUNK = st.recursive(
    st.none() | st.integers() | st.text(max_size=3) | st.booleans(),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(["id", "count", "set", "number", "name"]), inner, max_size=2
        )
    ),
    max_leaves=5,
)


@given(st.dictionaries(st.sampled_from(sorted(MODERN)), JUNK), st.booleans())
def test_any_members_are_rows_or_rejected(members: dict[str, Any], in_steps: bool) -> None:
    """Whatever stands in whichever member, of a job or of a step."""
    job = {**MODERN, "steps": [members]} if in_steps else {**MODERN, **members}
    reading = sacct_json.read_json(json.dumps({"jobs": [job]}).encode())
    assert reading.records or reading.rejected
