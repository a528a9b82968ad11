"""``ccpipe acct gridengine``: which files and records it reads, bad lines, exit codes."""

import gzip
import hashlib
import io
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ccpipe.formats.gridengine import Accounting, read
from tests.cli.acct.acct_command import Acct, rows
from tests.cli.command import ccpipe
from tests.conftest import program
from tests.paths import TEST_DATA

DATA = TEST_DATA / "gridengine"
CLASSIC = DATA / "accounting"
JSONL = DATA / "derived.jsonl"


def known(*files: Path) -> list[Accounting]:
    return [record for file in files for record in read(file.read_bytes()).records]


def test_acct_reads_compressed_and_several_files_in_one_call(acct: Acct, tmp_path: Path) -> None:
    """Classic and JSON lines, plain and gzip, in one call; each record counts once."""
    packed = tmp_path / "accounting.1.gz"
    packed.write_bytes(gzip.compress(CLASSIC.read_bytes()))
    (row,) = rows(acct("gridengine", packed, JSONL, "-f", DATA / "reporting.head", "-o", "json"))
    found = known(CLASSIC, JSONL, DATA / "reporting.head")
    assert row["RECORDS"] == len(found) == 128 + 24 + 53
    assert row["WALLCLOCK"] == sum(record.wallclock for record in found)


def test_acct_reads_standard_input(acct: Acct, monkeypatch: pytest.MonkeyPatch) -> None:
    """For -, as `qacct -f -` does."""
    stdin = io.TextIOWrapper(io.BytesIO(CLASSIC.read_bytes()))
    monkeypatch.setattr("sys.stdin", stdin)
    (row,) = rows(acct("gridengine", "-", "-o", "json"))
    assert row["RECORDS"] == 128


def test_acct_reports_bad_lines_and_counts_others(acct: Acct, tmp_path: Path) -> None:
    """File, line, offset and reason on stderr; the others are counted; exit code 65."""
    lines = CLASSIC.read_bytes().splitlines(keepends=True)
    bad = tmp_path / "bad"
    bad.write_bytes(b"".join([*lines[:10], b"half:a:line\n", *lines[10:]]))
    shown = acct("gridengine", bad, "-o", "json")
    assert shown.code == 65
    offset = len(b"".join(lines[:10]))
    assert f"{bad}:11: offset {offset}: expected at least 43 fields, got 3" in shown.err
    assert rows(shown)[0]["RECORDS"] == 128


def test_acct_prints_first_problems_of_file_without_records(acct: Acct, tmp_path: Path) -> None:
    """A file of another kind has one in each line; the rest is counted."""
    other = tmp_path / "other"
    other.write_bytes(b"no record\n" * 30)
    shown = acct("gridengine", other)
    assert shown.err.count("expected at least 43 fields, got 1") == 20
    assert "30 problems, the first 20 reported above" in shown.err


def test_acct_reads_every_whole_record_of_truncated_file(acct: Acct, tmp_path: Path) -> None:
    """The same records as zcat, here and in ``convert``; then the reason and exit code 65."""
    packed = tmp_path / "a.gz"
    packed.write_bytes(gzip.compress(b"".join(many_records()))[:-5000])
    whole = subprocess.run([program("zcat", "gzip"), packed], capture_output=True, check=False)
    wanted = len(read(whole.stdout).records)
    assert wanted > 10_000
    shown = acct("gridengine", packed, CLASSIC, "-o", "json")
    assert shown.code == 65
    assert f"{packed}: the compressed file is truncated" in shown.err
    assert rows(shown)[0]["RECORDS"] == wanted + 128
    converted = ccpipe("convert", "--from", "gridengine", "--to", "csv", packed)
    assert converted.code == 65
    assert converted.out.count("\n") == wanted + 1
    assert f"{packed}: the compressed file is truncated" in converted.err


