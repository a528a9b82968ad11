"""Grid Engine's accounting: what real writers write is read, and what fits nothing is named."""

import re
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.formats.gridengine import (
    Accounting,
    Origin,
    Outcome,
    Reading,
    Variant,
    meaning,
    parse_category,
    read,
    read_stream,
)
from ccpipe.formats.gridengine.category import seconds, size
from tests.paths import TEST_DATA

DATA = TEST_DATA / "gridengine"
CLASSIC = (
    "all.q:node01:physics:anna:burn:77:sge:0:1795170750:1795170751:1795170761:0:0:10:1.5:0.25:"
    "4696.000000:0:0:0:0:539:1:0:16.000000:8:0:0:0:4:2:astro:physdept:smp:4:0:1.75:0.5:0.25:"
)
TAIL = "0.125:1.node02:5394432.000000"


def one(line: str | bytes) -> Accounting:
    """Read one line that is one record."""
    reading = read((line if isinstance(line, bytes) else line.encode()) + b"\n")
    assert reading.rejected == []
    (record,) = reading.records
    return record


def reason(line: str) -> str:
    """Read one line that must be rejected, and say why it was."""
    reading = read(line.encode("utf-8", "surrogateescape") + b"\n")
    assert reading.records == []
    (rejected,) = reading.rejected
    return rejected.reason


def data(name: str) -> Reading:
    """Read one of the sample files."""
    return read((DATA / name).read_bytes(), file=name)


SUMS = {
    "WALLCLOCK": lambda r: r.wallclock,
    "UTIME": lambda r: r.amount("rusage", "ru_utime"),
    "STIME": lambda r: r.amount("rusage", "ru_stime"),
    "CPU": lambda r: r.cpu,
    "MEMORY": lambda r: r.amount("eusage", "mem"),
    "IO": lambda r: r.amount("eusage", "io"),
    "IOW": lambda r: r.amount("eusage", "iow"),
}
DIGITS = [0, 3, 3, 3, 3, 3, 3]


def row(records: list[Accounting]) -> list[str]:
    """Sum records as qacct prints them."""
    sums = [sum(map(amount, records)) for amount in SUMS.values()]
    return [f"{total:.{digits}f}" for total, digits in zip(sums, DIGITS, strict=True)]


def test_every_real_record_is_read_and_the_total_is_what_qacct_printed() -> None:
    """All 128 records of the real file are read; their sums are qacct's, to the last digit."""
    reading = data("accounting")
    assert (len(reading.records), reading.rejected, reading.lines) == (128, [], 132)
    assert row(reading.records) == (DATA / "qacct/total.txt").read_text().splitlines()[4].split()


@pytest.mark.parametrize(
    ("table", "key"), [("o", "owner"), ("P", "project"), ("pe", "granted_pe"), ("slots", "slots")]
)
def test_the_groups_sums_are_what_qacct_printed(table: str, key: str) -> None:
    """Grouped as qacct groups, each row of its table comes out to the last digit."""
    rows = [line.split() for line in (DATA / f"qacct/{table}.txt").read_text().splitlines()[3:-1]]
    assert rows
    groups: dict[str, list[Accounting]] = {}
    for record in data("accounting").records:
        groups.setdefault(str(getattr(record, key) or "NONE"), []).append(record)
    assert {name: row(records) for name, records in groups.items()} == {
        name: sums for name, *sums in rows
    }


def test_a_reporting_file_gives_its_accounting_and_skips_the_rest() -> None:
    """53 acct lines are records that know when they were reported; other lines are no error."""
    reading = data("reporting.head")
    assert (len(reading.records), reading.rejected, reading.lines) == (53, [], 400)
    assert all(record.reported for record in reading.records)
    assert "-l lic_tag=a:b" in {record.category for record in reading.records}


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


def test_bytes_that_are_not_utf8_are_kept() -> None:
    """A latin-1 name is read, and can be written as the byte it was."""
    (record,) = data("derived/derived-latin1.jsonl").records
    assert record.job_name.encode("utf-8", "surrogateescape") == b"caf\xe9"


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


UNIVA = "NONE:anna@login1,root@m:2048.5:1024:login1:/home\udcadx:qsub a\udcffb"


@pytest.mark.parametrize(
    ("tail", "variant"),
    [
        ("", Variant.UNIVA_52),
        (":10.5:17", Variant.UNIVA_54),
        (":10.5:17:0,1", Variant.UNIVA_55),
    ],
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
        ('{"job_number":1}', "missing required field `start_time`"),
        ('{"job_number":"1"}', "job_number: Expected `int`, got `str`"),
        ('{"a":NaN}', "NaN is not a JSON number"),
        ('{"a":1e999}', "1e999 is beyond the range of a double"),
        ("{" * 100_000, "not JSON"),
    ],
)
def test_what_fits_nothing_is_rejected_with_its_reason(line: str, why: str) -> None:
    """Nothing is guessed: a line that is no record is rejected, in words that help."""
    assert why in reason(line)


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


def data_line(name: str) -> bytes:
    """Return a file's first line without its end."""
    return (DATA / name).read_bytes().split(b"\n")[0]


def test_unknown_keys_are_kept() -> None:
    """A key that no release has written so far is kept with its value."""
    line = data_line("derived.jsonl").replace(b'"owner"', b'"colour":[1,{"a":2}],"owner"')
    assert one(line).extra == {"colour": [1, {"a": 2}]}


