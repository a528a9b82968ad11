"""What runs now, from the XML of qstat and qhost."""

import contextlib
from datetime import UTC, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.errors import DataError
from ccpipe.formats.gridengine.status import RunningJob, Share, read_shares, running_jobs
from tests.paths import TEST_DATA

DATA = TEST_DATA / "gridengine"


ZONE = timezone(timedelta(hours=2))


def test_qstat_tells_the_hosts_of_running_jobs() -> None:
    """Shares of one job come together: hosts, the master's first, and slots; times have a zone."""
    shares = read_shares((DATA / "qstat-g-t.xml").read_bytes(), zone=UTC)
    assert len(shares) == 24
    found = {(job.job_number, job.task_number): job for job in running_jobs(shares)}
    assert found[92, 0] == RunningJob(
        job_number=92, task_number=0, name="colonmpi", owner="anna", queue="all.q",
        hosts=("node02.cluster.example", "node01.cluster.example"), slots=2,
        start_time=1795170981 * 10**9,
    )  # fmt: skip
    assert (103, 1) in found
    assert {share.state for share in shares if not share.is_running} == {"Eqw", "hqw", "qw"}
    later = read_shares((DATA / "qstat-g-t.xml").read_bytes(), zone=ZONE)
    assert later[0].start_time == 1795170981 * 10**9 - 7200 * 10**9


def by_key(shares: list[Share]) -> dict[tuple[int, int], RunningJob]:
    """Return what runs by job and task."""
    return {(job.job_number, job.task_number): job for job in running_jobs(shares)}


def test_qhost_tells_the_same_jobs() -> None:
    """Both programs were asked at the same moment of the same cell."""
    by_host = by_key(read_shares((DATA / "qhost-j-q-F.xml").read_bytes()))
    by_job = by_key(read_shares((DATA / "qstat-g-t.xml").read_bytes(), zone=UTC))
    both = by_host.keys() & by_job.keys()
    assert len(both) >= 3
    for key in both:
        assert by_host[key].owner == by_job[key].owner
        assert set(by_host[key].hosts) == set(by_job[key].hosts)
        assert by_host[key].slots == by_job[key].slots


TODAY = b"""<job_info><job_list><JB_job_number>1</JB_job_number>
<JAT_start_time>today</JAT_start_time></job_list></job_info>"""


@pytest.mark.parametrize(
    ("payload", "why"),
    [
        (b"", "not XML"),
        (b"<jobs/>", "the root is <jobs>, neither <job_info> nor <qhost>"),
        (b"<!DOCTYPE x [<!ENTITY a 'b'>]><job_info/>", "a document type"),
        (
            b"<job_info><job_list><JB_job_number>x</JB_job_number></job_list></job_info>",
            "not a number",
        ),
        (TODAY, "'today' is no time"),
    ],
)
def test_what_qstat_does_not_write_is_refused(payload: bytes, why: str) -> None:
    """In words that say what is wrong."""
    with pytest.raises(DataError, match=why):
        read_shares(payload)


@given(st.binary(max_size=80) | st.text(max_size=40).map(str.encode))
def test_any_bytes_are_read_or_refused(payload: bytes) -> None:
    """No bytes raise anything but the named error."""
    with contextlib.suppress(DataError):
        read_shares(payload)
