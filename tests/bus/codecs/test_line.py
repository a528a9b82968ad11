"""Codecs: payloads to records, many small ones at once."""

import json
from typing import Any, NamedTuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ccpipe.bus.codecs import Packing
from ccpipe.bus.codecs.line import JOINED_BYTES, MAX_REJECTED, LineCodec, pack
from ccpipe.bus.nats.control_requests import control_request
from ccpipe.bus.subjects import Subjects
from ccpipe.config import Bus, Site
from ccpipe.errors import RejectedError
from ccpipe.formats.lineprotocol import EncodedLines, Lines, SeriesTable, decode, encode, to_lines
from ccpipe.formats.lineprotocol.series import MAX_DECISIONS
from ccpipe.message import Kind, Message, event, log, metric
from ccpipe.pipeline.stages import dead_letters_of
from tests.translate.records import MESSAGES


class Delivered(NamedTuple):
    """A message as a broker delivers it."""

    subject: str
    payload: bytes
    arrival: int = 7


lines = st.sampled_from(
    [b"m,hostname=a value=1 5", b"m,hostname=b value=2.5 6\n", b"n a=1,b=2i 7\r\n", b"m value=3",
     b'e event="a b" 8', b'e event="open', b'rest" 9', b"m,t=x\\", b"\\", b"# comment", b"", b"\n",
     b"broken", b"m value=1 5\nm value=2 6\n", b"\xff", b"m,\xc3\xa4=1 v=t 1"]
)  # fmt: skip
payloads = st.lists(
    st.lists(lines, max_size=3).map(b"\n".join) | st.binary(max_size=12), max_size=8
)


def origins(records: Lines) -> list[str]:
    assert records.provenance is not None
    return [records.provenance.origin(row) for row in range(len(records))]


@given(payloads)
@example([b"m,t=x\\", b"m value=1 5"])
@example([b'e event="open', b'rest" 9'])
def test_codec_decodes_joined_payloads_as_single_ones(payloads: list[bytes]) -> None:
    """The same records with the same origins, the same rejected lines, and each message once."""
    messages = [Delivered(f"s{i}", payload, 7 + i) for i, payload in enumerate(payloads)]
    found, rejected, total = [], [], 0
    for records, count in LineCodec().decode(messages):
        found += list(zip(records, origins(records), strict=True))
        assert records.provenance is not None
        origin = records.provenance.origins[0]
        rejected += [(bad.original, bad.line, bad.offset, origin) for bad in records.rejected]
        total += count
    alone = [(decode(each.payload).fill_missing_times(each.arrival), each) for each in messages]
    assert found == [(record, each.subject) for records, each in alone for record in records]
    assert rejected == [
        (bad.original, bad.line, bad.offset, each.subject)
        for records, each in alone
        for bad in records.rejected
    ]
    assert total == len(messages)


