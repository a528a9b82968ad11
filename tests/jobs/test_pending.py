"""Events about jobs that wait, and which of a queue are reported."""

import itertools
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from ccpipe.errors import DataError
from ccpipe.formats.lineprotocol import decode, encode
from ccpipe.jobs import pending
from ccpipe.jobs.pending import (
    EXPIRY,
    REPEAT,
    PendingJob,
    QueueReports,
    count_tasks,
    read_pending_event,
)
from ccpipe.message import Message, event
from ccpipe.pipeline.state import StateStore

SECOND = 10**9
NOW = 1_795_170_000 * SECOND
JOB = PendingJob(
    cluster="fox", id=7, user="alice", name="cfd", project="physics", partition="main,long",
    submit=1_795_160_000, nodes=4, hwthreads=128, walltime=3600, reason="Resources",
)  # fmt: skip


def numbered(*numbers: int, **changes: Any) -> list[PendingJob]:
    return [replace(JOB, id=number, **changes) for number in numbers]


def payloads(messages: Iterable[Message]) -> list[dict[str, Any]]:
    return [json.loads(str(message.value)) for message in messages]


def ids(messages: Iterable[Message], key: str = "pending") -> list[int]:
    return [job["jobId"] for payload in payloads(messages) for job in payload.get(key, [])]


def reports(path: Path | None = None) -> QueueReports:
    state = StateStore(str(path) if path else "")
    made = QueueReports("fox", state)
    state.open()
    return made


def test_event_has_jobs_of_one_user_and_is_read_back() -> None:
    other = replace(JOB, id=8, user="bob", tasks=99)
    first, second = messages = list(reports().update([JOB, other], NOW))
    assert [(each.name, each.time) for each in messages] == [("jobpending", NOW)] * 2
    assert payloads([first]) == [{
        "cluster": "fox", "user": "alice", "pending": [{
            "jobId": 7, "jobName": "cfd", "project": "physics", "partition": "main,long",
            "submitTime": 1_795_160_000, "numNodes": 4, "numHwthreads": 128, "walltime": 3600,
            "reason": "Resources",
        }],
    }]  # fmt: skip
    received = [read_pending_event(each) for each in decode(encode([first, second]))]
    assert [job for each in received for job in each.pending] == [JOB, other]


def test_job_is_reported_when_new_changed_or_gone() -> None:
    """What has not changed is not repeated with each poll."""
    queue = reports()
    assert ids(queue.update(numbered(1, 2), NOW)) == [1, 2]
    assert ids(queue.update(numbered(1, 2), NOW + SECOND)) == []
    changed = [*numbered(1), *numbered(2, reason="Priority")]
    assert ids(queue.update(changed, NOW + SECOND)) == [2]
    states = {1: "running"}
    (gone,) = queue.update([], NOW + SECOND, state_of=lambda job: states.get(job, ""))
    assert payloads([gone]) == [
        {"cluster": "fox", "user": "alice", "left": [{"jobId": 1, "jobState": "running"},
                                                     {"jobId": 2}]},
    ]  # fmt: skip
    assert list(queue.update([], NOW + SECOND)) == []


def test_job_is_repeated_before_readers_forget_it() -> None:
    queue = reports()
    times = [NOW + step * REPEAT // 4 for step in range(12)]
    at = [time for time in times if ids(queue.update([JOB], time))]
    assert max(b - a for a, b in itertools.pairwise(at)) <= EXPIRY // 2
    assert len(at) == 3


def test_restart_repeats_nothing_and_reports_jobs_that_left_meanwhile(tmp_path: Path) -> None:
    """The state file has what was reported."""
    state = StateStore(str(tmp_path / "state"))
    queue = QueueReports("fox", state)
    state.open()
    assert ids(queue.update(numbered(1, 2), NOW)) == [1, 2]
    state.commit(is_durable=True)
    state.close()
    again = list(reports(tmp_path / "state").update(numbered(2), NOW + SECOND))
    assert (ids(again), ids(again, "left")) == ([], [1])


def test_changes_of_large_queue_are_spread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those reported longest ago come first, so that each has its turn."""
    monkeypatch.setattr(pending, "MAX_CHANGES", 2)
    queue = reports()
    assert len(ids(queue.update(numbered(*range(5)), NOW))) == 5
    found = [
        ids(queue.update(numbered(*range(5), reason="Priority"), NOW + step * SECOND))
        for step in range(1, 5)
    ]
    assert found == [[0, 1], [2, 3], [4], []]


def test_queue_beyond_maximum_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that are in it stay in it."""
    monkeypatch.setattr(pending, "MAX_PENDING", 3)
    queue = reports()
    assert ids(queue.update(numbered(*range(5)), NOW)) == [0, 1, 2]
    assert list(queue.update(numbered(*range(5)), NOW + SECOND)) == []


def test_events_fit_a_message_of_a_broker() -> None:
    """Even with the longest texts in every field."""
    long = dict.fromkeys(("name", "project", "partition", "reason"), "\u20ac" * 255)
    made = list(reports().update(numbered(*range(450), **long), NOW))
    assert len(ids(made)) == 450
    assert max(len(encode([each])) for each in made) < 2**20


@given(st.text() | st.just('{"cluster": "c", "pending": [{"jobId": 1}]}'), st.text())
def test_any_payload_gives_event_or_data_error(text: str, cluster: str) -> None:
    message = event("jobpending", "jobpending", text, time=1, tags={"cluster": cluster})
    try:
        found = read_pending_event(message)
    except DataError:
        return
    assert all(job.cluster == found.cluster for job in found.pending)


def test_other_event_is_not_about_queue() -> None:
    with pytest.raises(DataError, match="expected an event jobpending"):
        read_pending_event(event("job", "start_job", "{}", time=1, tags={}))


@pytest.mark.parametrize(
    ("text", "count"),
    [("0-9%2", 10), ("1,3,5-7", 5), ("1-10:3", 4), ("4", 1), ("", 0), ("1,3,...", 2)],
)
def test_tasks_of_array_are_counted(text: str, count: int) -> None:
    assert count_tasks(text) == count
