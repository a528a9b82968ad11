"""The layouts of ``ccpipe acct``: columns of sums and records as table, CSV and JSON lines."""

from pathlib import Path

import pytest

from ccpipe.formats.gridengine import read
from tests.cli.acct.acct_command import Acct, rows
from tests.cli.command import ccpipe, on_terminal
from tests.paths import TEST_DATA

DATA = TEST_DATA / "gridengine"
CLASSIC = DATA / "accounting"
JSONL = DATA / "derived.jsonl"


def test_csv_and_json_have_equal_rows(acct: Acct) -> None:
    """For groups of any name."""
    arguments = (CLASSIC, "--by", "user", "--by", "queue")
    as_json = rows(acct("gridengine", *arguments, "-o", "json"))
    as_csv = rows(acct("gridengine", *arguments, "-o", "csv"))
    as_text = [{k: "" if v is None else str(v) for k, v in row.items()} for row in as_json]
    assert as_csv == as_text
    assert [(row["USER"], row["CLUSTER QUEUE"]) for row in as_csv] == [
        ("anna", "all.q"),
        ("anna", "low.q"),
        ("ben", "all.q"),
        ("ben", "low.q"),
    ]


def test_table_aligns_numbers_and_shows_percentages(acct: Acct) -> None:
    """Heads, aligned numbers, shares in percent, and a hyphen for unknown values."""
    shown = acct("gridengine", CLASSIC, "--by", "user")
    heads, anna, ben = shown.out.splitlines()
    assert heads.split()[:4] == ["USER", "RECORDS", "JOBS", "FAILED"]
    assert anna.split()[:4] == ["anna", "7", "4", "25.0%"]
    assert ben.split()[-1] == "-"
    assert shown.out.count("25.0%") == 1


def test_table_shows_times_as_slurm_does(acct: Acct, tmp_path: Path) -> None:
    """Hours, minutes and seconds, after days if there are any; CSV has seconds."""
    line = CLASSIC.read_bytes().splitlines()[-1].split(b":")
    line[13] = str(17_119 + 86_400).encode()
    file = tmp_path / "accounting"
    file.write_bytes(b":".join(line) + b"\n")
    heads, row = acct("gridengine", file, "--by", "user").out.splitlines()
    assert row[heads.index("WALLCLOCK") :].startswith("1-04:45:19")
    (exact,) = rows(acct("gridengine", file, "--by", "user", "-o", "json"))
    assert exact["WALLCLOCK"] == 17_119 + 86_400


def test_table_fits_terminal() -> None:
    """Texts are cut and columns without space are named on stderr; a file has all of them."""
    arguments = ("acct", "gridengine", CLASSIC, "--list")
    shown = on_terminal(*arguments, columns=60, NO_COLOR="1")
    lines = shown.out.splitlines()
    assert len(lines) > 2
    assert max(map(len, lines)) <= 60
    assert "not shown for lack of width: " in shown.err
    assert len(ccpipe(*arguments).out.splitlines()[0]) > 60


def test_top_sorts_by_cpu_time(acct: Acct) -> None:
    """Groups and jobs, unless --sort names another column."""
    (first,) = rows(acct("gridengine", CLASSIC, "--by", "user", "--count", 1, "-o", "json"))
    assert first["USER"] == "anna"
    (first,) = rows(
        acct("gridengine", CLASSIC, "--by", "user", "--count", 1, "--sort", "records", "-o", "json")
    )
    assert first["USER"] == "ben"
    maximum = rows(
        acct("gridengine", CLASSIC, "--list", "--count", 2, "--sort", "cpu", "-o", "json")
    )
    assert [row["JOB"] for row in maximum] == [141, 139]
    every = rows(acct("gridengine", CLASSIC, "--by", "slots", "--sort", "slot-hours", "-o", "json"))
    assert [row["SLOTS"] for row in every] == [4, 1]