def many_records() -> Iterator[bytes]:
    lines = [line.split(b":", 6) for line in CLASSIC.read_bytes().splitlines(keepends=True)[4:]]
    for number in range(20_000):
        parts = lines[number % len(lines)]
        parts[4] = hashlib.sha256(b"%d" % number).hexdigest().encode()
        yield b":".join(parts)


@pytest.mark.parametrize("suffix", ["gz", "bz2", "xz", "zst"])
def test_acct_reads_and_indexes_compressed_files(acct: Acct, tmp_path: Path, suffix: str) -> None:
    """By their suffix: sums, a job by number, and the index of a deleted file."""
    name = {"gz": "gzip", "bz2": "bzip2", "xz": "xz", "zst": "zstd"}[suffix]
    packed = tmp_path / f"accounting.0.{suffix}"
    with packed.open("wb") as file:
        subprocess.run(
            [program(name, name), "-c"], input=CLASSIC.read_bytes(), stdout=file, check=True
        )
    assert rows(acct("gridengine", packed, "-o", "json"))[0]["RECORDS"] == 128
    found = acct("gridengine", packed, "-j", 140, "-o", "csv")
    assert found.out.count("\n") == 5
    assert acct("index", packed, "--dir", tmp_path / "index").code == 0
    packed.unlink()
    indexed = acct("gridengine", "-j", 140, "--index", tmp_path / "index", "-o", "csv")
    assert indexed.out == found.out


