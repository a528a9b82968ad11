"""``ccpipe.read_jobs``: jobs of any scheduler's files, recognized by their content."""

import gzip
import json
import logging
from datetime import UTC, datetime
from pathlib import Path

import pytest

import ccpipe
from ccpipe.formats.gridengine import Accounting, encode_jsonl
from ccpipe.formats.slurm.records import SacctRow
from tests.paths import TEST_DATA

ACCOUNTING = TEST_DATA / "gridengine/accounting"
SACCT = TEST_DATA / "slurm/sacct"


def test_jobs_are_read_from_grid_engine_accounting() -> None:
    jobs = list(ccpipe.read_jobs(ACCOUNTING, cluster="fritz"))
    assert len(jobs) == 128
    first = jobs[0]
    assert (first.cluster, first.id, first.user, first.state) == ("fritz", 137, "ben", "completed")
    assert isinstance(first.raw, Accounting)


def test_jobs_are_read_from_grid_engine_json(tmp_path: Path) -> None:
    """It is JSON like sacct's, but a document for each line; compressed as well."""
    raws = [job.raw for job in ccpipe.read_jobs(ACCOUNTING)]
    path = tmp_path / "accounting.jsonl.gz"
    path.write_bytes(
        gzip.compress(b"".join(encode_jsonl(raw) for raw in raws if isinstance(raw, Accounting)))
    )
    jobs = list(ccpipe.read_jobs(path))
    assert [job.id for job in jobs] == [job.id for job in ccpipe.read_jobs(ACCOUNTING)]


@pytest.mark.parametrize("name", ["phase1_linux.all_fields.txt.gz", "phase1_linux.json.gz"])
def test_jobs_are_read_from_sacct_output(name: str) -> None:
    jobs = ccpipe.read_jobs(SACCT / name, cluster="fox")
    by_id = {job.id: job for job in jobs}
    first = by_id[1]
    assert (first.cluster, first.user, first.state) == ("fox", "alice", "completed")
    assert [node.hostname for node in first.nodes] == ["c1", "c2", "c3"]
    assert first.end >= first.start > 0
    assert isinstance(first.raw, SacctRow)
    assert jobs.rejected == []


def test_bad_line_is_skipped_and_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It is in ``rejected`` after each iteration, and one warning is logged."""
    path = tmp_path / "accounting"
    path.write_bytes(b"broken\n" + ACCOUNTING.read_bytes() + b"worse\n")
    jobs = ccpipe.read_jobs(path)
    for _ in range(2):
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            assert len(list(jobs)) == 128
        assert [bad.original for bad in jobs.rejected] == [b"broken", b"worse"]
        assert [record.getMessage().partition(": ")[2] for record in caplog.records] == [
            "2 records rejected, first line 1: expected at least 43 fields, got 1"
        ]


def test_row_without_job_is_skipped_and_reported(tmp_path: Path) -> None:
    path = tmp_path / "sacct.txt"
    path.write_text("JobID|State|NodeList\n1|COMPLETED|c[1-9999999]\n2|COMPLETED|c[1-2]\n")
    jobs = ccpipe.read_jobs(path)
    assert [job.id for job in jobs] == [2]
    assert len(jobs.rejected) == 1
    assert "has 9999999 names" in jobs.rejected[0].reason


def test_unreadable_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ccpipe.MissingInputError, match="nowhere"):
        list(ccpipe.read_jobs(tmp_path / "nowhere"))
    path = tmp_path / "accounting.gz"
    path.write_bytes(gzip.compress(ACCOUNTING.read_bytes())[:-100])
    found: list[ccpipe.Job] = []
    with pytest.raises(ccpipe.DataError, match=r"accounting\.gz: the compressed file is truncated"):
        found.extend(ccpipe.read_jobs(path))
    empty = tmp_path / "empty"
    empty.touch()
    assert list(ccpipe.read_jobs(empty)) == []


def test_all_jobs_of_file_become_one_table() -> None:
    table = ccpipe.read_jobs(ACCOUNTING).to_arrow()
    jobs = ccpipe.Jobs(ccpipe.read_jobs(ACCOUNTING))
    assert table.equals(jobs.to_arrow())
    assert table["start"][0].as_py() == datetime.fromtimestamp(jobs[0].start // 10**9, UTC)
    assert json.dumps(table["id"].to_pylist()) == json.dumps([job.id for job in jobs])
