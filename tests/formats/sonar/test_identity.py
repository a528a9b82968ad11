"""Slurm's IDs of jobs and steps."""

import pytest

from ccpipe.errors import DataError
from ccpipe.formats.sonar import JobId, SlurmJob

IDS = [
    ("1470478", "1470478", JobId(1470478)),
    ("1470478.batch", "1470478.batch", JobId(1470478, "batch")),
    ("1470478.0", "1470478.0", JobId(1470478, "0")),
    ("1467073_1", "1467074", JobId(1467074, "", 1467073, 1)),
    ("1467073_1.extern", "1467074.extern", JobId(1467074, "extern", 1467073, 1)),
    ("1467073_0.0", "1467074.0", JobId(1467074, "0", 1467073, 0)),
    ("1467921+0", "1467921", JobId(1467921, "", 0, None, 1467921, 0)),
    ("1467921+1.0", "1467922.0", JobId(1467922, "0", 0, None, 1467921, 1)),
]


@pytest.mark.parametrize(("shown", "raw", "number"), IDS)
def test_numbers_of_steps_arrays_and_heterogeneous_jobs(
    shown: str, raw: str, number: JobId
) -> None:
    """The specification's own table."""
    assert JobId.parse(shown, raw) == number
    assert str(number) == shown


def test_the_tasks_that_are_pending_stand_together() -> None:
    """They have no index yet."""
    assert JobId.parse("123_[1-5%2]", "123") == JobId(123, "", 123, None)


def test_no_step_is_not_step_zero() -> None:
    """Thinking of a step's name as a number is not helpful."""
    assert JobId.parse("7", "7") != JobId.parse("7.0", "7.0")
    assert JobId.of(SlurmJob(job_id=7)) != JobId.of(SlurmJob(job_id=7, job_step="0"))


@pytest.mark.parametrize("text", ["", "x", "1_", "1_x", "1+", "1.", "1.2.3", "-1", "1_2+3", "1 "])
def test_what_is_no_number_of_a_job(text: str) -> None:
    """It is named."""
    with pytest.raises(DataError, match="is not a job ID"):
        JobId.parse(text)


def test_a_record_says_who_it_is() -> None:
    """Index 0 counts in an array, and in it only."""
    assert JobId.of(SlurmJob(job_id=9, array_job_id=7)) == JobId(9, "", 7, 0)
    assert JobId.of(SlurmJob(job_id=9, het_job_id=8, het_job_offset=1)) == JobId(
        9, "", 0, None, 8, 1
    )
    assert JobId.of(SlurmJob(job_id=9)) == JobId(9)
