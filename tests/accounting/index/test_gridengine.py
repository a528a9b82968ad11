"""``ccpipe acct index``: a job is found without reading the files, even if moved or deleted."""

import gzip
import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.acct.acct_command import Acct

HEAD = "# Version: 8.1.9\n# \n# DO NOT MODIFY THIS FILE MANUALLY!\n# \n"
RECORDS = 10_000


def lines(numbers: Iterator[int] | range, *, owner: str = "anna") -> str:
    return "".join(
        f"all.q:n1:g:{owner}:job:{number}:sge:0:1795171319:1795171320:1795171330:0:0:10:1.5:0.5:"
        f"1:0:0:0:0:1:2:3:4.0:5:6:7:8:9:10:NONE:dep:NONE:1:{task}:2.0:0.0:0.0:NONE:0.0:NONE:0.0:0:0\n"
        for number in numbers
        for task in (1, 2)
    )


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "accounting"
    path.write_text(HEAD + lines(range(1, RECORDS // 2 + 1)))
    return path


@pytest.fixture
def index(file: Path, acct: Acct) -> Path:
    directory = file.parent / "index"
    done = acct("index", file, "--dir", directory)
    assert done.code == 0
    assert "10 000 records" in done.err
    return directory


def found(acct: Acct, *arguments: object) -> list[tuple[int, int, int]]:
    shown = acct("gridengine", *arguments, "-o", "json")
    assert shown.code == 0, shown.err
    rows = map(json.loads, shown.out.splitlines())
    return [(row["JOB"], row["TASK"], row["LINE"]) for row in rows]


def test_index_finds_job_by_number(acct: Acct, file: Path, index: Path) -> None:
    """Same result as reading the whole file, including line numbers."""
    for number in (1, 1234, RECORDS // 2):
        by_reading = found(acct, file, "-j", number)
        assert found(acct, "-j", number, "--index", index) == by_reading
        assert [task for _, task, _ in by_reading] == [1, 2]


def test_index_reads_file_only_at_position(acct: Acct, file: Path, index: Path) -> None:
    """All other lines may be garbage."""
    payload = file.read_bytes()
    place = payload.index(b":job:4000:")
    first = payload.index(b"all.q")
    kept = payload[: payload.index(b"\n", first) + 1], payload.rindex(b"\n", 0, place) + 1
    middle = b"x" * (kept[1] - len(kept[0]) - 1) + b"\n"
    file.write_bytes(kept[0] + middle + payload[kept[1] :])
    assert [job for job, _, _ in found(acct, "-j", 4000, "--index", index)] == [4000, 4000]


def test_index_applies_filters(acct: Acct, index: Path) -> None:
    """A task or owner that does not match is not found."""
    assert found(acct, "-j", 7, "-t", 2, "--index", index) == [(7, 2, 18)]
    missing = acct("gridengine", "-j", 7, "-u", "ben", "--index", index)
    assert (missing.code, missing.err) == (1, "ccpipe: job 7 not found\n")


def test_index_lookup_reads_new_end_of_file(acct: Acct, file: Path, index: Path) -> None:
    """The part written after indexing is read."""
    with file.open("a") as stream:
        stream.write(lines(range(70_000, 70_003)))
    assert found(acct, "-j", 70_001, "--index", index) == [(70_001, 1, 10_007), (70_001, 2, 10_008)]


def test_index_update_continues_at_end(acct: Acct, file: Path, index: Path) -> None:
    """An incomplete line is left for the next update; nothing is indexed twice."""
    more = lines(range(70_000, 70_002))
    for piece in (more[:500], more[500:]):
        with file.open("a") as stream:
            stream.write(piece)
        assert acct("index", file, "--dir", index).code == 0
    assert acct("index", file, "--dir", index).err.startswith(f"{file}: 10 004 records")
    assert found(acct, "-j", 70_001, "--index", index) == [(70_001, 1, 10_007), (70_001, 2, 10_008)]
    assert len(list(index.iterdir())) == 1


def test_index_recognizes_rotated_file(acct: Acct, file: Path, index: Path) -> None:
    """Renamed and compressed, it is identified by its beginning; a new file has its name."""
    file.rename(file.with_name("accounting.0"))
    file.write_text(HEAD + lines(range(90_000, 90_002)))
    assert [job for job, _, _ in found(acct, "-j", 1234, "--index", index)] == [1234, 1234]
    packed = file.with_name("accounting.0.gz")
    packed.write_bytes(gzip.compress(file.with_name("accounting.0").read_bytes()))
    file.with_name("accounting.0").unlink()
    assert [job for job, _, _ in found(acct, "-j", 1234, "--index", index)] == [1234, 1234]
    assert acct("index", packed, file, "--dir", index).code == 0
    assert len(list(index.iterdir())) == 2
    for number in (1234, 90_001):
        assert [job for job, _, _ in found(acct, "-j", number, "--index", index)] == [number] * 2


def test_index_finds_records_of_compressed_files(acct: Acct, file: Path) -> None:
    """Their lines are in the index, so the files may even be deleted."""
    packed = file.with_name("old.gz")
    packed.write_bytes(gzip.compress(file.read_bytes()))
    directory = file.parent / "index"
    assert acct("index", packed, "--dir", directory).code == 0
    packed.unlink()
    file.unlink()
    assert found(acct, "-j", 4321, "--index", directory) == [(4321, 1, 8645), (4321, 2, 8646)]


def test_index_reports_missing_file(acct: Acct, file: Path, index: Path) -> None:
    """An unreadable position is a problem, not silently skipped."""
    file.unlink()
    gone = acct("gridengine", "-j", 4321, "--index", index)
    assert gone.code == 65
    assert f"{file}: job 4321 is not at its position in the index" in gone.err


def test_index_rejects_copy(acct: Acct, file: Path, index: Path) -> None:
    """Two files with the same first record would duplicate every job."""
    copy = file.with_name("copy")
    copy.write_bytes(file.read_bytes())
    refused = acct("index", copy, "--dir", index)
    assert refused.code == 65
    assert f"{copy}: same beginning as {file}, already indexed (a copy?)" in refused.err


def test_index_lookup_reads_files_not_indexed(acct: Acct, file: Path, index: Path) -> None:
    """Files named on the command line count, indexed or not."""
    other = file.with_name("other.jsonl")
    record = {"job_number": 5, "start_time": 0, "end_time": 0, "failed": 0, "exit_status": 0}
    other.write_text(json.dumps(record) + "\n")
    jobs = found(acct, file, other, "-j", 5, "--index", index)
    assert jobs == [(5, 1, 13), (5, 2, 14), (5, 0, 1)]


def test_index_reports_bad_lines_once(acct: Acct, file: Path) -> None:
    """With line, offset and reason; the next update does not read them again."""
    size = file.stat().st_size
    with file.open("a") as stream:
        stream.write("nonsense\n")
    directory = file.parent / "index"
    first = acct("index", file, "--dir", directory)
    assert first.code == 65
    assert f"{file}:10005: offset {size}: expected at least 43 fields, got 1" in first.err
    assert acct("index", file, "--dir", directory).code == 0


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["-j", "1"], "no index; create it with"),
        (["--by", "user"], "--index finds jobs by number"),
        (["-j", "name"], "--index finds jobs by number"),
    ],
)
def test_index_lookup_requires_job_numbers_and_index(
    acct: Acct, tmp_path: Path, arguments: list[str], reason: str
) -> None:
    shown = acct("gridengine", *arguments, "--index", tmp_path / "nothing")
    assert shown.code == 64
    assert reason in shown.err


def test_index_reports_damaged_index(acct: Acct, tmp_path: Path) -> None:
    """With the file's name."""
    (tmp_path / "a.parquet").write_bytes(b"no parquet")
    shown = acct("gridengine", "-j", "1", "--index", tmp_path)
    assert shown.code == 65
    assert "a.parquet: not an index of accounting" in shown.err


def test_index_finds_all_jobs_of_wrapped_number(acct: Acct, file: Path, index: Path) -> None:
    """When job numbers restart, a number means several jobs."""
    with file.open("a") as stream:
        stream.write(lines(itertools.chain(range(1, 3)), owner="ben"))
    assert acct("index", file, "--dir", index).code == 0
    assert [job for job, _, _ in found(acct, "-j", 2, "--index", index)] == [2] * 4
