"""Records found by their columns are those that reading everything would find."""

from hypothesis import example, given, settings
from hypothesis import strategies as st

from ccpipe.accounting.files import FileBlock
from ccpipe.accounting.gridengine import KEYS
from ccpipe.accounting.records import find_records
from ccpipe.accounting.selection import RecordSelection
from ccpipe.accounting.sums import Sums
from ccpipe.formats.gridengine import read
from ccpipe.formats.gridengine.columns import read_columns
from ccpipe.formats.gridengine.reader import lines_of_jobs
from tests.paths import TEST_DATA

DATA = TEST_DATA / "gridengine"
LINES = [
    *(DATA / "accounting").read_bytes().splitlines(keepends=True)[-12:],
    *(DATA / "derived.jsonl").read_bytes().splitlines(keepends=True)[:12],
    *(DATA / "derived" / "derived-malformed.jsonl").read_bytes().splitlines(keepends=True),
    b"# a comment\n",
    b"\n",
]


@st.composite
def payloads(draw: st.DrawFn) -> bytes:
    lines = draw(st.lists(st.sampled_from(LINES) | st.binary(max_size=20), max_size=8))
    payload = bytearray(b"".join(lines))
    for place, byte in draw(
        st.lists(st.tuples(st.integers(0, 4000), st.integers(0, 255)), max_size=3)
    ):
        if payload:
            payload[place % len(payload)] = byte
    return bytes(payload)


@settings(max_examples=100)
@given(payload=payloads(), offset=st.integers(0, 10**12))
def test_any_bytes_give_what_reading_line_by_line_gives(payload: bytes, offset: int) -> None:
    """The same records at the same places, and no error of any kind."""
    wanted = read(payload, file="f", offset=offset)
    found = find_records(FileBlock(payload, "f", offset), RecordSelection())
    assert (found.records, found.rejected) == (wanted.records, wanted.rejected)
    for selection in (RecordSelection(texts={"owner": ("anna",)}), RecordSelection(masters=True)):
        found = find_records(FileBlock(payload, "f", offset), selection)
        key = "owner" if selection.texts else "pe_taskid"
        value = "anna" if selection.texts else None
        assert found.records == [r for r in wanted.records if getattr(r, key) == value]


@settings(max_examples=100)
@given(payload=payloads(), offset=st.integers(0, 10**12), job=st.sampled_from([1001, 1002, 1, 5]))
def test_a_job_is_found_by_its_number_in_any_bytes(payload: bytes, offset: int, job: int) -> None:
    """The search finds what reading finds, and bad lines unless they are of another job."""
    wanted = read(payload, file="f", offset=offset)
    found = find_records(FileBlock(payload, "f", offset), RecordSelection(jobs=(job,)))
    assert found.records == [r for r in wanted.records if r.job_number == job]
    starts, _, _ = lines_of_jobs(payload, (job,))
    assert found.rejected == [b for b in wanted.rejected if b.offset - offset in starts]
    assert found.lines == wanted.lines


WRONG_UNIT = (
    b'{"job_number":1,"start_time":1787650060001,"end_time":1787650060001,'
    b'"submission_time":2787650059990000,"failed":0,"exit_status":0}\n'
)
"""A start in milliseconds and a submission in microseconds: 10**18 ns apart, beyond 2**53."""
HUGE = (
    b'{"job_number":1,"start_time":0,"end_time":9223372036854775,"failed":0,"exit_status":0,'
    b'"category":"-l h_vmem=9007199254740993,h_rt=%b","slots":9007199254740991,'
    b'"usage":{"rusage":{"ru_maxrss":1.7e308,"ru_wallclock":1.7e308},"eusage":{"maxvmem":1.7e308}}}'
    b"\n" % (b"9" * 400)
)


@settings(max_examples=60)
@given(payload=payloads())
@example(payload=WRONG_UNIT)
@example(payload=HUGE)
@example(payload=HUGE.replace(b"h_vmem=9007199254740993", b"h_vmem=%b" % (b"9" * 400)))
def test_any_bytes_can_be_summed_up(payload: bytes) -> None:
    """By all keys at once, with percentiles; records that reading finds all count."""
    sums = Sums(list(KEYS), percentages=[50])
    sums.add(read_columns(payload, sums.columns).table)
    assert sum(total.records for total in sums.totals()) >= len(read(payload).records)