def test_acct_reads_files_of_cell_without_arguments(
    acct: Acct, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both of its files, as the format can be switched; without a cell it is an error."""
    monkeypatch.delenv("SGE_ROOT", raising=False)
    assert "FILE is missing: $SGE_ROOT is not set" in acct("gridengine").err
    common = tmp_path / "cell1" / "common"
    common.mkdir(parents=True)
    monkeypatch.setenv("SGE_ROOT", str(tmp_path))
    monkeypatch.setenv("SGE_CELL", "cell1")
    assert f": there is none in {common}" in acct("gridengine").err
    shutil.copy(CLASSIC, common / "accounting")
    shutil.copy(JSONL, common / "accounting.jsonl")
    assert rows(acct("gridengine", "-o", "json"))[0]["RECORDS"] == 128 + 24


def test_acct_lists_each_record_of_job(acct: Acct) -> None:
    """PE tasks too, unless only masters are selected; with the position in the file."""
    found = [record for record in known(CLASSIC) if record.job_number == 140]
    shown = rows(acct("gridengine", CLASSIC, "-j", 140, "-o", "json"))
    assert [(row["PE TASK"], row["LINE"], row["CPU"]) for row in shown] == [
        (record.pe_taskid, record.origin.line, record.cpu) for record in found
    ]
    (master,) = rows(acct("gridengine", CLASSIC, "-j", 140, "-m", "-o", "json"))
    assert master["PE TASK"] is None
    assert master["EFFICIENCY"] == 4.0 / (4 * 4)


def test_acct_lists_jobs_by_pattern_and_owner(acct: Acct) -> None:
    """Names are patterns; a table shows the same rows."""
    shown = acct("gridengine", CLASSIC, "-j", "resv_*", "-m", "-u", "anna")
    first = [line.split()[0] for line in shown.out.splitlines()]
    assert first == ["JOB", "139", "142", "140", "141"]
    assert shown.out.splitlines()[-1].endswith("killed")


def test_acct_exits_with_1_if_job_is_not_found(acct: Acct) -> None:
    """As qacct and grep do; stdout is empty. Sums of no jobs are reported, without an error."""
    assert acct("gridengine", CLASSIC, "-j", 4711) == (1, "", "ccpipe: job 4711 not found\n")
    assert acct("gridengine", CLASSIC, "-j", 4711, "--qacct") == (
        1,
        "",
        "error: job 4711 not found\n",
    )
    tasks = acct("gridengine", CLASSIC, "-j", 138, "-t", "900-910")
    assert tasks == (1, "", "ccpipe: job-array tasks 138.900-910 not found\n")
    assert acct("gridengine", CLASSIC, "-u", "nobody") == (0, "", "no matching record found\n")


def test_acct_groups_by_outcome(acct: Acct) -> None:
    """The number of records of each outcome."""
    found = known(JSONL)
    shown = rows(acct("gridengine", JSONL, "--by", "outcome", "-o", "json"))
    assert {row["OUTCOME"]: row["RECORDS"] for row in shown} == {
        outcome: sum(record.outcome == outcome for record in found)
        for outcome in {str(record.outcome) for record in found}
    }


def test_acct_names_missing_pyarrow_and_shows_help_without() -> None:
    """The message is the pip line to type."""
    code = (
        "import sys; sys.modules['pyarrow'] = None\n"
        "from ccpipe.cli import main\n"
        "sys.argv[1:1] = ['acct', 'gridengine']\n"
        "main()"
    )
    shown = [
        subprocess.run(
            [sys.executable, "-c", code, argument], capture_output=True, text=True, check=False
        )
        for argument in ("--help", str(CLASSIC))
    ]
    assert shown[0].returncode == 0
    assert "--qacct" in shown[0].stdout
    assert "pip install 'ccpipe[parquet]'" in shown[1].stderr


def test_acct_exits_with_65_if_bad_line_may_be_missing_job(acct: Acct, tmp_path: Path) -> None:
    """Unless that line has the number of another job."""
    (tmp_path / "bad").write_text("all.q:n1:g:anna:sim:5:cut off\n")
    assert acct("gridengine", tmp_path / "bad", "-j", 5).code == 65
    assert acct("gridengine", tmp_path / "bad", "-j", 6).code == 1
    (tmp_path / "bad").write_text("nonsense\n")
    assert acct("gridengine", tmp_path / "bad", "-j", 5).code == 65


def test_node_takes_lists_and_patterns(acct: Acct) -> None:
    """With or without domain."""
    given = (CLASSIC, "--by", "node", "-o", "json")
    whole = rows(acct("gridengine", *given))
    assert len(whole) == 2
    for nodes in (["-N", "node[01-02]"], ["-N", "node0?"], ["-N", "node01", "--node", "node02"]):
        assert rows(acct("gridengine", *given, *nodes)) == whole


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--count", "-1"], "--count -1: must be at least 1"),
        (["--count", "0"], "--count 0: must be at least 1"),
        (["-N", "n[1-"], "--node n[1-: "),
        (["--since", "soon"], "--since: not a time: 'soon'"),
        (["--percentiles", "50", "95"], "percentiles are written --percentiles 50 --percentiles"),
        (["--percentiles", "101"], "must be between 0 and 100"),
    ],
)
def test_acct_rejects_wrong_options(acct: Acct, arguments: list[str], sentence: str) -> None:
    """Exit code 64, and nothing on stdout."""
    shown = acct("gridengine", CLASSIC, *arguments)
    assert (shown.code, shown.out) == (64, "")
    assert sentence in shown.err


def test_kernel_and_python_give_equal_reports(tmp_path: Path) -> None:
    """The same sums, the same reports of damaged lines with their position, the same exit code."""
    lines = CLASSIC.read_bytes().splitlines(keepends=True)
    damaged = [lines[9].replace(b":0.0", b":0.x", 1), lines[10][:90] + b"\n", b"{}\n"]
    (tmp_path / "a").write_bytes(b"".join([*lines[:20], *damaged, *lines[20:]]))
    arguments = ("acct", "gridengine", tmp_path / "a", "--by", "user", "-o", "csv")
    compiled, python = (
        ccpipe(*arguments, CCPIPE_KERNEL=kernel) for kernel in ("compiled", "python")
    )
    assert compiled == python
    assert compiled.code == 65
    assert [line.split(":")[1] for line in compiled.err.splitlines()[:3]] == ["21", "22", "23"]
