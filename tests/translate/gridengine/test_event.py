"""Accounting records and job_log lines as events on the bus."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.errors import DataError
from ccpipe.formats.gridengine.reader import read
from ccpipe.formats.gridengine.record import Accounting, Origin
from ccpipe.formats.gridengine.reporting import JobLog
from ccpipe.formats.lineprotocol import decode, encode
from ccpipe.message import event, metric
from ccpipe.translate.gridengine.jobs import from_event, is_event, tag, to_event
from tests.formats.gridengine.accounting_samples import DATA, SAMPLES


@pytest.mark.parametrize("name", SAMPLES)
def test_record_survives_round_trip_as_event(name: str) -> None:
    """Record, event, line, event, record: the same record with its origin."""
    records = read((DATA / name).read_bytes(), file="0f").records
    wire = encode([to_event(each, cluster="c", hostname="h") for each in records], precision="auto")
    assert [from_event(message) for message in decode(wire)] == records


def test_event_has_end_or_latest_known_time() -> None:
    """End, then report, start and submission; a record without any has no time."""
    times = {"submission_time": 1, "start_time": 2, "reported": 3, "end_time": 4}
    record = Accounting(job_number=1)
    found = []
    for name, time in times.items():
        record = msgspec.structs.replace(record, **{name: time})
        found.append(to_event(record, cluster="c").time)
    assert found == [1, 2, 3, 4]
    assert to_event(Accounting(job_number=1), cluster="c").time is None


def test_event_has_host_of_record_or_caller() -> None:
    """A job that never ran has no host; its event has the one the caller names, or none."""
    ran, waiting = Accounting(job_number=1, hostname="n1"), Accounting(job_number=2)
    assert to_event(ran, cluster="c", hostname="h").tags["hostname"] == "n1"
    assert to_event(waiting, cluster="c", hostname="h").tags["hostname"] == "h"
    assert "hostname" not in to_event(waiting, cluster="c").tags


def test_event_escapes_texts_invalid_in_tags() -> None:
    """Line feeds and a backslash at the end are written as in URLs."""
    assert (tag("n1"), tag("a\nb"), tag("a\\")) == ("n1", "a%0Ab", "a%5C")


def test_decoder_ignores_other_messages() -> None:
    """Only events of this class and function are."""
    assert is_event(to_event(Accounting(job_number=1), cluster="c"))
    tags = {"cluster": "c", "type": "node"}
    assert not is_event(event("accounting", "other", "{}", time=1, tags=tags))
    assert not is_event(metric("accounting", 1.0, time=1, tags=tags))


@pytest.mark.parametrize(
    ("payload", "why"),
    [
        ("x", "not JSON"),
        ('{"time":1,"type":"new_job"}', "without a record"),
        ('{"job_number":1,"start_time":0,"end_time":0,"failed":0,"exit_status":0,"origin":7}',
         "origin: Expected `object`"),
    ],
)  # fmt: skip
def test_decoder_rejects_invalid_payload(payload: str, why: str) -> None:
    """The error names the reason."""
    with pytest.raises(DataError, match=why):
        from_event(event("accounting", "record", payload, time=1, tags={"cluster": "c"}))


texts = st.text(max_size=5) | st.just("caf\udce9") | st.just("a\nb\\")
names = ("state", "user", "host", "job_name", "owner", "group", "department", "message")
known: dict[str, Any] = dict.fromkeys(names, texts)
logs = st.builds(
    JobLog, time=st.integers(0, 2**33).map(lambda s: s * 10**9), event=st.just("sent"),
    job_number=st.integers(0, 10**7), task_number=st.integers(-1, 9), pe_taskid=st.none() | texts,
    submission_time=st.integers(0, 2**33), project=st.none() | texts, account=texts,
    origin=st.builds(Origin, st.text(max_size=3), st.integers(0, 2**40), st.integers(0, 9)),
    **known,
)  # fmt: skip


@given(logs)
def test_line_survives_round_trip_as_event(log: JobLog) -> None:
    """Whatever its texts; bytes that are not UTF-8 become U+FFFD."""
    lines = decode(encode([to_event(log, cluster="fox")], precision="auto"))
    assert lines.rejected == []
    found = from_event(lines[0])
    assert isinstance(found, JobLog)
    assert (found.job_number, found.task_number) == (log.job_number, log.task_number)
    assert (found.origin, found.owner) == (log.origin, log.owner.replace("\udce9", "\ufffd"))
