"""sacct's JSON, in both dialects, agrees with its text except for known losses."""

import json
import math
from collections.abc import Callable, Hashable, Iterable
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.errors import DataError
from ccpipe.formats.slurm import json as sacct_json
from ccpipe.formats.slurm.json import JsonObject, read_json
from ccpipe.formats.slurm.records import SacctRow, SlurmId
from ccpipe.formats.slurm.text import SacctReader
from ccpipe.formats.slurm.values import SECOND, tres
from tests.formats.slurm.captured import UTC, captured, names


def test_json_reader_rejects_bad_jobs_of_list() -> None:
    payload = b'{"jobs": [{"job_id": 1}, 7, {"job_id": 2, "name": {"a": 1}}, {"job_id": 3}]}'
    reading = read_json(payload)
    assert [row.id.job for row in reading.records] == [1, 3]
    assert [(bad.line, bad.reason, bad.original) for bad in reading.rejected] == [
        (1, "jobs[1]: not an object", b"7"),
        (2, "jobs[2]: name: not a text", b'{"job_id": 2, "name": {"a": 1}}'),
    ]


def test_json_reader_reports_errors_of_slurm() -> None:
    errors = b'"errors": [{"error_number": 2002, "error": "Access/permission denied"}]'
    with pytest.raises(DataError, match="^Slurm reports: Access/permission denied$"):
        read_json(b"{" + errors + b"}")
    reading = read_json(b'{"jobs": [{"job_id": 1}], ' + errors + b"}")
    assert [row.id.job for row in reading.records] == [1]
    assert reading.rejected[0].reason == "Slurm reports: Access/permission denied"


def test_json_reader_replaces_invalid_utf8() -> None:
    """Users may name jobs so."""
    (row,) = read_json(b'{"jobs": [{"job_id": 1, "name": "caf\xe9"}]}').records
    assert row.job_name == "caf\N{REPLACEMENT CHARACTER}"


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"", "not Slurm JSON"),
        (b"[]", "not Slurm JSON: Expected `object`"),
        (b'{"jobs": 7}', r"not Slurm JSON: .*\$\.jobs"),
        (b'{"nodes": []}', "no list 'jobs' in the document"),
        (b'{"jobs": [', "not Slurm JSON"),
        (b'{"a":' * 100_000, "nested too deeply"),
        (b'{"jobs": [' + b"[" * 100_000, "nested too deeply|not JSON"),
    ],
)
def test_json_reader_rejects_other_documents(payload: bytes, reason: str) -> None:
    with pytest.raises(DataError, match=reason):
        read_json(payload)


def test_json_reader_rejects_too_large_document(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sacct_json, "MAX_BYTES", 10)
    with pytest.raises(DataError, match="more than 10 bytes"):
        read_json(b'{"jobs": []}')


def of(value: Any) -> JsonObject:
    return JsonObject({"x": value})


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (7, 7),
        ({"set": True, "infinite": False, "number": 7}, 7),
        ({"set": False, "infinite": False, "number": 0}, None),
        ({"set": False, "infinite": True, "number": 0}, math.inf),
        ({"set": True, "infinite": True, "number": 0}, math.inf),
        ({"number": 7}, None),
        ({"set": True}, None),
        (None, None),
        (True, None),
        (4294967294, None),
        (18446744073709551614, None),
        (4294967295, math.inf),
        (-2, None),
        (-1, math.inf),
        (0.5, 0.5),
    ],
)
def test_json_object_reads_numbers_in_both_dialects(value: Any, number: float | None) -> None:
    assert of(value).amount("x") == number


def test_json_object_converts_units() -> None:
    assert of(30).minutes("x") == 1800
    assert of({"set": False, "infinite": True, "number": 0}).minutes("x") == math.inf
    assert of(1795170748).time("x") == 1795170748 * SECOND
    assert of(0).time("x") is None
    assert of({"seconds": 3, "microseconds": 455483}).seconds("x") == 3.455483
    assert of({"seconds": 0, "microseconds": 1200323}).seconds("x") == 1.200323
    assert of(0).number("x") is None


