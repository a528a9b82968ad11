"""``ccpipe acct index`` of sacct's rows: a job is found without reading the files."""

import gzip
import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.accounting.index import slurm
from ccpipe.accounting.index.slurm import SCHEMA, RunPosition, has_rows
from tests.cli.acct.acct_command import Acct, rows
from tests.paths import TEST_DATA

CAPTURED = TEST_DATA / "slurm" / "sacct" / "phase1_linux.all_fields_D.txt.gz"
HEAD = "JobID|JobIDRaw|JobName|State|ElapsedRaw\n"
JOBS = 500


def lines(first: int, last: int) -> str:
    names = ("a", "b|c", "d\ne", "x|y\nz", "ü")
    return "".join(
        f"{n}|{n}|{names[n % 5]}|COMPLETED|{n}\n"
        f"{n}.batch|{n}.batch|batch|COMPLETED|{n}\n{n}.0|{n}.0|s|FAILED|1\n"
        for n in range(first, last + 1)
    )


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "rows.txt"
    path.write_text(HEAD + lines(1, JOBS))
    return path


@pytest.fixture
def index(file: Path, acct: Acct) -> Path:
    directory = file.parent / "index"
    done = acct("index", file, "--dir", directory)
    assert (done.code, "499 runs" in done.err) == (0, True), done.err
    return directory


def found(acct: Acct, *arguments: object) -> list[dict[str, Any]]:
    shown = acct("slurm", *arguments, "-o", "json")
    assert shown.code == 0, shown.err
    return rows(shown)


@pytest.mark.parametrize("job", ["1", "123", "124", str(JOBS), "13_3", "17", "22"])
def test_sacct_index_equals_reading_all_rows(
    acct: Acct, file: Path, index: Path, tmp_path: Path, job: str
) -> None:
    """Also for array tasks, and all runs of a requeued job."""
    captured = tmp_path / "captured.txt"
    captured.write_bytes(gzip.decompress(CAPTURED.read_bytes()))
    acct("index", captured, "--dir", index)
    by_reading = [
        row
        for path in (captured, file)
        if (shown := acct("slurm", path, "-j", job, "-o", "json")).code == 0
        for row in rows(shown)
    ]
    by_index = found(acct, "-j", job, "--index", index)
    assert sorted(map(json.dumps, by_index)) == sorted(map(json.dumps, by_reading)) != []


def test_sacct_index_reads_file_only_at_position(acct: Acct, file: Path, index: Path) -> None:
    """All other rows but the last may be garbage."""
    payload = file.read_bytes()
    first, place, last = (payload.index(f"\n{n}|".encode()) + 1 for n in (2, 400, JOBS))
    middle = b"x" * (place - first - 1) + b"\n"
    end = payload.index(b"\n401|") + 1
    after = b"x" * (last - end - 1) + b"\n"
    file.write_bytes(payload[:first] + middle + payload[place:end] + after + payload[last:])
    assert [row["JobIDRaw"] for row in found(acct, "-j", 400, "--index", index)] == [400]


def test_sacct_index_lookup_reads_new_end_of_file(acct: Acct, file: Path, index: Path) -> None:
    """Also another step of the last run."""
    with file.open("a") as end:
        end.write(f"{JOBS}.1|{JOBS}.1|s|COMPLETED|1\n" + lines(JOBS + 1, JOBS + 3))
    assert [row["ElapsedRaw"] for row in found(acct, "-j", JOBS + 2, "--index", index)] == [502]
    assert len(found(acct, "-j", JOBS, "--index", index)) == 1
    assert "502 runs" in acct("index", file, "--dir", index).err


def test_sacct_index_recognizes_moved_or_compressed_file(
    acct: Acct, file: Path, index: Path, tmp_path: Path
) -> None:
    """It is identified by its contents."""
    moved = shutil.move(file, tmp_path / "elsewhere")
    assert len(found(acct, moved, "-j", 77, "--index", index)) == 1
    packed = tmp_path / "rows.txt.gz"
    packed.write_bytes(gzip.compress(Path(moved).read_bytes()))
    Path(moved).unlink()
    assert "500 runs" in acct("index", packed, "--dir", index).err
    packed.unlink()
    assert [row["JobIDRaw"] for row in found(acct, "-j", JOBS, "--index", index)] == [JOBS]


def test_sacct_index_rejects_copy(acct: Acct, file: Path, index: Path, tmp_path: Path) -> None:
    """Its jobs would be found twice."""
    shutil.copy(file, tmp_path / "copy.txt")
    shown = acct("index", tmp_path / "copy.txt", "--dir", index)
    assert (shown.code, "a copy?" in shown.err) == (65, True)


def test_sacct_index_reports_missing_rows(acct: Acct, file: Path, index: Path) -> None:
    """With their file; the exit code is for bad data."""
    file.unlink()
    shown = acct("slurm", "-j", 7, "--index", index)
    assert shown.code == 65
    assert f"{file}: job 7 is not at its position in the index" in shown.err


@pytest.mark.parametrize(
    ("arguments", "code"), [(["-j", "4711000"], 1), (["-j", "name"], 64), (["-u", "anna"], 64)]
)
def test_sacct_index_reports_unknown_job_and_invalid_number(
    acct: Acct, index: Path, arguments: list[str], code: int
) -> None:
    assert acct("slurm", *arguments, "--index", index).code == code


def test_indexes_of_both_schedulers_share_directory(acct: Acct, index: Path) -> None:
    """Each lookup uses its own."""
    accounting = TEST_DATA / "gridengine" / "accounting"
    assert acct("index", accounting, "--dir", index).code == 0
    assert acct("gridengine", "-j", 141, "--index", index).code == 0
    assert acct("gridengine", "-j", 7, "--index", index).code == 1
    assert acct("slurm", "-j", 7, "--index", index).code == 0
    empty = index.parent / "empty"
    empty.mkdir()
    assert acct("slurm", "-j", 7, "--index", empty).code == 64


def test_has_rows_detects_header_of_sacct(tmp_path: Path) -> None:
    for text, holds in ((HEAD, True), ("JobIDRaw\x1fState\n", True), ("a|b\n", False), ("", False)):
        (tmp_path / "file").write_text(text)
        assert has_rows(tmp_path / "file") is holds


@given(st.integers(), st.integers(9, 400))
def test_sacct_index_splits_runs_at_their_rows(seed: int, piece: int) -> None:
    """For any chunks: a run's rows are from its position to the next one's."""
    chance = random.Random(seed)
    runs = [lines(n, n) for n in chance.sample(range(1, 100), 4)]
    payload = "".join(runs).encode()
    found = slurm._Rows(HEAD.strip(), len(HEAD))
    places: list[RunPosition] = []
    for start in range(0, len(payload), piece):
        places += found.feed(payload[start : start + piece])
    places += found.feed(b"", is_last=True)
    ends = [place.offset - len(HEAD) for place in places[1:]] + [len(payload)]
    assert [
        payload[place.offset - len(HEAD) : end].decode()
        for place, end in zip(places, ends, strict=True)
    ] == runs
    assert {"job", "offset", "text"} <= set(SCHEMA.names)
