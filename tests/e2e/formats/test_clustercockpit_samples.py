"""Output of real ClusterCockpit programs, and examples of the specification."""

import json
import re

import pytest

from ccpipe.formats.lineprotocol import Lines, Rule, decode, encode
from ccpipe.message import Kind, Message
from tests.paths import TEST_DATA

SECOND = 10**9
_FILE = TEST_DATA / "clustercockpit_samples.txt"
_SAMPLES = re.compile(r"^## (\w+) (OK|REJECT)\n(.*?)\n(?=## |\Z)", re.DOTALL | re.MULTILINE)
SAMPLES = {
    name: (body.encode(), verdict) for name, verdict, body in _SAMPLES.findall(_FILE.read_text())
}


def sample(name: str, *, lenient: bool = False) -> Lines:
    return decode(SAMPLES[name][0] + b"\n", lenient=lenient)


def test_sample_file_is_complete() -> None:
    assert len(SAMPLES) == 25


@pytest.mark.parametrize("name", SAMPLES)
def test_decoder_agrees_with_decoder_of_clustercockpit(name: str) -> None:
    """It accepts and rejects the same samples."""
    lines = sample(name)
    if SAMPLES[name][1] == "OK":
        assert lines.rejected == []
        assert list(decode(encode(lines, precision="auto"))) == list(lines)
    else:
        assert len(lines) == 0
        assert len(lines.rejected) == 1


# The specification's example for each category of message; two break its own grammar.
METRIC = b"flops_any,hostname=e1208,type=core,type-id=23 value=1203.3 1740027951"
EVENT = (
    b"job,hostname=mngmt02,type=node,type-id=0,function=stop_job "
    b'event={"jobId": 69, "cluster": "ccfront", "stopTime": 1738842306, '
    b'"jobState": "completed"} 1740027951'
)
CONTROL = (
    b"rapl,hostname=e1208,type=socket,type-id=2,method=GET "
    b"control=intel.pkg.energy_status 1740027951"
)
LOG = (
    b"ccb,hostname=server01,type=node,type-id=1,loglevel=info "
    b'log="component: archiver cluster: alex jobId: 232383 - archiving finished" 1740027951'
)


def test_decoder_reads_metric_of_specification() -> None:
    """*Metrics*."""
    (message,) = decode(METRIC)
    assert message == Message(
        "flops_any",
        {"hostname": "e1208", "type": "core", "type-id": "23"},
        1203.3,
        1740027951 * SECOND,
    )
    assert (message.kind, message.problems()) == (Kind.METRIC, [])


def test_decoder_reads_log_of_specification() -> None:
    """*Logs*."""
    (message,) = decode(LOG)
    assert message.value == ("component: archiver cluster: alex jobId: 232383 - archiving finished")
    assert (message.kind, message.problems()) == (Kind.LOG, [])


@pytest.mark.parametrize(
    ("line", "kind", "value"),
    [
        (EVENT, Kind.EVENT, EVENT[EVENT.index(b"{") : EVENT.index(b"}") + 1].decode()),
        (CONTROL, Kind.CONTROL, "intel.pkg.energy_status"),
    ],
    ids=["event", "control"],
)
def test_decoder_repairs_unquoted_examples_of_specification(
    line: bytes, kind: Kind, value: str
) -> None:
    """Rejected at the column of the missing quote; repaired with ``lenient``."""
    (bad,) = decode(line).rejected
    place = line.index(b"=", line.index(b" ")) + 1
    assert (bad.rule, bad.column) == (Rule.VALUE, place + 1)
    assert f"column {place + 1}: the value is neither a number" in str(bad)
    (message,) = decode(line, lenient=True)
    assert (message.kind, message.value, message.problems()) == (kind, value, [])
    assert message.time == 1740027951 * SECOND
    assert list(decode(encode([message]))) == [message]


def test_decoder_unescapes_quoted_json() -> None:
    """Two levels of escapes are removed one at a time (S14, S16, S23, S24)."""
    for name in ("S14", "S16", "S23", "S24"):
        json.loads(str(sample(name)[0].value))
    job = json.loads(str(sample("S23")[0].value))
    assert job["metaData"]["jobScript"] == '#!/bin/bash -l\n#SBATCH --comment="a,b"\n'


def test_decoder_distinguishes_seconds_and_nanoseconds() -> None:
    """Collectors write seconds, the Slurm adapter writes nanoseconds (S5, S24)."""
    assert sample("S5")[0].time == 1740027951 * SECOND
    assert sample("S24")[0].time == 1649763839 * SECOND


def test_decoder_reads_raw_and_escaped_line_ends_alike() -> None:
    """cc-lib's two encoders write one log in two ways (S38, S39)."""
    assert sample("S38")[0].value == sample("S39")[0].value == 'line1\nline2 "q" \\ end'


def test_decoder_reads_string_among_numbers() -> None:
    """cc-metric-store loses the rest of the batch; here all three lines are read (S45)."""
    assert [m.value for m in sample("S45")] == [1.0, "x", 3.0]


def test_decoder_keeps_tags_of_lines_separate() -> None:
    """cc-metric-store applies the cluster of the previous line to one without cluster (S47)."""
    assert [m.tags.get("cluster") for m in sample("S47")] == ["alex", None]


@pytest.mark.parametrize(
    ("name", "count"), [("S2", 1), ("S3", 1), ("S25", 1), ("S18", 0), ("S43", 0)]
)
def test_lenient_decoder_repairs_only_known_errors(name: str, count: int) -> None:
    """A truncated string and NaN stay rejected."""
    assert len(sample(name, lenient=True)) == count
