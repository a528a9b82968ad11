"""squeue's text: every captured job, with any columns."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.formats.slurm.records import LiveJob, SlurmId
from ccpipe.formats.slurm.text import SqueueReader, squeue_fields
from ccpipe.formats.slurm.values import SECOND, TimeReader
from tests.formats.slurm.captured import OSLO, UTC, captured, names

TABLES = [*names("squeue/*_fields.txt"), *names("snapshots/squeue*")]


def jobs(name: str) -> list[LiveJob]:
    reading = SqueueReader(zone=UTC).read(captured(name))
    assert reading.rejected == []
    return reading.records


@pytest.mark.parametrize("name", TABLES)
def test_squeue_reader_reads_all_captured_jobs(name: str) -> None:
    lines = captured(name).decode().splitlines()[1:]
    assert len(jobs(name)) == sum(1 for line in lines if not line.startswith("line2\ttab"))


def test_squeue_reader_reads_names_with_delimiter_and_newline() -> None:
    by_id = {job.id.job: job for job in jobs("squeue/squeue_O_fields.txt")}
    assert by_id[10].name == 'later job|pipe "q" é'
    assert by_id[39].name == "line1\nline2\ttab"
    assert (by_id[10].user, by_id[10].state) == ("alice", "PENDING")


def test_squeue_reader_joins_ambiguous_adjacent_texts() -> None:
    """The boundary between name and comment is unknown; the job is still read."""
    by_id = {job.id.job: job for job in jobs("squeue/squeue_all_fields.txt")}
    assert by_id[10].name == 'later job|pipe "q" é|a|b;c,d "quote" ünï'
    assert (by_id[10].time_limit, by_id[10].priority, by_id[10].uid) == (300, 10003, 2001)


def test_squeue_reader_reads_array_and_het_jobs() -> None:
    """From both columns named JOBID, in either order."""
    for name in ("squeue/squeue_O_fields.txt", "squeue/squeue_o_fields.txt"):
        by_id = {job.id.job: job.id for job in jobs(name)}
        assert by_id[36] == SlurmId(36, array_job=36, pending_tasks="0-9%2")
        assert by_id[37] == SlurmId(37, het_job=37, het_offset=0)
        assert by_id[38] == SlurmId(38, het_job=37, het_offset=1)


def test_squeue_reader_reads_running_and_pending_jobs() -> None:
    by_id = {job.id.job: job for job in jobs("squeue/squeue_O_fields.txt")}
    running, waiting = by_id[22], by_id[41]
    assert (running.state, running.node_list) == ("RUNNING", "c1")
    assert (running.start, running.end) == (1795171031 * SECOND, 1795172831 * SECOND)
    assert (waiting.state, waiting.node_list, waiting.start) == ("PENDING", None, None)
    assert (waiting.time_limit, waiting.reservation, waiting.allocation) == (93840, None, ())
    assert by_id[11].time_limit == math.inf


def test_squeue_reader_expands_state_codes() -> None:
    found = SqueueReader().read(b"JOBID|ST|NAME\n1|CG|a\n2|OOM|b\n").records
    assert [job.state for job in found] == ["COMPLETING", "OUT_OF_MEMORY"]


def test_squeue_reader_accepts_columns_without_header() -> None:
    reader = SqueueReader(columns=["JOBID", "CPUS", "TIME_LIMIT", "NAME"], delimiter=";")
    (job,) = reader.read(b"7;2K;5-00:00:00;a;b\n").records
    assert job == LiveJob(SlurmId(7), cpus=2048, time_limit=5 * 86400, name="a;b")


def test_squeue_fields_are_distinct_fields_of_live_job() -> None:
    fields = squeue_fields(TimeReader())
    assert {field.name for field in fields} <= set(LiveJob.__struct_fields__)
    assert len({(field.name, field.columns) for field in fields}) == len(fields)


CELLS = st.sampled_from(["", "3", "36_[0-9%2]", "UNLIMITED", "N/A", "PD", "5:00"]) | st.text(
    max_size=6
)
COLUMNS = ["JOBID", "STATE", "NAME", "TIME_LIMIT", "START_TIME", "PRIORITY", "NODELIST", "GROUP"]


@given(st.lists(st.sampled_from(COLUMNS), min_size=1, max_size=6), st.lists(st.lists(CELLS)))
def test_squeue_reader_reads_or_rejects_any_cells(
    columns: list[str], table: list[list[str]]
) -> None:
    payload = "".join("|".join(cells) + "\n" for cells in table).encode("utf-8", "surrogatepass")
    reading = SqueueReader(columns=["JOBID", *columns], zone=OSLO).read(payload)
    assert all(isinstance(job.id, SlurmId) for job in reading.records)
    assert all(bad.reason for bad in reading.rejected)
