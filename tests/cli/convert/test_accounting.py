"""Accounting on the command line: Grid Engine's in every format, Slurm's as jobs."""

import gzip
import io
import json
from pathlib import Path
from typing import get_args

import pyarrow.parquet
import pytest

from ccpipe.cli.convert.converters import FromGridEngine
from ccpipe.formats.files import open_stream
from ccpipe.formats.gridengine import read
from ccpipe.formats.lineprotocol import decode
from ccpipe.formats.sonar import JobsData, SlurmJob, problems
from ccpipe.formats.sonar import decode as decode_sonar
from ccpipe.translate.gridengine.export import Format
from tests.cli.command import ccpipe
from tests.paths import TEST_DATA

DATA = TEST_DATA / "gridengine"
SACCT = TEST_DATA / "slurm" / "sacct"
SACCT_ROWS = SACCT / "phase1_linux.sonar_fields.txt"


def converted(converter: FromGridEngine, *files: Path) -> tuple[bytes, int, list[str]]:
    pieces: list[tuple[bytes, int]] = []
    reported: list[str] = []
    for path in files:
        with open_stream(path) as stream:
            pieces += converter.convert(stream, reported.append)
    pieces += converter.finish(reported.append)
    return b"".join(piece for piece, _ in pieces), sum(count for _, count in pieces), reported


@pytest.mark.parametrize("to", get_args(Format))
def test_convert_merges_files_of_accounting(tmp_path: Path, to: Format) -> None:
    """Both formats and a compressed file in one run; every record counts."""
    packed = tmp_path / "accounting.0.gz"
    packed.write_bytes(gzip.compress((DATA / "accounting").read_bytes()))
    converter = FromGridEngine(to, cluster="fox")
    output, count, reported = converted(converter, packed, DATA / "derived.jsonl")
    assert (count, reported) == (152, [])
    if to == "parquet":
        assert pyarrow.parquet.read_table(io.BytesIO(output)).num_rows == 152
    elif to in {"classic", "json"}:
        assert len(read(output).records) == 152
    elif to in {"line", "events", "metrics"}:
        assert len(decode(output)) > 240
    elif to == "csv":
        assert output.count(b"\n") == 153
    else:
        assert all(not problems(envelope) for envelope in decode_sonar(output))
        assert output.count(b'"job_id"') > 140


def test_convert_reports_bad_lines_of_accounting() -> None:
    """Both unreadable lines and records that the format cannot represent; the rest is written."""
    converter = FromGridEngine("classic", cluster="fox")
    _, count, reported = converted(converter, DATA / "derived" / "derived-malformed.jsonl")
    assert count == 2
    assert [problem.split(",")[0].split(" at ")[0] for problem in reported] == [
        ":1: not JSON: Expecting '", ":6: not JSON: Expecting value", ":7: not JSON: Extra data",
    ]  # fmt: skip


def test_commands_convert_and_validate_accounting() -> None:
    """128 real records, and exit code 65 with the position of a bad one."""
    converting = ccpipe("convert", "--from", "gridengine", "--to", "events", DATA / "accounting")
    events = decode(converting.out.encode())
    assert converting.code == 0
    assert not events.rejected
    assert {message.tags["function"] for message in events} == {"start_job", "stop_job"}
    real = (DATA / "accounting").read_bytes()
    good = ccpipe("validate", "--from", "gridengine", DATA / "accounting")
    assert good.code == 0
    assert "records 128, rejected 0" in good.out
    bad = ccpipe("validate", "--from", "gridengine", "-", stdin=real + b"one:line:too:short\n")
    assert bad.code == 65
    lines = real.count(b"\n") + 1
    assert f":{lines}:" in bad.out


def test_convert_rejects_accounting_formats_for_lines() -> None:
    """With exit code 64: line protocol has no accounting records."""
    refused = ccpipe("convert", "--to", "classic", stdin=b"m value=1 1\n")
    assert refused.code == 64
    assert "gridengine only" in refused.err


@pytest.mark.parametrize("path", [SACCT_ROWS, SACCT / "phase1_linux.json.gz"])
def test_sacct_rows_become_sonar_json(path: Path) -> None:
    """Every row is a record, from either format."""
    converted = ccpipe("convert", "--from", "sacct", "--to", "sonar", "--cluster", "fox", path)
    assert converted.code == 0
    jobs: list[SlurmJob] = []
    for envelope in decode_sonar(converted.out.encode()):
        assert isinstance(envelope.data, JobsData)
        assert envelope.data.attributes.cluster == "fox"
        jobs += envelope.data.attributes.slurm_jobs
    assert {"COMPLETED", "FAILED", "TIMEOUT", "NODE_FAIL"} <= {job.job_state for job in jobs}
    if path == SACCT_ROWS:
        ids = [line.split("|")[1] for line in SACCT_ROWS.read_text().splitlines()[1:]]
        assert len(jobs) == len([each for each in ids if each])


def test_sacct_rows_become_events() -> None:
    """Each job that ran has a start and a stop."""
    converted = ccpipe("convert", "--from", "sacct", "--to", "json", SACCT_ROWS)
    assert converted.code == 0
    rows = [json.loads(line) for line in converted.out.splitlines()]
    functions = [row["tags"]["function"] for row in rows]
    assert functions.count("start_job") >= functions.count("stop_job") > 0


def test_bad_sacct_row_is_reported_with_its_line() -> None:
    """The others are converted, and the exit code is 65."""
    payload = b"JobIDRaw|State|Start\n3|COMPLETED|2026-11-20T10:32:28\n4|COMPLETED|yesterday\n"
    converted = ccpipe("convert", "--from", "sacct", "--to", "sonar", stdin=payload)
    assert converted.code == 65
    assert "stdin:3: start: not a time" in converted.err
    assert '"job_id":3' in converted.out
