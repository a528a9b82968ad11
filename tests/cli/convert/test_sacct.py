"""``ccpipe convert --from sacct``."""

import json
from pathlib import Path

import pytest

from ccpipe.formats.sonar import JobsData, SlurmJob, decode
from tests.cli.command import ccpipe
from tests.paths import TEST_DATA

DATA = TEST_DATA / "slurm" / "sacct"
TEXT = DATA / "phase1_linux.sonar_fields.txt"


@pytest.mark.parametrize("path", [TEXT, DATA / "phase1_linux.json.gz"])
def test_rows_become_sonars_json(path: Path) -> None:
    """Every row is a record, from either format."""
    converted = ccpipe("convert", "--from", "sacct", "--to", "sonar", "--cluster", "fox", path)
    assert converted.code == 0
    jobs: list[SlurmJob] = []
    for envelope in decode(converted.out.encode()):
        assert isinstance(envelope.data, JobsData)
        assert envelope.data.attributes.cluster == "fox"
        jobs += envelope.data.attributes.slurm_jobs
    assert {"COMPLETED", "FAILED", "TIMEOUT", "NODE_FAIL"} <= {job.job_state for job in jobs}
    if path == TEXT:
        ids = [line.split("|")[1] for line in TEXT.read_text().splitlines()[1:]]
        assert len(jobs) == len([each for each in ids if each])


def test_rows_become_events() -> None:
    """Each job that ran has a start and a stop."""
    converted = ccpipe("convert", "--from", "sacct", "--to", "json", TEXT)
    assert converted.code == 0
    rows = [json.loads(line) for line in converted.out.splitlines()]
    functions = [row["tags"]["function"] for row in rows]
    assert functions.count("start_job") >= functions.count("stop_job") > 0


def test_bad_row_is_reported_with_its_line() -> None:
    """The others are converted all the same, and the exit code is 65."""
    payload = b"JobIDRaw|State|Start\n3|COMPLETED|2026-11-20T10:32:28\n4|COMPLETED|yesterday\n"
    converted = ccpipe("convert", "--from", "sacct", "--to", "sonar", stdin=payload)
    assert converted.code == 65
    assert "stdin:3: start: not a time" in converted.err
    assert '"job_id":3' in converted.out
