"""Job identity: which records are about the same job."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.errors import DataError
from ccpipe.formats.sonar import (
    GAP,
    JobId,
    JobIdentity,
    JobObservation,
    JobTracker,
    SampleAttributes,
    SampleJob,
    SlurmJob,
    group_by_job,
    job_observations,
)

HOUR = 3600 * 10**9


def seen(node: str, job: int, epoch: int, hour: float) -> JobObservation:
    """Return a record of a job at an hour."""
    return JobObservation("fox", node, job, epoch, int(hour * HOUR))


def test_a_batch_job_is_one_over_all_nodes_and_times() -> None:
    """Slurm's numbers are never used again: no gap divides them."""
    records = [seen("c1", 7, 0, 0), seen("c2", 7, 0, 0), seen("c1", 7, 0, 1000)]
    assert group_by_job(records) == {JobIdentity("fox", "", 7, 0, 0): [*records[:2], records[2]]}


def test_clusters_do_not_share_numbers() -> None:
    """Each has its own Slurm."""
    records = [seen("c1", 7, 0, 0), seen("c1", 7, 0, 0)._replace(cluster="saga")]
    assert len(group_by_job(records)) == 2


@pytest.mark.parametrize("other", [("c2", 7, 5), ("c1", 8, 5), ("c1", 7, 6), ("c1", 7, 0)])
def test_other_jobs_are_of_one_node_one_number_and_one_boot(other: tuple[str, int, int]) -> None:
    """A job differs where any of the three does; a batch job's number may be the same."""
    node, job, epoch = other
    assert len(group_by_job([seen("c1", 7, 5, 0), seen(node, job, epoch, 0)])) == 2


def test_silence_longer_than_the_gap_ends_a_job() -> None:
    """Not silence as long as the gap; records may come in any order."""
    records = [seen("c1", 7, 5, hour) for hour in (6.1, 0, 3, 9.2, 6)]
    assert list(group_by_job(records)) == [
        JobIdentity("fox", "c1", 7, 5, 0),
        JobIdentity("fox", "c1", 7, 5, int(9.2 * HOUR)),
    ]
    assert len(group_by_job(records, gap=2 * HOUR)) == 4
    assert GAP == 3 * HOUR


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 40)), max_size=20), st.integers(1, 9))
def test_a_tracker_finds_what_grouping_finds(times: list[tuple[int, int]], gap: int) -> None:
    """Where records come in the order of their times, one by one or all at once is the same."""
    records = [JobObservation("fox", "c1", 7, epoch, time) for epoch, time in times]
    records.sort(key=lambda record: record.time)
    tracker = JobTracker(gap=gap)
    found: dict[JobIdentity, list[JobObservation]] = {}
    for record in records:
        found.setdefault(tracker.identify(record), []).append(record)
    assert found == group_by_job(records, gap=gap)


def test_a_late_record_belongs_to_its_job() -> None:
    """It neither ends the job nor changes when the job began."""
    tracker = JobTracker()
    job = tracker.identify(seen("c1", 7, 5, 10))
    assert tracker.identify(seen("c1", 7, 5, 12)) == job
    assert tracker.identify(seen("c1", 7, 5, 11)) == job
    assert tracker.identify(seen("c1", 7, 5, 8)) == job
    assert tracker.identify(seen("c1", 7, 5, 15)) == job
    assert tracker.identify(seen("c1", 7, 5, 1)).since == HOUR
    assert tracker.identify(seen("c1", 7, 5, 15.5)) == job


def test_a_tracker_forgets_what_is_long_over() -> None:
    """Its memory is that of the jobs of the last hours."""
    tracker = JobTracker()
    for number in range(10_000):
        tracker.identify(seen("c1", number, 5, number / 100))
        tracker.identify(seen("c1", number, 0, number / 100))
    assert len(tracker._seen) <= 601


def test_a_sample_tells_of_its_jobs() -> None:
    """One record for each; without a time nobody can say whose they are."""
    jobs = (SampleJob(7, "u"), SampleJob(8, "u", 5))
    sample = SampleAttributes("1970-01-01T02:00:00+01:00", "fox", "c1", None, jobs)
    assert list(job_observations(sample)) == [seen("c1", 7, 0, 1), seen("c1", 8, 5, 1)]
    with pytest.raises(DataError, match="no time"):
        list(job_observations(SampleAttributes(jobs=jobs)))


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
