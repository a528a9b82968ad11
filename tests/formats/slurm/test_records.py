"""Numbers of jobs, of array tasks, of components of heterogeneous jobs, and of steps."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.errors import DataError
from ccpipe.formats.slurm.records import MAX_EXCERPT, RejectedRow, SacctRow, SlurmId


@pytest.mark.parametrize(
    ("shown", "raw", "found"),
    [
        ("3", "3", SlurmId(3)),
        ("3", "", SlurmId(3)),
        ("3.batch", "3.batch", SlurmId(3, "batch")),
        ("3.0", "3.0", SlurmId(3, "0")),
        ("3.extern", "", SlurmId(3, "extern")),
        ("13_1", "14", SlurmId(14, array_job=13, array_task=1)),
        ("13_1.batch", "14.batch", SlurmId(14, "batch", array_job=13, array_task=1)),
        ("13_6", "13", SlurmId(13, array_job=13, array_task=6)),
        ("36_[0-9%2]", "36", SlurmId(36, array_job=36, pending_tasks="0-9%2")),
        ("36_[1,3,5-6]", "36", SlurmId(36, array_job=36, pending_tasks="1,3,5-6")),
        ("36_[1,3,...]", "36", SlurmId(36, array_job=36, pending_tasks="1,3,...")),
        ("17+0", "17", SlurmId(17, het_job=17, het_offset=0)),
        ("17+1", "18", SlurmId(18, het_job=17, het_offset=1)),
        ("17+1.0", "18.0", SlurmId(18, "0", het_job=17, het_offset=1)),
        ("17+1.batch", "18.batch", SlurmId(18, "batch", het_job=17, het_offset=1)),
        ("38", "37+1", SlurmId(38, het_job=37, het_offset=1)),
        ("13_1", "", SlurmId(13, array_job=13, array_task=1)),
        ("3.0+1", "", SlurmId(3, "0+1")),
    ],
)
def test_slurm_id_reads_both_numbers_in_either_order(shown: str, raw: str, found: SlurmId) -> None:
    """The raw number is the job's own."""
    assert SlurmId.read(shown, raw) == found
    if raw:
        assert SlurmId.read(raw, shown) == found
        assert found.raw == (raw if "+" not in raw else shown)
    assert str(found) == (shown if "+" not in raw else raw)


@given(
    st.integers(1, 2**32),
    st.sampled_from(["", "0", "17", "batch", "extern", "interactive"]),
    st.sampled_from(["plain", "task", "pending", "het"]),
    st.integers(0, 2**32),
)
def test_slurm_id_round_trips(job: int, step: str, kind: str, index: int) -> None:
    number = {
        "plain": SlurmId(job, step),
        "task": SlurmId(job, step, array_job=index + 1, array_task=index),
        "pending": SlurmId(job, array_job=job, pending_tasks=f"0-{index}%4"),
        "het": SlurmId(job, step, het_job=index + 1, het_offset=index % 100),
    }[kind]
    assert SlurmId.read(str(number), number.raw) == number


@pytest.mark.parametrize(
    "text",
    ["", "x", "3.", ".3", "3_", "3_x", "3+", "3 ", "-3", "3_[1", "3_1+2", "٣", "3.a b", "3.é",
     "9" * 11],
)  # fmt: skip
def test_slurm_id_rejects_invalid_numbers(text: str) -> None:
    with pytest.raises(DataError, match="not a job's number"):
        SlurmId.read(text)
    with pytest.raises(DataError, match="not a job's number"):
        SlurmId.read("3", text or "x")


@given(st.text(max_size=30), st.text(max_size=10))
def test_slurm_id_raises_only_data_error_for_any_text(shown: str, raw: str) -> None:
    with suppress(DataError):
        SlurmId.read(shown, raw)


def test_rejected_row_excerpt_is_short_and_printable() -> None:
    rejected = RejectedRow(1, "no", b"\xff" + b"x" * 10_000)
    assert rejected.excerpt.startswith("\\xffxxx")
    assert len(rejected.excerpt) == MAX_EXCERPT
    assert RejectedRow(1, "no", b"3|a").excerpt == "3|a"


def test_requested_memory_requires_all_factors() -> None:
    for row in (
        SacctRow(SlurmId(3), req_mem_of="job"),
        SacctRow(SlurmId(3), req_mem=2**30, req_cpus=2),
        SacctRow(SlurmId(3), req_mem=2**30, req_mem_of="cpu", req_nodes=2),
        SacctRow(SlurmId(3), req_mem=2**30, req_mem_of="node", req_cpus=2),
    ):
        assert row.requested_memory is None
