"""Writers of both formats: output reads back, and equals the real writers' output."""

import json
import math
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.errors import EncodeError
from ccpipe.formats.gridengine import HEADER, Accounting, Origin, encode_classic, encode_jsonl, read
from ccpipe.formats.gridengine.reader import EUSAGE, RUSAGE
from ccpipe.formats.gridengine.writer import double
from tests.paths import TEST_DATA

DATA = TEST_DATA / "gridengine"


def test_classic_writer_reproduces_real_file() -> None:
    """Header and 128 records are written byte for byte."""
    payload = (DATA / "accounting").read_bytes()
    assert HEADER + b"".join(map(encode_classic, read(payload).records)) == payload


def test_classic_writer_reproduces_real_reporting_file() -> None:
    """So are the acct lines of a reporting file, with a colon in a category."""
    lines = (DATA / "reporting.head").read_bytes().splitlines(keepends=True)
    records = read(b"".join(lines)).records
    assert [encode_classic(each) for each in records] == [
        line for line in lines if b":acct:" in line
    ]


def test_json_writer_reproduces_newest_lines() -> None:
    """From 9.1.2 on; older generations are written in the newest format."""
    lines = (DATA / "derived.jsonl").read_bytes().splitlines(keepends=True)
    records = read(b"".join(lines)).records
    assert [encode_jsonl(each) for each in records[3:]] == lines[3:]
    again = read(b"".join(map(encode_jsonl, records))).records
    assert [bare(each) for each in again] == [bare(each) for each in records]


def bare(record: Accounting) -> Accounting:
    return msgspec.structs.replace(record, origin=Origin())


NONE = {"NONE", "none"}
numbers = st.integers(0, 2**32 - 1)
seconds = st.none() | st.integers(1, 9 * 10**9).map(lambda second: second * 10**9)
microseconds = st.none() | st.integers(1, 2**63 // 1000 - 1).map(lambda stamp: stamp * 1000)
words = st.text(st.characters(exclude_characters=":\n\r", exclude_categories=["Cs"]), max_size=8)
awkward = st.text(st.characters(exclude_categories=["Cs"]), max_size=8) | st.just("caf\udce9")
sixths = st.integers(0, 2**40).map(lambda value: value / 2**6)
doubles = st.floats(allow_nan=False, allow_infinity=False)


def known(texts: st.SearchStrategy[str], times: Any) -> dict[str, Any]:
    names = ("owner", "group", "account", "qname", "hostname", "department", "job_name")
    maybe = st.none() | texts.filter(lambda text: text not in NONE)
    return {
        **dict.fromkeys(("job_number", "task_number", "arid", "failed"), numbers),
        **dict.fromkeys(("slots", "priority", "exit_status"), st.integers(-9, 2**31)),
        **dict.fromkeys(names, texts),
        **dict.fromkeys(("project", "granted_pe"), maybe),
        "pe_taskid": st.none() | st.just("1.node02"),
        **dict.fromkeys(("submission_time", "start_time", "end_time"), times),
    }


@given(
    st.builds(
        Accounting,
        **known(words, seconds),
        ar_submission_time=seconds,
        category=st.sampled_from(["", "-l a=b:c:d -pe smp 2,3", "x"]),
        usage=st.fixed_dictionaries({
            "rusage": st.fixed_dictionaries(
                dict.fromkeys(RUSAGE, numbers)
                | dict.fromkeys(("ru_utime", "ru_stime", "ru_maxrss", "ru_inblock"), sixths)
            ),
            "eusage": st.fixed_dictionaries(dict.fromkeys(EUSAGE, sixths)),
        }),
        reported=seconds,
    ).filter(lambda record: len(record.qname) > 0 and record.qname[0] not in "#{")
)  # fmt: skip
def test_classic_lines_round_trip(record: Accounting) -> None:
    """The record read is the record written, within the limits of the format."""
    assert [bare(each) for each in read(encode_classic(record)).records] == [record]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | words, st.lists, max_leaves=3
)


@given(
    st.builds(
        Accounting,
        **known(awkward, microseconds),
        category=awkward.filter(lambda text: text not in {*NONE, "-"}),
        submit_cmd_line=st.none() | awkward,
        deleted_by=st.none() | st.just("a@b"),
        usage=st.dictionaries(
            st.sampled_from(["rusage", "eusage", "gpu"]),
            st.dictionaries(words, doubles | st.integers(-(2**62), 2**62) | awkward, max_size=3),
        ),
        extra=st.dictionaries(words.map(lambda word: f"x{word}"), json_values, max_size=2),
        reported=microseconds,
    )
)  # fmt: skip
def test_json_lines_round_trip(record: Accounting) -> None:
    """The record read is the record written, to the microsecond and the last digit."""
    assert [bare(each) for each in read(encode_jsonl(record)).records] == [record]


@given(doubles)
def test_double_writes_shortest_digits(value: float) -> None:
    """RapidJSON's format reads as the same double, and is JSON of a double."""
    text = double(value)
    assert float(text) == value
    assert isinstance(json.loads(text), float) or "e" in text
    assert math.isfinite(float(text))


def test_classic_writer_rejects_colon_in_name() -> None:
    """The classic format has no escapes."""
    with pytest.raises(EncodeError, match="job 7: job_name has a colon or line end: 'a:b'"):
        encode_classic(Accounting(job_number=7, job_name="a:b"))
    with pytest.raises(EncodeError, match="category"):
        encode_classic(Accounting(job_number=7, category="a\nb"))
