"""Grid Engine's accounting files: every line is read, skipped or rejected with its place.

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


def test_a_reporting_file_gives_its_accounting_and_skips_the_rest() -> None:
    """53 acct lines are records that know when they were reported; other lines are no error."""
    reading = data("reporting.head")
    assert (len(reading.records), reading.rejected, reading.lines) == (53, [], 400)
    assert all(record.reported for record in reading.records)
    assert "-l lic_tag=a:b" in {record.category for record in reading.records}


def test_malformed_lines_cost_themselves_and_say_where_and_why() -> None:
    """The two good lines of eight are read; each bad one has its line, offset and reason."""
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


def test_a_last_line_without_a_line_end_counts_if_it_is_a_record() -> None:
    """As in qacct, which does without the last three fields; else it is rejected."""
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
def test_any_bytes_are_read_or_rejected(payload: bytes) -> None:
    """Whatever the bytes: no exception, and every byte and line is accounted for."""
    reading = read(payload)
    assert reading.size == len(payload)
    assert len(reading.records) + len(reading.rejected) <= reading.lines


@given(st.sampled_from(SAMPLES).flatmap(mutated))
def test_damaged_lines_are_read_or_rejected(payload: bytes) -> None:
    """Real lines with damage in them: no exception, and each line is one thing or the other."""
    reading = read(payload)
    assert reading.size == len(payload)
    for bad in reading.rejected:
        assert payload[bad.offset :].startswith(bad.original)
        assert bad.reason


def test_a_file_is_read_in_blocks_with_the_places_of_the_whole(tmp_path: Path) -> None:
    """Lines, offsets and records are the same whether a file is read at once or in blocks."""
    payload = (DATA / "accounting").read_bytes() * 40  # more than a block
    (tmp_path / "big").write_bytes(payload)
    with (tmp_path / "big").open("rb") as stream:
        parts = list(read_stream(stream, file="f"))
    assert len(parts) > 1
    assert [r for part in parts for r in part.records] == read(payload, file="f").records


def test_the_place_of_a_record_is_where_its_line_begins() -> None:
    """File, offset and line are those the reader was told, plus what it has passed."""
    reading = read(b"# x\n\n" + data_line("derived.jsonl") + b"\n", file="id", offset=1000, line=7)
    assert reading.records[0].origin == Origin("id", 1005, 9, Variant.JSONL_90)


@pytest.mark.parametrize("name", ["accounting", "derived.jsonl"])
def test_byte_order_mark_is_not_part_of_a_record(name: str) -> None:
    """Editors of Windows write one; the kernel and Python agree, also where files were joined."""
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
def test_no_record_of_a_job_is_missed(payload: bytes, jobs: list[int]) -> None:
    """Each record of these jobs stands in one of the lines; all lines are counted, either way."""
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
def test_unusual_lines_are_always_among_them(line: bytes) -> None:
    """A line that only a parser can judge is left to the parser."""
    other = b"all.q:n1:g:anna:sim:16:sge:"
    assert lines_of_jobs(b"%b\n%b\n%b\n" % (other, line, other), [17]) == ([28], [2], 3)


UNIVA = "NONE:anna@login1,root@m:2048.5:1024:login1:/home\udcadx:qsub a\udcffb"


def test_units_are_ours() -> None:
    """Seconds become nanoseconds, 0 and NONE become None, KiB stay KiB in the whole usage."""
    record = one(f"{CLASSIC}NONE:{TAIL}:0:0")
    assert record.start_time == 1795170751 * 10**9
    assert (record.ar_submission_time, record.category, record.arid) == (None, "", 0)
    assert record.usage["rusage"]["ru_maxrss"] == 4696.0
    assert (record.maxrss, record.maxvmem) == (4696 * 1024, 5394432)
    assert (record.pe_taskid, record.granted_pe, record.slots) == ("1.node02", "smp", 4)


@pytest.mark.parametrize("colons", range(12))
def test_colons_in_the_category_rejoin_whatever_the_number_of_fields(colons: int) -> None:
    """The typed last fields tell 45 from 43 fields, even where colons make one count the other."""
    category = "-l lic_tag=a" + ":b" * colons
    new, old = one(f"{CLASSIC}{category}:{TAIL}:3:1795170700"), one(f"{CLASSIC}{category}:{TAIL}")
    assert (new.category, new.arid, new.origin.variant) == (category, 3, Variant.CLASSIC_45)
    assert (old.category, old.arid, old.origin.variant) == (category, 0, Variant.CLASSIC_43)


def test_empty_fields_never_shift() -> None:
    """An empty project, account and PE task leave every other field where it was."""
    line = f"{CLASSIC}NONE:{TAIL}:0:0".replace("astro", "").replace(":sge:", "::")
    record = one(line.replace("1.node02", ""))
    assert (record.project, record.account, record.pe_taskid) == ("", "", None)
    assert (record.department, record.cpu) == ("physdept", 1.75)


@pytest.mark.parametrize(
    ("tail", "variant"),
    [("", Variant.UNIVA_52), (":10.5:17", Variant.UNIVA_54), (":10.5:17:0,1", Variant.UNIVA_55)],
)
def test_univa_counts_in_milliseconds_and_hides_colons(tail: str, variant: Variant) -> None:
    """Times and wall clock are milliseconds; one high byte stands for a colon in paths."""
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
        ("a:b", "2 fields where a record has 43 at least"),
        (f"{CLASSIC}NONE:{TAIL}:0:".replace(":77:", ":7x7:"), "field 6, job_number, is '7x7'"),
        (f"{CLASSIC}NONE:{TAIL}:0:0".replace(":77:", ":7.5:"), "job_number is '7.5': not a whole"),
        (f"{CLASSIC}NONE:{TAIL}:0:x", "45 fields whose types fit no known variant"),
        (f"{CLASSIC}NONE:{TAIL}:0:99999999999999999999", "ar_submission_time is"),
        (f"{CLASSIC}NONE:{TAIL}:0:99999999999", "is not a time between the years 1970 and 2262"),
        (f"{CLASSIC}NONE:0.1{CLASSIC}NONE:{TAIL}:0:0", "two records in one line"),
        (f"{CLASSIC}NONE:1e999:NONE:0:0:0", "iow is '1e999': beyond the range of a double"),
    ],
)
def test_a_line_that_is_no_record_is_rejected_with_its_reason(line: str, why: str) -> None:
    """A line that fits no variant is rejected, and the reason names the wrong field."""
    assert why in reason(line)


def test_every_generation_of_json_lines_is_read() -> None:
    """All 24 derived lines are read; the old container's name is known and its values kept."""
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


def test_custom_usage_and_awkward_strings_are_kept() -> None:
    """Custom containers stay whole, numbers and texts, also an empty one; so do odd strings."""
    records = data("derived.jsonl").records
    custom = [name for r in records for name in r.usage if name not in {"rusage", "eusage"}]
    assert custom == ["gpu", "info", "gpu"]
    assert records[18].usage["info"]["app_name"] == "lammps"
    assert records[19].usage["gpu"] == {}
    assert "\t" in str(records[20].submit_cmd_line)


def test_bytes_that_are_not_utf8_are_kept() -> None:
    """A latin-1 name is read, and can be written as the byte it was."""
    (record,) = data("derived/derived-latin1.jsonl").records
    assert record.job_name.encode("utf-8", "surrogateescape") == b"caf\xe9"


def test_unknown_keys_are_kept() -> None:
    """A key that no release has written so far is kept with its value."""
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
def test_json_that_is_no_record_is_rejected_with_its_reason(line: str, why: str) -> None:
    """JSON with a missing key, a wrong type or an impossible number is rejected by name."""
    assert why in reason(line)
