"""``ccpipe acct slurm``: the rows of a real Slurm, summed, selected and listed."""

import gzip
import io
import json
import os
import pwd
from pathlib import Path
from typing import Any

import pytest

from ccpipe.cli.acct.slurm import LAYOUT
from tests.cli.acct.acct_command import Acct, rows
from tests.paths import TEST_DATA

DATA = TEST_DATA / "slurm" / "sacct"
ROWS = DATA / "phase1_linux.all_fields_D.txt.gz"
JSON = DATA / "phase1_linux.json.gz"


def jobs() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(gzip.decompress(JSON.read_bytes()))["jobs"]
    return found


def cpu_seconds(job: dict[str, Any]) -> float:
    totals = [step["time"]["total"] for step in job["steps"]]
    return sum(float(total["seconds"] + total["microseconds"] / 1e6) for total in totals)


def cpus(job: dict[str, Any]) -> int:
    return sum(int(tres["count"]) for tres in job["tres"]["allocated"] if tres["type"] == "cpu")


def test_sacct_sums_equal_raw_document(acct: Acct) -> None:
    """Per user: elapsed, allocated and used CPU time, and number of jobs; from either format."""
    for file in (JSON, ROWS):
        found = {str(row["User"]): row for row in rows(acct("slurm", file, "--by=user", "-o=json"))}
        assert found.keys() == {job["user"] for job in jobs()} == {"alice", "bob"}
        for user, row in found.items():
            own = [job for job in jobs() if job["user"] == user]
            assert row["Rows"] == len(own)
            assert row["ElapsedRaw"] == sum(job["time"]["elapsed"] for job in own)
            allocated = sum(job["time"]["elapsed"] * cpus(job) for job in own)
            assert row["CPUTimeRAW"] == allocated
            used = sum(map(cpu_seconds, own))
            assert row["TotalCPU"] == pytest.approx(used, abs=0.05)  # text has milliseconds
            assert row["Efficiency"] == pytest.approx(used / allocated, rel=0.001)


def test_sacct_groups_by_state(acct: Acct) -> None:
    """A requeued run is neither a job's end nor a failure; a pending job has not run."""
    found = {str(row["State"]): row for row in rows(acct("slurm", ROWS, "--by=state", "-o=json"))}
    assert found.keys() == {job["state"]["current"] for job in jobs()}
    assert [found["REQUEUED"][name] for name in ("Runs", "Jobs", "Failed")] == [1, 0, 0]
    assert [found["PENDING"][name] for name in ("Runs", "Jobs", "Failed")] == [0, 0, 0]
    assert [found["TIMEOUT"][name] for name in ("Runs", "Jobs", "Failed")] == [1, 1, 1]


@pytest.mark.parametrize(
    ("filters", "wanted"),
    [
        (["-j", "13"], ["13_1", "13_3", "13_5", "13_6"]),
        (["-j", "13_3", "-j", "17+1"], ["13_3", "17+1"]),
        (["-j", "17"], ["17+0", "17+1"]),
        (["-j", "22"], ["22", "22"]),
        (["--list", "-s", "to", "-s", "NODE_FAIL"], ["7", "32"]),
        (["--list", "-N", "c[2-3]", "-s", "NF"], ["32"]),
        (["--list", "-r", "accel", "-u", "al*"], ["17+1"]),
        (["--list", "-r", "accel", "-u", "2001"], ["17+1"]),
        (["--list", "-r", "accel", "-g", "2001"], ["17+1"]),
        (["--list", "-r", "accel", "-u", "2003"], []),
        (["--list", "-S", "2026-11-20T10:37:15", "--zone", "UTC"], ["35"]),
        (["--list", "-S", "2026-11-20T10:38:00", "--ended"], ["22", "35"]),
        (["--list", "-S", "2026-11-20T10:37:00", "-E", "2026-11-20T10:37:15"], ["22"]),
    ],
)
def test_sacct_filters_select_jobs(
    acct: Acct, monkeypatch: pytest.MonkeyPatch, filters: list[str], wanted: list[str]
) -> None:
    """Values of one filter are alternatives; different filters must all match."""
    monkeypatch.setenv("TZ", "UTC")
    shown = acct("slurm", ROWS, *filters, "-o", "json")
    assert [row["JobID"] for row in rows(shown)] == wanted


