"""What runs now, from the XML of qstat and qhost."""

import contextlib
from datetime import UTC, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.errors import DataError
from ccpipe.formats.gridengine.status import read_shares
from tests.paths import TEST_DATA

DATA = TEST_DATA / "gridengine"


ZONE = timezone(timedelta(hours=2))


def test_times_of_qstat_have_a_zone() -> None:
    """Qstat prints those of its machine; only jobs that run are marked as such."""
    shares = read_shares((DATA / "qstat-g-t.xml").read_bytes(), zone=UTC)
    assert len(shares) == 24
    assert {share.state for share in shares if not share.is_running} == {"Eqw", "hqw", "qw"}
    later = read_shares((DATA / "qstat-g-t.xml").read_bytes(), zone=ZONE)
    assert later[0].start_time == 1795170981 * 10**9 - 7200 * 10**9


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