def test_unknown_column_is_rejected(acct: Acct) -> None:
    """The message lists the columns."""
    shown = acct("gridengine", CLASSIC, "--sort", "speed")
    assert shown.code == 64
    assert "--sort speed: no such column; choose one of records, runs, jobs" in shown.err


def test_invalid_utf8_is_replaced_in_every_output(acct: Acct) -> None:
    """Bytes that are not UTF-8 become U+FFFD in every output."""
    odd = DATA / "derived" / "derived-latin1.jsonl"
    for layout in (["-o", "table"], ["-o", "csv"], ["-o", "json"], ["--qacct"]):
        shown = acct("gridengine", odd, "--list", *layout)
        assert shown.code == 0
        assert "\ufffd" in shown.out


def test_table_counts_rows_beyond_its_limit(acct: Acct, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table ends with the number of rows left out; CSV and JSON have all."""
    monkeypatch.setattr("ccpipe.cli.acct.table.MAX_ROWS", 10)
    shown = acct("gridengine", CLASSIC, "--list")
    assert len(shown.out.splitlines()) == 11
    assert "… and 118 rows more" in shown.err
    assert len(rows(acct("gridengine", CLASSIC, "--list", "-o", "csv"))) == 128


@pytest.mark.parametrize("file", [CLASSIC, JSONL])
@pytest.mark.parametrize("by", ["outcome", "user", "job"])
def test_every_group_has_every_percentile(acct: Acct, tmp_path: Path, file: Path, by: str) -> None:
    """Null (a hyphen in a table) for a group without values, such as one of PE tasks only."""
    task = next(line for line in CLASSIC.read_text().splitlines() if ":1.node" in line)
    (tmp_path / "tasks").write_text(
        f"{task}\n".replace(":anna:", ":zoe:").replace(":0:0:", ":25:0:")
    )
    arguments = (file, tmp_path / "tasks", "--by", by, "--percentiles", 95)
    table = acct("gridengine", *arguments)
    assert (table.code, table.err) == (0, "")
    found = rows(acct("gridengine", *arguments, "-o", "json"))
    assert {"WAIT P95", "WALLCLOCK P95", "MEMORY PEAK P95"} <= set.intersection(*map(set, found))
    assert len(table.out.splitlines()) == 1 + len(found)


def test_sums_have_names_of_qacct(acct: Acct) -> None:
    """With all digits of the numbers that qacct prints with three."""
    (row,) = rows(acct("gridengine", CLASSIC, "-o", "json"))
    printed = {"WALLCLOCK": 25.0, "UTIME": 6.862, "STIME": 0.389, "CPU": 45.579,
               "MEMORY": 12.0, "IO": 0.006, "IOW": 0.0}  # fmt: skip
    assert {name: round(float(str(row[name])), 3) for name in printed} == printed
    assert (row["RECORDS"], row["RUNS"], row["JOBS"], row["FAILED"]) == (128, 125, 125, 1)


def test_percentiles_have_their_names(acct: Acct) -> None:
    """Of wait, wallclock and peak memory; in a table with units."""
    arguments = (CLASSIC, "--percentiles", 50, "--percentiles", 99.5)
    (row,) = rows(acct("gridengine", *arguments, "-o", "json"))
    names = [
        f"{name} P{p}" for name in ("WAIT", "WALLCLOCK", "MEMORY PEAK") for p in ("50", "99.5")
    ]
    assert list(row)[-6:] == names
    assert row["MEMORY PEAK P99.5"] == pytest.approx(2**32, rel=0.005)
    assert "4.02 GiB" in acct("gridengine", *arguments).out


def test_command_lines_are_not_shown(acct: Acct) -> None:
    """They may contain secrets."""
    typed = [
        record.submit_cmd_line
        for record in read(JSONL.read_bytes()).records
        if record.submit_cmd_line
    ]
    assert typed
    for output in ("table", "csv", "json"):
        shown = acct("gridengine", JSONL, "--list", "-o", output).out
        assert not [line for line in typed if line in shown]
        assert "qsub" not in shown
