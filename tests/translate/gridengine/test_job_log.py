"""job_log lines as events: starts and deletions survive the round trip."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ccpipe.formats.gridengine import Origin
from ccpipe.formats.gridengine.reporting import JobLog
from ccpipe.formats.lineprotocol import decode, encode
from ccpipe.translate.gridengine import job_log
from ccpipe.translate.gridengine.job_log import LoggedEvent
from tests.translate.gridengine.test_assembler import DATA

REPORTING = (DATA / "reporting.head").read_bytes()


def test_starts_and_deletions_are_read_with_their_places() -> None:
    """Other lines are skipped; file, offset and line say where each was."""
    found, rejected = job_log.read(b"# x\n" + REPORTING, file="f", offset=100, line=7)
    assert rejected == []
    assert {reported.log.event for reported in found} == {"sent", "delivered", "deleted"}
    for reported in found:
        text = (b"# x\n" + REPORTING)[reported.origin.offset - 100 :].split(b"\n")[0]
        assert text.split(b":")[3:5] == [
            reported.log.event.encode(),
            b"%d" % reported.log.job_number,
        ]
        assert reported.origin.file == "f"
        assert (b"# x\n" + REPORTING).split(b"\n")[reported.origin.line - 7] == text


def test_a_broken_line_is_rejected_with_its_place() -> None:
    """The next one is read."""
    good = next(
        line for line in REPORTING.split(b"\n") if b":job_log:" in line and b":sent:" in line
    )
    found, (bad,) = job_log.read(b"1:job_log:x\n" + good + b"\n", file="f", offset=5, line=2)
    assert (bad.line, bad.offset, bad.original) == (2, 5, b"1:job_log:x")
    assert [reported.origin.offset for reported in found] == [5 + 12]


texts = st.text(max_size=5) | st.just("caf\udce9") | st.just("a\nb\\")
names = ("state", "user", "host", "job_name", "owner", "group", "department", "message")
known: dict[str, Any] = dict.fromkeys(names, texts)
logs = st.builds(
    JobLog, time=st.integers(0, 2**33).map(lambda s: s * 10**9), event=st.just("sent"),
    job_number=st.integers(0, 10**7), task_number=st.integers(-1, 9), pe_taskid=st.none() | texts,
    submission_time=st.integers(0, 2**33), project=st.none() | texts, account=texts, **known,
)  # fmt: skip


@given(logs, st.builds(Origin, st.text(max_size=3), st.integers(0, 2**40), st.integers(0, 9)))
def test_a_line_survives_the_wire(log: JobLog, origin: Origin) -> None:
    """Whatever its texts; bytes that are not UTF-8 become U+FFFD."""
    event = job_log.to_event(LoggedEvent(log, origin), cluster="fox")
    lines = decode(encode([event], precision="auto"))
    assert lines.rejected == []
    reported = job_log.from_event(lines[0])
    assert reported.origin == origin
    assert reported.key == (log.job_number, log.task_number)
    assert reported.log.owner == log.owner.replace("\udce9", "\ufffd")
