"""Sonar's CSV: lines become envelopes, in blocks of any size."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.formats.sonar import Envelopes, SampleProcess
from ccpipe.formats.sonar import legacy_csv as csv
from ccpipe.formats.sonar.legacy_csv import CsvDecoder, is_csv

SAMPLES = (
    "v=0.13.200,time=2025-02-27T01:00:01+01:00,host=c1,user=ann,cmd=python3,job=7,ppid=22,"
    "cpu%=51.3,cpukib=194,rssanonkib=74,cputime_sec=9534,rolledup=255\n"
    'v=0.13.200,time=2025-02-27T01:00:01+01:00,host=c1,user=bob,"cmd=a, ""b""",pid=5,load=&J((1,'
    '"gpuinfo=fan%=27||28,perf=P8|P2|,musekib=10|20|30"\n'
    "v=0.13.200,time=2025-02-27T01:05:01+01:00,host=c1,user=ann,cmd=x,job=7,pid=3\n"
)
JOBS = (
    'v=0.1.0,JobID=7,JobIDRaw=7,User=ann,State=COMPLETED,"AllocTRES=cpu=1,mem=2G",JobName=a\n'
    "v=0.1.0,JobID=7.batch,JobIDRaw=7.batch,State=COMPLETED,JobName=batch\n"
    "v=0.1.0,JobID=7,JobIDRaw=7,State=COMPLETED,End=2025-03-10T01:35:24+01:00,JobName=a\n"
    "v=0.1.0,error=No can do,timestamp=2025-03-10T01:35:24+01:00\n"
)


def read(text: str | bytes, size: int = 2**20) -> Envelopes:
    raw = text.encode() if isinstance(text, str) else text
    decoder = CsvDecoder()
    parts = [decoder.feed(raw[i : i + size]) for i in range(0, len(raw), size)]
    parts.append(decoder.finish())
    return Envelopes.concat(parts)


def test_decoder_joins_records_of_node_and_time_to_sample() -> None:
    """Loads and GPUs come from the one record that has them."""
    envelopes = read(SAMPLES)
    assert envelopes.rejected == []
    first, second = [envelope.data.attributes for envelope in envelopes]  # type: ignore[union-attr]
    assert [job.user for job in first.jobs] == ["ann", "bob"]  # type: ignore[union-attr]
    assert first.jobs[0].processes == (  # type: ignore[union-attr]
        SampleProcess(cmd="python3", ppid=22, cpu_avg=51.3, virtual_memory=194, resident_memory=74,
                      cpu_time=9534, rolledup=255),
    )  # fmt: skip
    assert first.jobs[1].processes[0].cmd == 'a, "b"'  # type: ignore[union-attr]
    assert first.system.cpus == (897, 897 + 45)  # type: ignore[union-attr]
    cards = [(c.fan, c.memory, c.performance_state.value) for c in first.system.gpus]  # type: ignore[union-attr]
    assert cards == [(27, 10, 8), (0, 20, 2), (28, 30, None)]
    assert second.time == "2025-02-27T01:05:01+01:00"


def test_decoder_begins_envelope_at_repeated_job() -> None:
    """Job records have no time; errors are separate envelopes."""
    envelopes = read(JOBS)
    assert envelopes.rejected == []
    assert [len(e.data.attributes.slurm_jobs) for e in envelopes[:2] if e.data] == [2, 1]  # type: ignore[union-attr]
    assert envelopes[1].data.attributes.time == "2025-03-10T01:35:24+01:00"  # type: ignore[union-attr]
    assert envelopes[2].errors[0].detail == "No can do"


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"v=1,host=c1,cmd=x", "time is missing"),
        (b"v=1,time=2025-02-27T01:00:01+01:00,host=c1,cmd=x,pid=-1", "pid: expected an integer"),
        (b"v=1,time=2025-02-27T01:00:01+01:00,host=c1,cmd=x,pid=1,pid=2", "duplicate field 'pid'"),
        (b"v=1,time=2025-02-27T01:00:01+01:00,host=c1,cmd=x,cpu%=nan", "cpu%: expected a number"),
        (b"v=1,time=2025-02-27T01:00:01+01:00,host=c1,cmd=x,load=01", "load: expected numbers"),
        (b"v=1,time=2025-02-27T01:00:01+01:00,host=c1,cmd=x,", "expected name=value, got ''"),
        (b'v=1,"time=2025', "not CSV: "),
        (b"v=\xff", "not valid UTF-8"),
        (b"2022-07-01T07:00:02.1+00:00,ml1,64,ann,7,python,50.5,1024", "without names"),
    ],
)
def test_decoder_rejects_only_bad_line(line: bytes, reason: str) -> None:
    """With number, position and bytes; other lines still form their sample."""
    first, *rest = SAMPLES.encode().splitlines(keepends=True)
    envelopes = read(first + line + b"\r\n" + b"".join(rest))
    (bad,) = envelopes.rejected
    assert reason in bad.reason
    assert (bad.line, bad.offset, bad.original) == (2, len(first), line)
    assert envelopes == read(SAMPLES)


def test_decoder_rejects_sample_with_invalid_time() -> None:
    """The dead letter has all its lines."""
    line = b"v=1,time=noon,host=c1,cmd=x"
    envelopes = read(line + b",pid=1\n" + line + b",pid=2\n")
    (bad,) = envelopes.rejected
    assert envelopes == []
    assert bad.path == "$.data.attributes.time"
    assert bad.original == line + b",pid=1\n" + line + b",pid=2"


@given(st.sampled_from([SAMPLES, JOBS]), st.integers(1, 60))
def test_decoder_accepts_blocks_of_any_size(text: str, size: int) -> None:
    whole, pieces = read(text), read(text, size)
    assert (pieces, pieces.rejected) == (whole, whole.rejected)


@given(st.lists(st.sampled_from([*SAMPLES.split(","), b"", b"\n", b'"', b"\xff"]) | st.binary()))
def test_decoder_decodes_or_rejects_any_bytes(pieces: list[str | bytes]) -> None:
    """Rejected parts are in the stream at the reported position."""
    raw = b",".join(p.encode() if isinstance(p, str) else p for p in pieces)
    for bad in read(raw).rejected:
        assert raw[bad.offset :].startswith(bad.original.partition(b"\n")[0])
        assert bad.line == raw.count(b"\n", 0, bad.offset) + 1


def test_decoder_splits_endless_samples_and_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is bounded."""
    monkeypatch.setattr(csv, "MAX_RECORDS", 2)
    line = SAMPLES.splitlines()[2] + "\n"
    assert [len(e.data.attributes.jobs[0].processes) for e in read(5 * line)] == [2, 2, 1]  # type: ignore[union-attr]
    monkeypatch.setattr(csv, "LARGEST", 100)
    rejected = read(b"x" * 1000, size=50).rejected
    assert b"".join(bad.original for bad in rejected) == b"x" * 1000


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        (b"v=0.7.0,time=", True),
        (b'\n"cmd=a b",v=1', True),
        (b"cpu%=3,v=1", True),
        (b"2022-07-01T07:00:02+00:00,ml1", True),
        (b'{"v":"0.13.0"', False),
        (b'"attributes":{}}', False),
        (b"", False),
    ],
)
def test_csv_is_distinguished_from_json(start: bytes, expected: bool) -> None:
    """By the first bytes."""
    assert is_csv(start) == expected