def test_sacct_finds_user_by_number_through_local_name(
    acct: Acct, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the column UID; a number without a name selects no user."""
    monkeypatch.setenv("TZ", "UTC")
    name, number = pwd.getpwuid(os.getuid()).pw_name, os.getuid()
    path = tmp_path / "rows"
    path.write_text(f"JobID|User|State\n1|{name}|COMPLETED\n2|alice|COMPLETED\n")
    shown = acct("slurm", path, "--list", "-u", str(number), "-o", "json")
    assert [row["JobID"] for row in rows(shown)] == ["1"]
    assert acct("slurm", path, "--list", "-u", "4294967290").code == 1


def test_sacct_table_has_units(acct: Acct) -> None:
    """Times as sacct prints them, memory with its unit, shares in percent."""
    head, line = acct("slurm", ROWS, "-j", "3").out.splitlines()
    shown = dict(zip(head.split(), line.replace(" MiB", "MiB").replace(" GiB", "GiB").split(),
                     strict=True))  # fmt: skip
    assert shown["ElapsedRaw"] == "0:00:55"
    assert (shown["ReqMem"], shown["Efficiency"], shown["ExitCode"]) == ("1.56GiB", "12.9%", "0:0")


def test_sacct_top_sorts_by_cpu_time(acct: Acct) -> None:
    """Unless --sort names another column."""
    most = rows(acct("slurm", ROWS, "--list", "--count=2", "-o=json"))
    assert [row["JobID"] for row in most] == ["22", "23"]
    longest = rows(acct("slurm", ROWS, "--list", "--count=1", "--sort=elapsedraw", "-o=csv"))
    assert longest[0]["JobName"] == "nodefail"
    assert acct("slurm", ROWS, "--sort=speed").code == 64


def test_sacct_skips_bad_row(acct: Acct, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It is reported with its line, the others count, and the exit code is 65."""
    text = b"JobID|State|ElapsedRaw\n1|COMPLETED|5\n2|COMPLETED|long\n3|COMPLETED|6\n"
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text)))
    ended = acct("slurm", "-", "-o=json")
    assert ended.code == 65
    assert "stdin: line 3: " in ended.err
    assert rows(ended)[0]["ElapsedRaw"] == 11
    assert acct("slurm", tmp_path / "missing").code != 0


def test_sacct_exits_with_1_if_job_is_not_found(acct: Acct) -> None:
    """The exit code is 1, as for Grid Engine's jobs."""
    assert acct("slurm", ROWS, "-j", "4711").code == 1
    assert acct("slurm", ROWS, "-j", "4711", "--by", "user").code == 1


@pytest.mark.parametrize(
    ("head", "value", "text"),
    [
        ("ElapsedRaw", 0, "0:00:00"),
        ("ElapsedRaw", 59.6, "0:01:00"),
        ("TotalCPU", 3661, "1:01:01"),
        ("ElapsedRaw P50", 90061.0, "1-01:01:01"),
        ("TotalCPU", None, "-"),
        ("Memory P95", 2**20, "1 MiB"),
        ("Efficiency", 0.25, "25.0%"),
        ("ConsumedEnergyRaw", 24022.0, "24022"),
        ("JobName", "a\x1bb", "a\\x1bb"),
    ],
)
def test_sacct_cells_have_units(head: str, value: object, text: str) -> None:
    """By column, times as sacct prints them; control characters are escaped."""
    assert LAYOUT.cell(head, value) == text


def test_share_of_zero_is_unknown(acct: Acct, tmp_path: Path) -> None:
    """It is neither an error nor 0."""
    path = tmp_path / "rows"
    path.write_text("JobID|State|ReqMem|MaxRSS\n1|COMPLETED|0|1K\n2|COMPLETED|4K|1K\n")
    shown = rows(acct("slurm", path, "--list", "-o", "json"))
    assert [row["MemoryShare"] for row in shown] == [None, 0.25]
