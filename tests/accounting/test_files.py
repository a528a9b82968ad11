"""How ``ccpipe acct`` reads files: in order, in blocks, with progress and problems.

Records found by columns equal those found by reading everything.
"""

import gzip
import os
import pty
import termios
import threading
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ccpipe import terminal as terminal_module
from ccpipe.accounting import files as acct_files
from ccpipe.accounting.files import BEGIN, FileBlock, Files, Start, find_records
from ccpipe.accounting.gridengine import GRID_ENGINE, KEYS, RecordSelection
from ccpipe.accounting.sums import Sums
from ccpipe.formats.gridengine import ParsedChunk, read
from ccpipe.formats.gridengine.columns import read_columns
from ccpipe.formats.gridengine.reader import lines_of_jobs
from tests.paths import TEST_DATA

DATA = TEST_DATA / "gridengine"


def parts(files: Files, *paths: Path, start: Start = BEGIN) -> list[tuple[FileBlock, ParsedChunk]]:
    return list(
        files.each_block(paths, lambda b: read(b.payload, file=b.name, offset=b.offset), start)
    )


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acct_files, "BLOCK", 1000)


@pytest.mark.usefixtures("small_blocks")
def test_files_yield_blocks_in_order_with_positions(tmp_path: Path) -> None:
    """Whatever the number of threads; offsets and lines restart with each file."""
    packed = tmp_path / "a.gz"
    packed.write_bytes(gzip.compress((DATA / "accounting").read_bytes()))
    found = parts(Files(), DATA / "accounting", packed)
    assert len(found) > 20
    whole = (DATA / "accounting").read_bytes()
    for name in (str(DATA / "accounting"), str(packed)):
        blocks = [block for block, _ in found if block.name == name]
        assert b"".join(block.payload for block in blocks) == whole
        for block in blocks:
            assert whole[block.offset :].startswith(block.payload)
            assert block.before == whole.count(b"\n", 0, block.offset)


@pytest.mark.usefixtures("small_blocks")
def test_files_read_from_any_start() -> None:
    """Offsets and lines are still counted from the beginning of the file."""
    whole = (DATA / "accounting").read_bytes()
    offset = whole.index(b"\n", 5000) + 1
    lines = whole.count(b"\n", 0, offset)
    found = parts(Files(), DATA / "accounting", start=Start(offset, lines))
    assert b"".join(block.payload for block, _ in found) == whole[offset:]
    assert found[0][0].before == lines
    assert found[-1][0].before == whole.count(b"\n", 0, found[-1][0].offset)


@pytest.mark.usefixtures("small_blocks")
def test_files_report_bad_lines_with_position(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In any block; terminal escapes are escaped."""
    whole = (DATA / "accounting").read_bytes()
    bad = tmp_path / "bad\x1b[31m"
    bad.write_bytes(whole + b"x\x1b[2J\n")
    files = Files()
    parts(files, bad)
    reported = capsys.readouterr().err
    assert files.problems == 1
    assert reported.startswith(
        f"{tmp_path}/bad\\x1b[31m:133: offset {len(whole)}: expected at least 43 fields"
    )
    assert "\x1b[2J" not in reported


@pytest.mark.usefixtures("small_blocks")
def test_files_show_progress_on_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """One line, rewritten, cleared at the end, and shown only after a delay."""

    def drawn_after(delay: float) -> bytes:
        ours, theirs = pty.openpty()
        termios.tcsetwinsize(theirs, (24, 400))
        drawn: list[bytes] = []

        def listen() -> None:
            try:
                while piece := os.read(ours, 4096):
                    drawn.append(piece)
            except OSError:
                pass  # on Linux: the other side has closed

        listener = threading.Thread(target=listen)
        listener.start()
        monkeypatch.setattr(terminal_module, "PROGRESS_DELAY", delay)
        monkeypatch.setattr(terminal_module.Progress, "is_enabled", True)
        with os.fdopen(theirs, "w") as terminal, monkeypatch.context() as patch:
            patch.setattr("sys.stderr", terminal)
            parts(Files(), DATA / "accounting")
        listener.join()
        os.close(ours)
        return b"".join(drawn)

    shown = drawn_after(0.0)
    assert f"\r\x1b[K{DATA / 'accounting'}: 0 MiB read".encode() in shown
    assert shown.endswith(b"\r\x1b[K")
    assert drawn_after(60.0) == b""


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


@given(payload=payloads(), offset=st.integers(0, 10**12))
def test_files_select_same_records_as_line_reader(payload: bytes, offset: int) -> None:
    """The same records at the same positions, and no error."""
    wanted = read(payload, file="f", offset=offset)
    found = find_records(FileBlock(payload, "f", offset), RecordSelection())
    assert (found.records, found.rejected) == (wanted.records, wanted.rejected)
    for selection in (RecordSelection(texts={"owner": ("anna",)}), RecordSelection(masters=True)):
        found = find_records(FileBlock(payload, "f", offset), selection)
        key = "owner" if selection.texts else "pe_taskid"
        value = "anna" if selection.texts else None
        assert found.records == [r for r in wanted.records if getattr(r, key) == value]


@given(payload=payloads(), offset=st.integers(0, 10**12), job=st.sampled_from([1001, 1002, 1, 5]))
def test_files_find_job_by_number_in_any_bytes(payload: bytes, offset: int, job: int) -> None:
    """The search equals reading all records; bad lines of other jobs are omitted."""
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


@given(payload=payloads())
@example(payload=WRONG_UNIT)
@example(payload=HUGE)
@example(payload=HUGE.replace(b"h_vmem=9007199254740993", b"h_vmem=%b" % (b"9" * 400)))
def test_sums_accept_any_bytes(payload: bytes) -> None:
    """By all keys at once, with percentiles; all readable records count."""
    sums = Sums(list(KEYS), scheduler=GRID_ENGINE, percentages=[50])
    sums.add(read_columns(payload, sums.columns).table)
    assert sum(total.records for total in sums.totals()) >= len(read(payload).records)