@pytest.mark.parametrize(
    ("value", "code"),
    [
        (768, (3, 0)),
        (253, (0, 125)),
        (4294967294, (None, None)),
        ({"status": "SUCCESS", "return_code": 0}, (0, 0)),
        ({"status": "PENDING", "return_code": None}, (None, None)),
        ({"return_code": None, "signal": {"signal_id": 11, "name": "Segmentation fault"}}, (0, 11)),
        (
            {
                "status": ["SIGNALED"],
                "return_code": {"set": False, "infinite": False, "number": 0},
                "signal": {"id": {"set": True, "infinite": False, "number": 15}, "name": "Term"},
            },
            (0, 15),
        ),
        (None, (None, None)),
    ],
)
def test_json_object_reads_exit_codes_in_all_dialects(
    value: Any, code: tuple[int | None, int | None]
) -> None:
    assert of(value).exit_code("x") == code


def test_json_object_reads_states_from_words_and_lists() -> None:
    assert of("down").state("x") == "DOWN"
    assert of(["RUNNING", "COMPLETING"]).state("x") == "RUNNING"
    assert of("").state("x") is of(None).state("x") is of([]).state("x") is None
    assert of("None assigned").word("x") is None


@pytest.mark.parametrize("value", ["7", [7], {"set": True, "number": "7"}])
def test_json_object_names_invalid_members(value: Any) -> None:
    with pytest.raises(DataError, match="x: not a number"):
        of(value).amount("x")
    with pytest.raises(DataError, match="x: not a whole number"):
        of(0.5).whole("x")
    with pytest.raises(DataError, match="x: not a time"):
        of(10**12).time("x")
    with pytest.raises(DataError, match="x: not a list of objects"):
        list(of([7]).objects("x"))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(st.binary(max_size=60) | JSON.map(msgspec.json.encode))
def test_json_reader_raises_only_data_error_for_any_bytes(payload: bytes) -> None:
    for document in (payload, b'{"jobs": [' + payload + b"]}"):
        with suppress(DataError):
            read_json(document)


FILES = [*names("sacct/*.json"), "slurmrestd/slurmdb_v0.0.38_jobs.json"]


def rows(name: str) -> list[SacctRow]:
    reading = read_json(captured(name))
    assert reading.rejected == []
    return reading.records


@pytest.mark.parametrize("name", FILES)
def test_json_reader_reads_all_captured_jobs_and_steps(name: str) -> None:
    jobs = json.loads(captured(name))["jobs"]
    assert len(rows(name)) == len(jobs) + sum(len(job["steps"]) for job in jobs) > 0


@pytest.mark.parametrize("name", FILES)
def test_json_reader_preserves_sums_of_cpu_time(name: str) -> None:
    jobs = json.loads(captured(name))["jobs"]
    for kind, field in (("user", "user_cpu"), ("system", "system_cpu"), ("total", "total_cpu")):
        times = [step["time"][kind] for job in jobs for step in job["steps"]]
        expected = sum(time["seconds"] * 10**6 + time["microseconds"] for time in times)
        found = rows(name)
        for is_step in (True, False):
            seconds = [getattr(row, field) for row in found if row.is_step == is_step]
            assert round(math.fsum(seconds) * 10**6) == expected > 0


ONLY_IN_TEXT = {
    "cancelled_by", "gid", "req_cpus", "req_nodes", "reservation", "uid",
}  # fmt: skip
"""Missing from JSON of 22.05, in all rows or in rows of steps."""
ROUNDED = {
    "ave_disk_read", "ave_disk_write", "ave_cpu", "min_cpu", "system_cpu", "user_cpu",
    "total_cpu",
}  # fmt: skip
"""Rounded by the text to 0.01 MiB, to seconds or to milliseconds."""
DIFFERENT = {"exit_code", "time_limit", "alloc_cpus", "cpu_time", "consumed_energy"}
"""Different in JSON and text; see the tests below."""


def differences(
    one: Iterable[SacctRow], other: Iterable[SacctRow], key: Callable[[SacctRow], Hashable]
) -> dict[str, list[tuple[Hashable, object, object]]]:
    first, second = {key(thing): thing for thing in one}, {key(thing): thing for thing in other}
    assert first.keys() == second.keys()
    found: dict[str, list[tuple[Hashable, object, object]]] = {}
    for name, thing in first.items():
        mine, theirs = msgspec.structs.asdict(thing), msgspec.structs.asdict(second[name])
        for field, value in mine.items():
            if value != theirs[field]:
                found.setdefault(field, []).append((name, value, theirs[field]))
    return found


