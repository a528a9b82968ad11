"""Grid Engine's accounting files: every line is read, skipped or rejected with its position.

Fields of every variant of the colon-separated format; JSON lines of every release.
"""

import re
from codecs import BOM_UTF8
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from ccpipe.formats.gridengine.columns import COLUMNS, read_compiled, read_in_python
from ccpipe.formats.gridengine.reader import lines_of_jobs, read, read_stream, search_in_python
from ccpipe.formats.gridengine.record import Origin, Outcome, Variant
from tests.formats.gridengine.accounting_samples import (
    CLASSIC,
    DATA,
    SAMPLES,
    TAIL,
    data,
    data_line,
    mutated,
    one,
    reason,
)


def test_reader_reads_accounting_of_reporting_file() -> None:
    """Its 53 acct lines become records with the time reported; other lines are skipped."""
    reading = data("reporting.head")
    assert (len(reading.records), reading.rejected, reading.lines) == (53, [], 400)
    assert all(record.reported for record in reading.records)
    assert "-l lic_tag=a:b" in {record.category for record in reading.records}


def test_reader_rejects_malformed_lines_with_position_and_reason() -> None:
    """The two valid lines of eight are read."""
    payload = (DATA / "derived/derived-malformed.jsonl").read_bytes()
    reading = read(payload)
    assert [r.origin.line for r in reading.records] == [4, 8]
    assert [r.is_intermediate for r in reading.records] == [False, True]
    assert [(r.line, re.sub(r"\d+", "N", r.reason)) for r in reading.rejected] == [
        (1, "not JSON: Expecting ',' delimiter, at byte N"),
        (6, "not JSON: Expecting value, at byte N"),
        (7, "not JSON: Extra data, at byte N"),
    ]
    for bad in reading.rejected:
        assert payload[bad.offset :].startswith(bad.original + b"\n")


def test_reader_accepts_last_line_without_line_end() -> None:
    """Like qacct, even without the last three fields; otherwise it is rejected."""
    whole = f"{CLASSIC}NONE:{TAIL}:0:0".encode()
    assert read(whole).records == read(whole + b"\n").records != []
    assert read(data_line("derived.jsonl")).records
    (record,) = read(whole).records
    for cut in (whole[:-1], whole[:-2], whole[:-3]):
        assert read(cut).records == [record]
        assert read(cut + b"\n").records == []
    for cut in (whole[: whole.index(b"NONE")], data_line("derived.jsonl")[:-1]):
        reading = read(cut)
        assert (len(reading.records), len(reading.rejected)) == (0, 1)


@given(st.binary(max_size=300))
def test_reader_reads_or_rejects_any_bytes(payload: bytes) -> None:
    """No exception, and every byte and line is accounted for."""
    reading = read(payload)
    assert reading.size == len(payload)
    assert len(reading.records) + len(reading.rejected) <= reading.lines


@given(st.sampled_from(SAMPLES).flatmap(mutated))
def test_reader_reads_or_rejects_damaged_lines(payload: bytes) -> None:
    """No exception, and each line is either read or rejected."""
    reading = read(payload)
    assert reading.size == len(payload)
    for bad in reading.rejected:
        assert payload[bad.offset :].startswith(bad.original)
        assert bad.reason


def test_reader_reads_blocks_with_positions_in_file(tmp_path: Path) -> None:
    """Lines, offsets and records do not depend on the block size."""
    payload = (DATA / "accounting").read_bytes() * 40  # more than a block
    (tmp_path / "big").write_bytes(payload)
    with (tmp_path / "big").open("rb") as stream:
        parts = list(read_stream(stream, file="f"))
    assert len(parts) > 1
    assert [r for part in parts for r in part.records] == read(payload, file="f").records


def test_reader_reports_position_of_record() -> None:
    """File, offset and line are counted from the given ones."""
    reading = read(b"# x\n\n" + data_line("derived.jsonl") + b"\n", file="id", offset=1000, line=7)
    assert reading.records[0].origin == Origin("id", 1005, 9, Variant.JSONL_90)