def test_codec_decodes_small_messages_together() -> None:
    """A thousand one-line messages make one batch, and large ones stay below the bound."""
    small = [Delivered("s", b"m value=%d %d" % (i, i)) for i in range(1, 1001)]
    assert [count for _, count in LineCodec().decode(small)] == [1000]
    large = [Delivered("s", b"m value=1 1\n" * (JOINED_BYTES // 24)) for _ in range(4)]
    assert [count for _, count in LineCodec().decode(large)] == [2, 2]


def test_codec_decodes_events_with_their_own_precision() -> None:
    """cc-lib's receivers read nanoseconds, cc-metric-store seconds; also on one subject."""
    tags = {"hostname": "a", "type": "node"}
    records = [
        metric("cpu_load", 1.0, time=1740027951 * 10**9, tags=tags),
        event("nodestate", "nodestate", "{}", time=1740027951 * 10**9, tags=tags),
        log("ccpipe", "info", "x", time=1740027951 * 10**9, tags=tags),
    ]
    flat = {"metrics": "x", "events": "x", "log": "x"}
    subjects = Subjects.of(Site(bus=Bus(subjects=dict(flat))))
    packing = Packing(9, 999, 999)
    codec = LineCodec(precision="s", event_precision="ns")
    payloads = [payload for _, payload in codec.encode(to_lines(records), subjects, packing)]
    times = [line.rpartition(b" ")[2] for line in b"".join(payloads).splitlines()]
    assert times == [b"1740027951", b"1740027951000000000", b"1740027951000000000"]
    ((_, plain),) = LineCodec(precision="ms").encode(to_lines(records), subjects, packing)
    assert plain.count(b" 1740027951000\n") == 3


def test_codec_puts_events_of_one_job_in_their_own_message() -> None:
    """Consecutive start and stop share a message, whatever the bounds; other events do not."""
    tags = {"hostname": "a", "type": "node"}

    def job(number: int, function: str) -> Message:
        text = json.dumps({"jobId": number, "cluster": "c", "jobState": "completed"})
        return event("job", function, text, time=10**9, tags=tags)

    other = event("accounting", "record", "x", time=10**9, tags=tags)
    records = [
        *(other, other, job(1, "start_job"), job(1, "stop_job")),
        *(job(2, "start_job"), job(3, "stop_job"), other, job(4, "start_job"), job(4, "stop_job")),
    ]
    subjects = Subjects.of(Site(bus=Bus(subjects={"events": "x"})))
    for lines, alone in ((500, [2]), (1, [1, 1])):
        messages = LineCodec().encode(to_lines(records), subjects, Packing(lines, 9999, 9999))
        counts = [payload.count(b"\n") for _, payload in messages]
        assert counts == [*alone, 2, 1, 1, 1, 2]


@given(
    st.lists(st.lists(MESSAGES, max_size=12), max_size=3),
    st.sampled_from(["{cluster}.metrics", "{cluster}.metrics.{hostname}", "flat", "m.{name}"]),
    st.sampled_from(["s", "ns"]),
)
def test_codec_encodes_columns_and_messages_alike(
    batches: list[list[Message]], template: str, event_precision: Any
) -> None:
    """On the same subjects, in the same payloads, whatever the codec encoded before."""
    given_subjects: dict[str, Any] = {"metrics": template, "events": "{cluster}.metrics"}
    subjects = Subjects.of(Site(bus=Bus(subjects=given_subjects)))
    packing = Packing(3, 200, 10_000)
    of_columns = LineCodec(precision="s", event_precision=event_precision)
    table = SeriesTable()
    for drawn in batches:
        batch = [message for message in drawn if message.kind is not Kind.CONTROL]
        lines = Lines.concat([Lines(table=table), to_lines(batch)])
        expected = LineCodec(precision="s", event_precision=event_precision)
        assert list(of_columns.encode(lines, subjects, packing)) == list(
            expected.encode(to_lines(batch), subjects, packing)
        )


def test_codec_rejects_control_requests() -> None:
    """A user who may write metrics over HTTP or to a file cannot make a bridge control a node."""
    tags = {"hostname": "n1", "type": "node"}
    request = control_request("interval", node="n1", value="9s")
    records = to_lines([metric("m", 1.0, time=10**9, tags=tags), request])
    with pytest.raises(RejectedError, match="control request"):
        list(LineCodec().encode(records, Subjects.of(Site()), Packing(500, 9999, 9999)))


@given(st.lists(st.binary(min_size=1, max_size=30)), st.integers(1, 5), st.integers(1, 60))
def test_packing_keeps_lines_in_order_and_within_bounds(
    lines: list[bytes], maximum: int, size: int
) -> None:
    """The joined payloads equal the lines; only a line that is itself too long exceeds a bound."""
    encoded = EncodedLines.of(lines)
    for first in (0, len(lines) // 2):
        own = lines[first:]
        payloads = list(pack(encoded, range(first, len(lines)), maximum, size))
        assert b"".join(payloads) == b"".join(own)
        assert all(len(payload) <= size or payload in own for payload in payloads)
        assert len(payloads) >= -(-len(own) // maximum)


@pytest.mark.parametrize("size", [65536, 60, 30, 5])
def test_codec_keeps_both_bounds_for_many_lines_of_one_subject(size: int) -> None:
    """Every line is encoded once, in order, with at most `max_records` lines per message."""
    records = to_lines([metric("m", number, time=10**9, tags={}) for number in range(20)])
    packing = Packing(3, size, 65536)
    payloads = [each for _, each in LineCodec().encode(records, Subjects.of(Site()), packing)]
    assert b"".join(payloads) == encode(records, precision="auto")
    counts = [payload.count(b"\n") for payload in payloads]
    assert max(counts) == max(1, min(3, size // len(b"m value=10 1\n")))
    assert all(len(each) <= size for each, count in zip(payloads, counts, strict=True) if count > 1)


def test_codec_diagnoses_limited_number_of_bad_lines() -> None:
    """The remaining lines are kept as they are, and counted."""
    payload = b"x\n" * (MAX_REJECTED + 1000)
    for messages in ([payload], [payload, b"m value=1 5"]):
        lines, _ = next(iter(LineCodec().decode([Delivered("s", each) for each in messages])))
        rejected = lines.rejected
        assert len(rejected) == MAX_REJECTED + 1
        assert b"\n".join(bad.original for bad in rejected) == payload
        assert sum(letter.lines for letter in dead_letters_of(rejected, "s")) == MAX_REJECTED + 1000


def test_codec_chooses_subject_by_tags_and_name_of_each_message() -> None:
    """Also after other messages of the same node: by name, by cluster, by node."""
    tags = [{"cluster": "a", "hostname": "n1"}, {"cluster": "b", "hostname": "n1"}, {}]
    metrics = [metric(name, 1.0, time=10**9, tags=each) for each in tags for name in ("x", "y")]
    records = to_lines([*metrics, log("c", "info", "t", time=10**9, tags=tags[0])])
    templates = ("{cluster}.metrics", "{cluster}.{hostname}", "{cluster}.{name}", "flat")
    for template in templates:
        site = Site(cluster="own", bus=Bus(subjects={"metrics": template}))
        subjects = Subjects.of(site)
        for packing in (Packing(500, 65536, 65536), Packing(1, 65536, 65536)):
            found = [
                (subject, line)
                for subject, payload in LineCodec().encode(records, subjects, packing)
                for line in payload.splitlines()
            ]
            wanted = [
                (
                    subjects.of_message(record),
                    LineCodec().encode(to_lines([record]), subjects, packing),
                )
                for record in records
            ]
            assert sorted(found) == sorted(
                (subject, payload.rstrip(b"\n")) for subject, each in wanted for _, payload in each
            )


def test_codec_reads_tags_once_for_more_series_than_decisions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A thousand nodes have more series than the default of ``PerSeries``."""
    count = MAX_DECISIONS + 1000
    lines = to_lines([Message("m", {"type-id": str(i)}, 1.0, 0) for i in range(count)])
    parts = lines[: count // 2], lines[count // 2 :]
    codec, subjects = LineCodec(), Subjects.of(Site(cluster="fritz"))
    packing = Packing(1000, 2**20, 2**20)
    first = [list(codec.encode(part, subjects, packing)) for part in parts]
    monkeypatch.setattr(Subjects, "of_message", None)
    assert [list(codec.encode(part, subjects, packing)) for part in parts] == first