def test_json_and_text_of_same_time_agree() -> None:
    text = SacctReader(zone=UTC).read(captured("sacct/phase1_linux.all_fields_D.txt")).records
    found = differences(text, rows("sacct/phase1_linux.json"), lambda row: (row.id, row.start))
    assert all(theirs == {} for _, _, theirs in found.pop("other"))
    for field in [name for name in found if "tres" in name]:
        for _, mine, theirs in found.pop(field):
            assert {k: int(v) for k, v in tres(str(mine)).items()} == {
                k: int(v) for k, v in tres(str(theirs)).items()
            }
    assert found.keys() <= ONLY_IN_TEXT | ROUNDED | DIFFERENT
    for field in ONLY_IN_TEXT & found.keys():
        assert all(theirs is None for _, _, theirs in found[field])
    for field in ROUNDED & found.keys():
        bound = 5300 if "disk" in field else 1 if field in ("ave_cpu", "min_cpu") else 0.001
        assert all(abs(mine - theirs) < bound + 1e-9 for _, mine, theirs in found[field])  # type: ignore[operator]


def test_json_and_text_differ_as_documented() -> None:
    """JSON of 22.05 lacks non-zero exit codes and unlimited time limits.

    For jobs that never ran, the text prints the requested CPUs as allocated.
    """
    text = SacctReader(zone=UTC).read(captured("sacct/phase1_linux.all_fields_D.txt")).records
    found = differences(text, rows("sacct/phase1_linux.json"), lambda row: (row.id, row.start))
    assert {theirs for _, _, theirs in found["exit_code"]} == {0}
    assert [(mine, theirs) for _, mine, theirs in found["time_limit"]] == [(math.inf, None)]
    never_ran = {(row.id, row.start) for row in text if not row.alloc_tres}
    assert {key for key, _, _ in found["alloc_cpus"]} <= never_ran
    assert {mine for _, mine, _ in found["consumed_energy"]} == {0}


def test_json_reader_ignores_address_of_reservation_name() -> None:
    """22.05 writes the memory address of the name."""
    (job,) = json.loads(captured("sacct/phase1_linux.json"))["jobs"][:1]
    assert isinstance(job["reservation"]["name"], int)
    assert {row.reservation for row in rows("sacct/phase1_linux.json")} == {None}


def number(value: int | None, *, infinite: bool = False) -> dict[str, Any]:
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


def test_json_reader_reads_dialect_of_later_versions() -> None:
    """Written after the data parsers v0.0.40 to v0.0.46; no captured document is available."""
    reading = read_json(json.dumps({"jobs": [MODERN]}).encode())
    assert reading.rejected == []
    job, batch, step = reading.records
    assert job.id == SlurmId(14, array_job=13, array_task=1)
    assert (job.state, job.exit_code, job.exit_signal) == ("FAILED", 3, 0)
    assert (job.time_limit, job.priority, job.reservation) == (math.inf, 10003, "maint")
    assert (job.user_cpu, job.alloc_tres, job.req_mem) == (1.000005, "gres/gpu=2", 600 * 2**20)
    assert batch.id == SlurmId(14, "batch", array_job=13, array_task=1)
    assert (batch.start, batch.end, batch.consumed_energy) == (1795170826 * SECOND, None, 17)
    assert step.id.step == "0"


def test_json_reader_rejects_jobs_of_other_commands() -> None:
    reading = read_json(b'{"jobs": [{"job_id": 1, "job_state": "RUNNING"}]}')
    assert reading.records == []
    assert reading.rejected[0].reason == "jobs[0]: a job of squeue or scontrol, not of sacct"


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
def test_json_reader_reads_or_rejects_any_members(members: dict[str, Any], in_steps: bool) -> None:
    job = {**MODERN, "steps": [members]} if in_steps else {**MODERN, **members}
    reading = read_json(json.dumps({"jobs": [job]}).encode())
    assert reading.records or reading.rejected
