"""Starts and stops that outlive the process, and starts from the reporting file."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccpipe.config import Duration, Site
from ccpipe.formats.gridengine import Accounting, Origin, read
from ccpipe.formats.gridengine.reporting import JobLog, read_job_log
from ccpipe.formats.lineprotocol import decode, encode, to_lines
from ccpipe.formats.lineprotocol.writer import original
from ccpipe.jobs import Jobs
from ccpipe.message import Message
from ccpipe.telemetry import Telemetry
from ccpipe.translate.gridengine.jobs import from_event, job_of, to_event
from ccpipe.translate.gridengine.translator import SETTLE, AccountingJobs
from tests.translate.gridengine.test_assembler import DATA, NOW, SECOND, record
from tests.translate.gridengine.test_jobs import SITE, Backend

REPORTING = (DATA / "reporting.head").read_bytes()


def line(event: str, number: int = 1, at: int = 10, task: int = 0, **known: Any) -> Message:
    log = JobLog(
        **{
            "time": NOW + at * SECOND, "event": event, "job_number": number, "task_number": task,
            "pe_taskid": None, "state": "t", "user": "master", "host": "master",
            "submission_time": NOW, "job_name": "burn", "owner": "anna", "group": "staff",
            "project": None, "department": "physics", "account": "sge", "message": "sent",
            **known,
        }
    )  # fmt: skip
    return to_event(log, cluster="fox")


def translator_of(**options: Any) -> AccountingJobs:
    return AccountingJobs(**{"site": SITE, "stop_delay": Duration(0), "live": True, **options})


def accounting(*records: Accounting) -> list[Message]:
    return [to_event(each, cluster="fox") for each in records]


def reported(messages: Any) -> list[tuple[str, int, int]]:
    payloads = [(m.tags["function"], json.loads(str(m.value))) for m in messages]
    return [(function, each["jobId"], each["startTime"]) for function, each in payloads]


BEGIN = NOW // SECOND


def test_translator_sends_start_once_from_job_log() -> None:
    """By ``sent`` or ``delivered``, whichever is first; the stop has the same start."""
    translator, backend = translator_of(), Backend()
    first = translator.feed(to_lines([line("sent", at=9), line("delivered", at=11)]))
    assert reported(first) == [("start_job", 1, BEGIN + 9)]
    start = json.loads(str(first[0].value))
    assert start["resources"] == [{"hostname": "unknown"}]
    assert start["metaData"]["nodes"].startswith("unknown")
    last = translator.feed(to_lines(accounting(record(begin=10))))
    assert reported(last) == [("stop_job", 1, BEGIN + 9)]
    for message in [*first, *last]:
        backend.take(message)


@pytest.mark.parametrize(("sub_cluster", "count"), [("", 1), ("main", 0)])
def test_translator_warns_once_of_start_without_node(
    sub_cluster: str, count: int, caplog: pytest.LogCaptureFixture
) -> None:
    """cc-backend finds the subcluster by the nodes, and refuses a job where it cannot."""
    translator = translator_of(sub_cluster=sub_cluster)
    translator.feed(to_lines([line("sent", 1), line("sent", 2)]))
    assert caplog.text.count("sub_cluster is configured") == count


def test_translator_ignores_start_read_after_end() -> None:
    """The two files are written at different times."""
    translator = translator_of()
    assert reported(translator.feed(to_lines(accounting(record(begin=10))))) == [
        ("start_job", 1, BEGIN + 10),
        ("stop_job", 1, BEGIN + 10),
    ]
    assert list(translator.feed(to_lines([line("sent", at=9), line("delivered", at=10)]))) == []


def test_translator_sends_one_start_and_stop_of_rescheduled_job() -> None:
    """The start of its first run, from either file, and the stop of its last."""
    translator = translator_of()
    failed = record(begin=10, failed=25, exit_status=99)
    starts = translator.feed(
        to_lines([*accounting(failed), line("sent", at=10), line("sent", at=30)])
    )
    assert reported(starts) == [("start_job", 1, BEGIN + 10)]
    assert reported(translator.feed(to_lines(accounting(record(begin=31))))) == [
        ("stop_job", 1, BEGIN + 10)
    ]


def test_translator_stops_job_whose_start_failed() -> None:
    """No run of it has a time: it ended when it began, once the job is deleted."""
    translator = translator_of()
    never = record(failed=8, start_time=None, end_time=None)
    found = translator.feed(
        to_lines([line("sent", at=5), *accounting(never), line("deleted", at=60)])
    )
    assert reported(found) == [("start_job", 1, BEGIN + 5)]
    later = accounting(record(2, begin=60 + SETTLE // SECOND))
    *_, stop = translator.feed(to_lines(later))
    assert json.loads(str(stop.value)) == {
        "jobId": 1, "cluster": "fox", "startTime": BEGIN + 5, "stopTime": BEGIN + 5,
        "jobState": "failed",
    }  # fmt: skip


@pytest.mark.parametrize("task", [0, 3])
@pytest.mark.parametrize("comes", ["before", "after"])
def test_translator_stops_deleted_job_after_settle_time(task: int, comes: str) -> None:
    """After ten more minutes of other records, whichever file is read first."""
    translator = translator_of()
    waiting = accounting(record(begin=10, task_number=task, failed=25, exit_status=99))
    deleted = [line("deleted", at=30, task=-1 if comes == "after" else task)]
    lines = [*deleted, *waiting] if comes == "before" else [*waiting, *deleted]
    assert list(translator.feed(to_lines(lines))) == []
    name = 10**6 + task if task else 1
    assert (
        translator.feed(to_lines(accounting(record(2, begin=300))))[0].tags["function"]
        == "start_job"
    )
    found = translator.feed(to_lines(accounting(record(3, begin=30 + SETTLE // SECOND))))
    assert {each[1] for each in reported(found)} == {3, name}


def test_translator_sends_only_configured_output() -> None:
    """Lines and records pass, each once; without ``events`` starts are omitted."""
    translator = translator_of(emit=["records"])
    each, begun = accounting(record(origin=Origin("f", 0))), line("sent")
    assert list(translator.feed(to_lines([begun, *each, *each]))) == [begun, *each]


def test_translator_rejects_unreadable_line() -> None:
    """It becomes a dead letter, and the others are read."""
    translator = translator_of()
    broken = msgspec.structs.replace(line("sent"), value="{}")
    found = translator.feed(to_lines([broken, line("sent")]))
    assert len(found) == 1
    [bad] = found.rejected
    assert bad.original == original(broken)
    assert "job_log" in bad.reason


def real_messages() -> list[Message]:
    records = read(REPORTING, file="f").records
    logs, _ = read_job_log(REPORTING, file="f", offset=0, line=1)
    found = [(each.origin.offset, to_event(each, cluster="fox")) for each in records]
    found += [(each.origin.offset, to_event(each, cluster="fox")) for each in logs]
    return [message for _, message in sorted(found, key=lambda pair: pair[0])]


REAL = real_messages()


def test_translator_sends_valid_live_starts_of_real_jobs() -> None:
    """Every ``sent`` of the sample makes a start; every job that ended stops."""
    backend = Backend()
    for message in translator_of().feed(decode(encode(REAL, precision="auto"))):
        backend.take(message)
    starts = {
        (log.job_number, log.task_number)
        for log in map(from_event, REAL)
        if isinstance(log, JobLog) and log.is_start
    }
    assert len(backend.starts) == len(starts) > 40


class Bridge:
    """A repeating source, the translator and a sink; it may be killed between any two steps.

    Records arrive from the bus if it is `live`, else from a source in the same process.
    """

    def __init__(self, state: Path, batches: list[list[Message]], *, live: bool) -> None:
        self.state = state
        self.live = live
        self.batches: list[Any] = batches if live else [*map(read_jobs, batches)]
        self.acknowledged = 0
        self.written: list[Message] = []

    def run(self, dies: str, after: int) -> None:
        """Continue after what was acknowledged; die in the batch of that number."""
        emit = ["records", "events", "metrics"]
        translator = translator_of(state_file=str(self.state), emit=emit, live=self.live)
        for number, batch in enumerate(self.batches[self.acknowledged :]):
            is_last = number == after
            found = translator.feed(batch)
            if is_last and dies == "before it writes":
                return
            self.written += found
            if is_last and dies == "before it commits":
                return
            translator.commit(translator._outbox.feed)
            if is_last and dies == "before it acknowledges":
                return
            self.acknowledged += 1
        assert list(translator.flush()) == []  # waiting records are kept


def read_jobs(messages: list[Message]) -> Jobs:
    return Jobs(job_of(from_event(each), "fox") for each in messages)


def once(batches: list[list[Message]], directory: Path) -> list[Message]:
    bridge = Bridge(directory / "whole", batches, live=True)
    bridge.run("never", 0)
    return bridge.written


deaths = st.lists(
    st.tuples(
        st.sampled_from(["before it writes", "before it commits", "before it acknowledges"]),
        st.integers(0, 5),
    ),
    max_size=8,
)


@settings(max_examples=10)
@given(deaths, st.integers(5, 60), st.booleans())
def test_translator_output_is_unaffected_by_crashes(
    tmp_path_factory: pytest.TempPathFactory, dies: list[tuple[str, int]], size: int, live: bool
) -> None:
    """Every event once; where it dies before the commit, the same bytes again."""
    directory = tmp_path_factory.mktemp("bridge")
    batches = [REAL[i : i + size] for i in range(0, len(REAL), size)]
    bridge = Bridge(directory / "state", batches, live=live)
    for how, after in dies:
        bridge.run(how, after)
    bridge.run("never", 0)
    known = {how for how, _ in dies}
    expected = once(batches, directory)
    if "before it commits" in known:  # then a broker recognises them by their content
        assert set(map(key, bridge.written)) == set(map(key, expected))
    else:
        assert sorted(map(key, bridge.written)) == sorted(map(key, expected))


def key(message: Message) -> bytes:
    return encode([message], precision="auto")


def test_translator_repeats_no_start_if_batches_are_reordered_after_crash(tmp_path: Path) -> None:
    """A start that was sent is not sent again with other nodes."""
    site = Site(cluster="fox", hostname="master")
    begun = msgspec.structs.replace(line("sent"), value=_at(line("sent"), "r", 0))
    ended = accounting(record(begin=10, origin=Origin("a", 0)))
    first = translator_of(site=site, state_file=str(tmp_path / "state"))
    given = first.feed(to_lines([begun]))
    del first  # killed before it was written
    second = translator_of(site=site, state_file=str(tmp_path / "state"))
    found = second.feed(to_lines(ended))
    assert list(found[: len(given)]) == list(given)
    assert [each[0] for each in reported(found)] == ["start_job", "stop_job"]
    assert list(second.feed(to_lines([begun]))) == []


def _at(message: Message, file: str, offset: int) -> str:
    payload = json.loads(str(message.value))
    return json.dumps({**payload, "origin": {"file": file, "offset": offset}})


def test_translator_sends_held_stop_at_end_and_after_crash(tmp_path: Path) -> None:
    """It is in the state, and its feed is not committed before it was written."""
    options: dict[str, Any] = {
        "site": SITE,
        "live": True,
        "state_file": str(tmp_path / "state"),
        "stop_delay": Duration(600),
    }
    translator = AccountingJobs(**options)
    translator.feed(to_lines([line("sent")]))
    translator.commit(1)
    assert list(translator.feed(to_lines(accounting(record(begin=10))))) == []
    assert translator.oldest_held() == 2
    del translator  # killed
    translator = AccountingJobs(**options)
    assert list(translator.feed(to_lines([]))) == []
    assert reported(translator.flush()) == [("stop_job", 1, BEGIN + 10)]
    translator.commit(1)
    translator.feed(to_lines([line("sent", 2)]))
    assert list(translator.feed(to_lines(accounting(record(2, begin=10))))) == []
    assert reported(translator.flush()) == [("stop_job", 2, BEGIN + 10)]
    translator.commit(3)
    del translator
    assert list(AccountingJobs(**options).feed(to_lines([]))) == []


def test_stop_names_partition() -> None:
    """cc-energy-manager ignores one without; the start from the reporting file has none yet."""
    start, stop = translator_of().feed(to_lines([line("sent"), *accounting(record(qname="all.q"))]))
    assert (start.tags.get("partition"), stop.tags["partition"]) == (None, "all.q")
    assert stop.tags["hostname"] == "n1"


def test_dropped_records_are_counted_by_reason() -> None:
    """They appear in /metrics."""
    telemetry = Telemetry()
    translator = AccountingJobs(site=SITE, live=True, telemetry=telemetry)
    both = accounting(record(begin=10, origin=Origin("f", 0)))
    translator.feed(to_lines(both))
    translator.feed(to_lines(both))
    value = telemetry.registry.get_sample_value
    assert value("ccpipe_dropped_records_total", {"reason": "repeated"}) == 1
