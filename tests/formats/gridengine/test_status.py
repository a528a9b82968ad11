"""Running jobs and hosts from the XML of qstat and qhost."""

import contextlib
import re
from datetime import UTC, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.errors import DataError
from ccpipe.formats.gridengine.status import Host, parse_xml, read_hosts, read_pending, read_shares
from tests.paths import TEST_DATA

DATA = TEST_DATA / "gridengine"


ZONE = timezone(timedelta(hours=2))


def test_qstat_reader_applies_zone() -> None:
    """Times of qstat are local to its machine; pending jobs are omitted."""
    shares = read_shares(parse_xml((DATA / "qstat-g-t.xml").read_bytes()), zone=UTC)
    assert len(shares) == 7
    later = read_shares(parse_xml((DATA / "qstat-g-t.xml").read_bytes()), zone=ZONE)
    assert later[0].start_time == 1795170981 * 10**9 - 7200 * 10**9


RUNNING = b"<job_info><job_list state='running'>%b</job_list></job_info>"
TODAY = b"<JB_job_number>1</JB_job_number><JAT_start_time>today</JAT_start_time>"


@pytest.mark.parametrize(
    ("payload", "why"),
    [
        (b"", "not XML"),
        (b"<jobs/>", "the root is <jobs>, neither <job_info> nor <qhost>"),
        (b"<!DOCTYPE x [<!ENTITY a 'b'>]><job_info/>", "document type declaration"),
        (RUNNING % b"<JB_job_number>x</JB_job_number>", "not a number"),
        (RUNNING % TODAY, "not a time: 'today'"),
    ],
)
def test_qstat_reader_rejects_invalid_output(payload: bytes, why: str) -> None:
    with pytest.raises(DataError, match=why):
        read_shares(parse_xml(payload))


SAMPLE = (DATA / "qhost-j-q-F.xml").read_bytes()
NODE01 = Host(
    name="node01.cluster.example",
    processors=2,
    slots_used=3,
    jobs_running=3,
    is_reachable=True,
    is_disabled=False,
)


def test_qhost_reader_reads_real_cell() -> None:
    """Two hosts with a parallel job, an array and single jobs; ``global`` is not a host."""
    first, second = read_hosts(parse_xml(SAMPLE))
    assert first == NODE01
    assert (second.slots_used, second.jobs_running) == (4, 4)


def test_qhost_reader_counts_slots_by_jobs_without_queues() -> None:
    """As with ``qhost -j``: a share is a slot, except a MASTER share next to SLAVE shares."""
    without = re.sub(rb"(?s) <queue .*?</queue>\n", b"", SAMPLE)
    assert [host.slots_used for host in read_hosts(parse_xml(without))] == [3, 4]


def test_qhost_reader_leaves_unlisted_values_unknown() -> None:
    """Slots without ``-q`` and ``-j``, jobs without ``-j``, processors of an unreachable host."""
    no_jobs = re.sub(rb"(?s) *<job .*?</job>\n", b"", SAMPLE)
    nothing = re.sub(rb"(?s) *<queue .*?</queue>\n", b"", no_jobs)
    assert [(h.slots_used, h.jobs_running) for h in read_hosts(parse_xml(no_jobs))] == [
        (3, None),
        (4, None),
    ]
    assert [(h.slots_used, h.jobs_running) for h in read_hosts(parse_xml(nothing))] == [
        (None, None)
    ] * 2
    asked = read_hosts(parse_xml(nothing), lists_jobs=True)
    assert [(host.slots_used, host.jobs_running) for host in asked] == [(0, 0)] * 2
    silent = SAMPLE.replace(b"name='num_proc'>2", b"name='num_proc'>-")
    assert read_hosts(parse_xml(silent))[0].processors is None


@pytest.mark.parametrize(
    ("old", "new", "reachable", "disabled"),
    [
        (b"name='load_avg'>3.84", b"name='load_avg'>-", False, False),
        (b"name='state_string'>E", b"name='state_string'>au", False, False),
        (b"name='state_string'>E", b"name='state_string'>d", True, False),
        (b"name='state_string'>", b"name='state_string'>d", True, True),
    ],
)
def test_qhost_reader_derives_host_state_from_queues(
    old: bytes, new: bytes, reachable: bool, disabled: bool
) -> None:
    """One unreachable queue suffices; a host is disabled if all its queues are."""
    host = read_hosts(parse_xml(SAMPLE.replace(old, new)))[0]
    assert (host.is_reachable, host.is_disabled) == (reachable, disabled)


def test_host_reader_accepts_output_of_qstat() -> None:
    """It has no hosts."""
    assert read_hosts(parse_xml(b"<job_info/>")) == []


@given(
    st.binary(max_size=80)
    | st.text(max_size=40).map(str.encode)
    | st.binary(max_size=20).map(lambda noise: SAMPLE[:3000] + noise)
)
def test_status_readers_raise_only_data_error_for_any_bytes(payload: bytes) -> None:
    for reads in (read_shares, read_pending, read_hosts):
        with contextlib.suppress(DataError):
            reads(parse_xml(payload))