@pytest.mark.parametrize("name", ["accounting", "derived.jsonl"])
def test_reader_ignores_byte_order_mark(name: str) -> None:
    """As written by editors on Windows; kernel and Python agree, even for concatenated files."""
    line = (DATA / name).read_bytes().splitlines(keepends=True)[-1]
    payload = BOM_UTF8 + line + BOM_UTF8 + line
    (plain,) = read(line).records
    found = read(payload)
    assert not found.rejected
    assert [replace(r, origin=plain.origin) for r in found.records] == [plain, plain]
    for reads in (read_compiled, read_in_python):
        table = reads(payload, COLUMNS, 1, 0)
        assert not table.rejected
        assert table.table["qname"].to_pylist() == [plain.qname] * 2


PAYLOADS = (
    st.lists(st.sampled_from(SAMPLES).flatmap(mutated), min_size=1, max_size=3).map(b"".join)
    | st.binary(max_size=100)
    | st.text("1:,{\n0acct", max_size=40).map(str.encode)
)
JOBS = st.lists(st.sampled_from([0, 1, 2, 5, 11, 92, 140, 1001, 1002, 2**70]), max_size=3)


@given(payload=PAYLOADS, jobs=JOBS)
def test_job_search_finds_all_records(payload: bytes, jobs: list[int]) -> None:
    """Each record of these jobs is in one of the lines; all lines are counted."""
    starts, numbers, lines = lines_of_jobs(payload, jobs)
    assert search_in_python(payload, jobs) == (starts, numbers, lines)
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
def test_job_search_includes_unusual_lines(line: bytes) -> None:
    """Lines that only a parser can judge are left to the parser."""
    other = b"all.q:n1:g:anna:sim:16:sge:"
    assert lines_of_jobs(b"%b\n%b\n%b\n" % (other, line, other), [17]) == ([28], [2], 3)


UNIVA = "NONE:anna@login1,root@m:2048.5:1024:login1:/home\udcadx:qsub a\udcffb"


def test_reader_converts_units() -> None:
    """Seconds become nanoseconds, 0 and NONE become None, KiB are kept in the usage."""
    record = one(f"{CLASSIC}NONE:{TAIL}:0:0")
    assert record.start_time == 1795170751 * 10**9
    assert (record.ar_submission_time, record.category, record.arid) == (None, "", 0)
    assert record.usage["rusage"]["ru_maxrss"] == 4696.0
    assert (record.maxrss, record.maxvmem) == (4696 * 1024, 5394432)
    assert (record.pe_taskid, record.granted_pe, record.slots) == ("1.node02", "smp", 4)


@pytest.mark.parametrize("colons", range(12))
def test_reader_rejoins_colons_in_category(colons: int) -> None:
    """The typed last fields distinguish 45 from 43 fields despite extra colons."""
    category = "-l lic_tag=a" + ":b" * colons
    new, old = one(f"{CLASSIC}{category}:{TAIL}:3:1795170700"), one(f"{CLASSIC}{category}:{TAIL}")
    assert (new.category, new.arid, new.origin.variant) == (category, 3, Variant.CLASSIC_45)
    assert (old.category, old.arid, old.origin.variant) == (category, 0, Variant.CLASSIC_43)


def test_reader_does_not_shift_empty_fields() -> None:
    """An empty project, account or PE task leaves all other fields in place."""
    line = f"{CLASSIC}NONE:{TAIL}:0:0".replace("astro", "").replace(":sge:", "::")
    record = one(line.replace("1.node02", ""))
    assert (record.project, record.account, record.pe_taskid) == ("", "", None)
    assert (record.department, record.cpu) == ("physdept", 1.75)


