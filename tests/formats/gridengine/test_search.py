"""Lines found by job number: no record is missed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.formats.gridengine import read
from ccpipe.formats.gridengine.search import lines_of_jobs
from tests.formats.gridengine.accounting_samples import SAMPLES, mutated

PAYLOADS = (
    st.lists(st.sampled_from(SAMPLES).flatmap(mutated), min_size=1, max_size=3).map(b"".join)
    | st.binary(max_size=100)
    | st.text("1:,{\n0acct", max_size=40).map(str.encode)
)
JOBS = st.lists(st.sampled_from([0, 1, 2, 5, 11, 92, 140, 1001, 1002, 2**70]), max_size=3)


@given(payload=PAYLOADS, jobs=JOBS)
def test_no_record_of_a_job_is_missed(payload: bytes, jobs: list[int]) -> None:
    """Each record of these jobs stands in one of the lines; all lines are counted."""
    starts, numbers, lines = lines_of_jobs(payload, jobs)
    reading = read(payload)
    assert lines == reading.lines
    found = set(zip(starts, numbers, strict=True))
    for record in reading.records:
        if record.job_number in jobs:
            assert (record.origin.offset, record.origin.line) in found


@pytest.mark.parametrize(
    "line",
    [
        b"1795170751:acct:all.q:n1:group:140:sim:17:sge",  # an owner called 140
        b'{"time":5,"type":"acct","job_number":17,',
        b"all.q:n1:g:anna:sim: 17:sge",
        b"all.q:n1:g:anna:sim:17.0:sge",
        b"all.q:n1:g:anna:sim:017:sge",
        b"# comment",
        b"all.q:n1:g:anna:si",
    ],
)
def test_unusual_lines_are_always_among_them(line: bytes) -> None:
    """A line that only a parser can judge is left to the parser."""
    other = b"all.q:n1:g:anna:sim:16:sge:"
    assert lines_of_jobs(b"%b\n%b\n%b\n" % (other, line, other), [17]) == ([28], [2], 3)