@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_rejected(payload: bytes) -> None:
    """Whatever the bytes: no exception, and every byte and line is accounted for."""
    reading = read(payload)
    assert reading.size == len(payload)
    assert len(reading.records) + len(reading.rejected) <= reading.lines


def mutated(name: str) -> st.SearchStrategy[bytes]:
    """Take a sample's bytes, and put something else in some places."""
    lines = (DATA / name).read_bytes().splitlines(keepends=True)
    junk = st.sampled_from(
        [b":", b"", b"\n", b"0", b"x", b"-1", b"NONE", b'"', b"{", b"\xff", b" "]
    )

    def mutate(drawn: tuple[list[bytes], list[tuple[int, int, bytes]]]) -> bytes:
        payload = b"".join(drawn[0])
        for at, length, replacement in drawn[1]:
            at %= len(payload) + 1  # noqa: PLW2901
            payload = payload[:at] + replacement + payload[at + length :]
        return payload

    edits = st.tuples(st.integers(0, 10**5), st.integers(0, 3), junk)
    picked = st.lists(st.sampled_from(lines), min_size=1, max_size=4)
    return st.tuples(picked, st.lists(edits, max_size=3)).map(mutate)


SAMPLES = ["accounting", "derived.jsonl", "reporting.head"]


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


@pytest.mark.parametrize(
    ("failed", "exit_status", "started", "deleted_by", "expected"),
    [
        (0, 0, True, "", "completed"),
        (0, 0, False, "", "start_failed"),
        (0, 3, True, "", "failed"),
        (0, 139, True, "", "killed"),
        (0, 255, True, "", "failed"),
        (100, 137, True, "", "killed"),
        (100, 137, True, "anna@login1", "cancelled"),
        (0, 0, True, "anna@login1", "cancelled"),
        (37, 137, True, "", "timeout"),
        (100, 137, True, "execd@node01", "timeout"),
        (25, 99, True, "", "requeued"),
        (24, 137, True, "", "requeued"),
        (25, 0, False, "qmaster@m", "node_fail"),
        (19, 0, True, "", "node_fail"),
        (8, 0, False, "", "start_failed"),
        (26, 0, True, "", "start_failed"),
        (15, 0, True, "", "failed"),
        (30, 100, True, "", "failed"),
    ],
)
def test_the_outcome_is_one_of_a_few_classes(
    failed: int,
    exit_status: int,
    started: bool,
    deleted_by: str,
    expected: str,
) -> None:
    """Codes, signals and who deleted a job decide the class, in this order of rules."""
    record = msgspec.structs.replace(
        one(f"{CLASSIC}-l h_rt=12:{TAIL}:0:0"),
        failed=failed,
        exit_status=exit_status,
        start_time=1 if started else None,
        deleted_by=deleted_by or None,
    )
    assert str(record.outcome) == expected


def test_failed_codes_have_the_manuals_words() -> None:
    """A code that no manual knows says so."""
    assert (meaning(8), meaning(100)) == ("in prolog", "assumedly after job")
    assert meaning(55) == "invalid execution state"


def test_a_category_is_what_the_job_asked_for() -> None:
    """Options of both generations are read, hard and soft and by scope."""
    old = parse_category("-q all.q@node01*,low.q -l h_rt=3600,h_vmem=1.5G,excl -pe smp 2,3 -ar 7")
    assert (old.queues, old.pe, old.pe_range) == (("all.q@node01*", "low.q"), "smp", "2,3")
    assert (old.h_rt, old.h_vmem, old.options) == (3600, 3 * 2**29, {"ar": "7"})
    assert old.resources["excl"] == "TRUE"
    new = parse_category(
        "-scope global -hard -l h_rt=0:1:30 -soft -l fast=1 -q b.q -scope slave -hard -l gpu=2 -P x"
    )
    assert (new.h_rt, new.gpu, new.soft, new.slave) == (90, 2, {"fast": "1"}, {"gpu": "2"})
    assert (new.soft_queues, new.project) == (("b.q",), "x")
    assert parse_category("what is this -I y").unknown == ("what", "is", "this")


@pytest.mark.parametrize(
    ("text", "amount"),
    [("2G", 2**31), ("2g", 2 * 10**9), ("100", 100), ("1.5K", 1536), ("x", None)],
)
def test_memory_is_read_with_its_unit(text: str, amount: int | None) -> None:
    """Capital letters are powers of 1024, small ones of 1000."""
    assert size(text) == amount


@pytest.mark.parametrize(
    ("text", "amount"),
    [("60", 60), ("1:2:3", 3723), (":5:0", 300), ("1:30", 90), ("INFINITY", None)],
)
def test_times_are_read_in_both_forms(text: str, amount: float | None) -> None:
    """Seconds, or hours, minutes and seconds."""
    assert seconds(text) == amount


@given(st.text(max_size=80))
def test_any_category_is_read(text: str) -> None:
    """A category never fails, and its units are numbers or nothing."""
    requests = parse_category(text)
    assert requests.h_rt is None or requests.h_rt >= 0
    assert requests.gpu is None or requests.gpu >= 0


def test_the_place_of_a_record_is_where_its_line_begins() -> None:
    """File, offset and line are those the reader was told, plus what it has passed."""
    reading = read(b"# x\n\n" + data_line("derived.jsonl") + b"\n", file="id", offset=1000, line=7)
    assert reading.records[0].origin == Origin("id", 1005, 9, Variant.JSONL_90)