@pytest.mark.parametrize(
    ("tail", "variant"),
    [("", Variant.UNIVA_52), (":10.5:17", Variant.UNIVA_54), (":10.5:17:0,1", Variant.UNIVA_55)],
)
def test_reader_reads_univa_milliseconds_and_colons(tail: str, variant: Variant) -> None:
    """Times and wall clock are in milliseconds; a high byte replaces colons in paths."""
    line = f"{CLASSIC}-l a=b:c:{TAIL}:0:0:{UNIVA}{tail}".replace(":10:1.5", ":10250:1.5")
    line = re.sub("17951707([0-9]{2})", r"17951707\g<1>125", line)
    record = one(line.encode("utf-8", "surrogateescape"))
    assert record.origin.variant is variant
    assert (record.start_time, record.wallclock) == (1795170751125 * 10**6, 10.25)
    assert (record.category, record.submit_cmd_line) == ("-l a=b:c", "qsub a:b")
    assert (record.extra["cwd"], record.deleted_by) == ("/home:x", "anna@login1,root@m")
    assert record.outcome is Outcome.CANCELLED
    assert record.amount("eusage", "ioops") == (17 if tail else 0)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("a:b", "expected at least 43 fields, got 2"),
        (f"{CLASSIC}NONE:{TAIL}:0:".replace(":77:", ":7x7:"), "field 6, job_number, is '7x7'"),
        (f"{CLASSIC}NONE:{TAIL}:0:0".replace(":77:", ":7.5:"), "job_number is '7.5': not a whole"),
        (f"{CLASSIC}NONE:{TAIL}:0:x", "45 fields whose types match no known variant"),
        (f"{CLASSIC}NONE:{TAIL}:0:99999999999999999999", "ar_submission_time is"),
        (f"{CLASSIC}NONE:{TAIL}:0:99999999999", "is not a time between the years 1970 and 2262"),
        (f"{CLASSIC}NONE:0.1{CLASSIC}NONE:{TAIL}:0:0", "two records in one line"),
        (f"{CLASSIC}NONE:1e999:NONE:0:0:0", "iow is '1e999': beyond the range of a double"),
    ],
)
def test_reader_rejects_other_lines_with_reason(line: str, why: str) -> None:
    """The reason names the invalid field."""
    assert why in reason(line)


def test_reader_reads_all_generations_of_json_lines() -> None:
    """All 24 derived lines are read, including the old container name."""
    reading = data("derived.jsonl")
    assert (len(reading.records), reading.rejected) == (24, [])
    oldest = reading.records[0]
    assert oldest.origin.variant is Variant.JSONL_90
    assert oldest.usage["eusage"]["maxrss"] == 50262016.0
    assert oldest.start_time == 1787650001234567000
    assert [str(r.outcome) for r in reading.records if r.outcome is not Outcome.COMPLETED] == [
        "failed", "cancelled", "timeout", "failed", "start_failed", "node_fail", "requeued",
        "failed",
    ]  # fmt: skip


def test_reader_keeps_custom_usage_and_awkward_strings() -> None:
    """Custom containers are kept whole, with numbers and texts, even if empty."""
    records = data("derived.jsonl").records
    custom = [name for r in records for name in r.usage if name not in {"rusage", "eusage"}]
    assert custom == ["gpu", "info", "gpu"]
    assert records[18].usage["info"]["app_name"] == "lammps"
    assert records[19].usage["gpu"] == {}
    assert "\t" in str(records[20].submit_cmd_line)


def test_reader_keeps_invalid_utf8() -> None:
    """A latin-1 name is read, and written back as the same byte."""
    (record,) = data("derived/derived-latin1.jsonl").records
    assert record.job_name.encode("utf-8", "surrogateescape") == b"caf\xe9"


def test_reader_keeps_unknown_keys() -> None:
    """A key unknown to all releases so far is kept with its value."""
    line = data_line("derived.jsonl").replace(b'"owner"', b'"colour":[1,{"a":2}],"owner"')
    assert one(line).extra == {"colour": [1, {"a": 2}]}


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ('{"job_number":1}', "missing required field `start_time`"),
        ('{"job_number":"1"}', "job_number: Expected `int`, got `str`"),
        ('{"a":NaN}', "NaN is not a JSON number"),
        ('{"a":1e999}', "1e999 is beyond the range of a double"),
        ("{" * 100_000, "not JSON"),
    ],
)
def test_reader_rejects_other_json_with_reason(line: str, why: str) -> None:
    """A missing key, a wrong type or an impossible number is named."""
    assert why in reason(line)
