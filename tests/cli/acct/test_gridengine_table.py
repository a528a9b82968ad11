"""Grid Engine's columns in ``ccpipe acct``."""

import pytest

from ccpipe.formats.gridengine import read
from tests.cli.acct.acct_command import Acct, rows
from tests.paths import TEST_DATA

DATA = TEST_DATA / "gridengine"
CLASSIC = DATA / "accounting"
JSONL = DATA / "derived.jsonl"


def test_the_sums_stand_under_the_names_of_qacct(acct: Acct) -> None:
    """All digits of the same numbers that qacct prints three of."""
    (row,) = rows(acct(CLASSIC, "-o", "json"))
    printed = {"WALLCLOCK": 25.0, "UTIME": 6.862, "STIME": 0.389, "CPU": 45.579,
               "MEMORY": 12.0, "IO": 0.006, "IOW": 0.0}  # fmt: skip
    assert {name: round(float(str(row[name])), 3) for name in printed} == printed
    assert (row["RECORDS"], row["RUNS"], row["JOBS"], row["FAILED"]) == (128, 125, 125, 1)


def test_percentiles_are_shown_under_their_names(acct: Acct) -> None:
    """Of wait, wallclock and peak memory; in a table with units."""
    arguments = (CLASSIC, "--percentiles", 50, "--percentiles", 99.5)
    (row,) = rows(acct(*arguments, "-o", "json"))
    names = [
        f"{name} P{p}" for name in ("WAIT", "WALLCLOCK", "MEMORY PEAK") for p in ("50", "99.5")
    ]
    assert list(row)[-6:] == names
    assert row["MEMORY PEAK P99.5"] == pytest.approx(2**32, rel=0.005)
    assert "4.0 GiB" in acct(*arguments).out
    wrong = acct(CLASSIC, "--percentiles", 101)
    assert (wrong.code, wrong.out) == (64, "")


def test_what_the_submitter_typed_is_not_shown(acct: Acct) -> None:
    """Command lines hold secrets; they are in no output."""
    typed = [
        record.submit_cmd_line
        for record in read(JSONL.read_bytes()).records
        if record.submit_cmd_line
    ]
    assert typed
    for output in ("table", "csv", "json"):
        shown = acct(JSONL, "--jobs", "-o", output).out
        assert not [line for line in typed if line in shown]
        assert "qsub" not in shown
