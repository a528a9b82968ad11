"""Export of accounting: every record is in each format; Sonar's envelopes are valid."""

import csv
import io
import json
import re
from typing import get_args

import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.formats.gridengine import read
from ccpipe.formats.gridengine.columns import from_records
from ccpipe.formats.lineprotocol import decode
from ccpipe.formats.sonar import JobsData, SlurmJob, encode, problems
from ccpipe.formats.sonar import decode as decode_sonar
from ccpipe.translate.gridengine.export import (
    Format,
    jobs_to_sonar,
    open_writer,
    write_records,
)
from ccpipe.translate.gridengine.jobs import MEASURES, JobRuns, Mapping
from tests.translate.gridengine.test_assembler import DATA, NOW, job, runs_of

CLASSIC = (DATA / "accounting").read_bytes()
JSONL = (DATA / "derived.jsonl").read_bytes()
FORMATS = get_args(Format)


def converted(payload: bytes, to: Format, *, command_line: bool = False) -> tuple[bytes, list[str]]:
    target = io.BytesIO()
    reading = read(payload)
    writer = open_writer(to, target, Mapping(cluster="fox"))
    left_out = write_records(writer, reading.records, command_line=command_line)
    writer.close()
    return target.getvalue(), [bad.reason for bad in (*reading.rejected, *left_out)]


def test_export_reproduces_classic_file() -> None:
    """The classic file is reproduced byte for byte; as JSON it has the same records."""
    assert converted(CLASSIC, "classic") == (CLASSIC, [])
    lines, _ = converted(CLASSIC, "json")
    same = [(r.job_number, r.usage, r.end_time) for r in read(CLASSIC).records]
    assert [(r.job_number, r.usage, r.end_time) for r in read(lines).records] == same


def test_export_returns_records_that_format_cannot_represent() -> None:
    """A colon in a name is impossible in the classic format; other records are written."""
    payload = JSONL.replace(b'"job_name":"exit3"', b'"job_name":"a:b"')
    lines, reasons = converted(payload, "classic")
    assert len(read(lines).records) == 23
    assert reasons == ["job 1002: job_name has a colon or line end: 'a:b'"]


@pytest.mark.parametrize("to", sorted(set(FORMATS) - {"classic", "parquet"}))
def test_export_writes_utf_8_in_all_formats_but_classic(to: Format) -> None:
    """Cells of before 2010 have Latin-1: such a byte becomes U+FFFD, or ``%E9`` in a tag."""
    fields = CLASSIC.splitlines()[4].split(b":")
    fields[2] = fields[4] = b"caf\xe9"
    line = b":".join(fields) + b"\n"
    written, left_out = converted(line, to)
    assert left_out == []
    assert written.decode("utf-8", "strict")


def test_table_has_row_for_each_record() -> None:
    """CSV and Parquet have the columns of the table, and its values."""
    text, _ = converted(CLASSIC, "csv")
    rows = list(csv.DictReader(io.StringIO(text.decode())))
    assert [int(row["job_number"]) for row in rows] == [r.job_number for r in read(CLASSIC).records]
    parquet, _ = converted(JSONL, "parquet", command_line=True)
    table = pyarrow.parquet.read_table(io.BytesIO(parquet))
    assert table.equals(from_records(read(JSONL).records))


def test_table_keeps_custom_usage_and_unknown_keys() -> None:
    """They are JSON in one column: nothing of a record is lost."""
    custom = b'"usage":{"sensors":{"energy":7.5,"host":"n1"},"rusage":{"ru_custom":3},'
    payload = JSONL.split(b"\n")[1].replace(b'"usage":{', custom).replace(b"{", b'{"site":[1],', 1)
    (record,) = read(payload).records
    assert record.usage["sensors"] == {"energy": 7.5, "host": "n1"}
    parquet, _ = converted(payload, "parquet")
    (row,) = pyarrow.parquet.read_table(io.BytesIO(parquet)).to_pylist()
    text, _ = converted(payload, "csv")
    (csv_row,) = csv.DictReader(io.StringIO(text.decode()))
    for found in (row, csv_row):
        assert json.loads(found["usage_json"])["sensors"] == {"energy": 7.5, "host": "n1"}
        assert json.loads(found["extra_json"]) == {"site": [1]}
    assert converted(CLASSIC, "csv")[0].splitlines()[1].endswith(b",,")


def test_export_writes_events_metrics_and_envelope() -> None:
    """Two events and the metrics for each job that ran, an envelope for all."""
    events, _ = converted(CLASSIC, "events")
    assert len(decode(events)) == 2 * 125
    metrics, _ = converted(CLASSIC, "metrics")
    assert {message.name for message in decode(metrics)} == MEASURES.keys()
    assert len(decode(converted(CLASSIC, "line")[0])) == len(decode(events + metrics))
    sonar, _ = converted(CLASSIC, "sonar")
    (envelope,) = decode_sonar(sonar)
    assert isinstance(envelope.data, JobsData)
    assert len(envelope.data.attributes.slurm_jobs) == 128


@pytest.mark.parametrize("to", FORMATS)
@given(
    text=st.binary(max_size=6) | st.sampled_from([b"\\ud800", b"\\udce9", b"\\n", b"\xed\xa0\x80"]),
    key=st.sampled_from(["job_name", "owner", "hostname", "category", "project"]),
)
def test_export_writes_or_rejects_any_text(to: Format, text: bytes, key: str) -> None:
    """Bytes that are not UTF-8 are kept in the classic format and U+FFFD in the others."""
    line = JSONL.split(b"\n")[1]
    payload = re.sub(
        rb'"%b":"[^"]*"' % key.encode(), lambda _: b'"%b":"%b"' % (key.encode(), text), line
    )
    written, _ = converted(payload, to)
    if to not in {"classic", "parquet"}:
        written.decode()


@pytest.mark.parametrize("to", FORMATS)
def test_export_omits_command_line_by_default(to: Format) -> None:
    """Bad lines are reported in full in every format."""
    payload = (DATA / "derived/derived-malformed.jsonl").read_bytes()
    written, reasons = converted(payload, to)
    assert b"sleep 3" not in written
    assert len(reasons) == 3


MAPPING = Mapping(cluster="fox")


def sonar(*found: JobRuns) -> tuple[SlurmJob, ...]:
    envelope = jobs_to_sonar(found, MAPPING, time=NOW)
    assert problems(envelope, strict=True) == []
    decoded = decode_sonar(encode(envelope))
    assert (decoded, decoded.rejected) == ([envelope], [])
    assert isinstance(envelope.data, JobsData)
    return envelope.data.attributes.slurm_jobs


@pytest.mark.parametrize("name", ["accounting", "derived.jsonl", "reporting.head"])
def test_sonar_export_conforms_to_specification(name: str) -> None:
    """No rule of the specification is broken, and each job and PE task has its record."""
    found = runs_of(*read((DATA / name).read_bytes()).records)
    assert len(sonar(*found)) == sum(1 + len(runs.tasks) for runs in found)


def test_sonar_export_uses_sonar_units_and_states() -> None:
    """Minutes, kilobytes, TRES and Slurm's states."""
    master = job(
        7, task_number=2, slots=4, granted_pe="mpi", hostname="n1.x", failed=37, exit_status=137,
        category="-l h_rt=90,h_vmem=2G,gpu=1 -pe mpi 4", qname="all.q", project="astro", arid=3,
        usage={"rusage": {"ru_wallclock": 90, "ru_utime": 1.6, "ru_maxrss": 2048},
               "eusage": {"cpu": 80.4, "maxvmem": 4096.0, "maxrss": 1.8446744073709552e19}},
    )  # fmt: skip
    whole, task = sonar(
        JobRuns(master, (job(7, task_number=2, pe_taskid="1.n2", hostname="n2.x"),))
    )
    assert (whole.job_id, whole.array_job_id, whole.array_task_id) == (7000002, 7, 2)
    assert (whole.time_limit.value, whole.job_state, whole.exit_code) == (2, "TIMEOUT", 137)
    assert (whole.nodes, whole.requested_node_count, whole.requested_cpus) == (("n1", "n2"), 2, 4)
    assert whole.requested_memory_per_node == 4 * 2**20
    assert whole.allocated_resources == "cpu=4,mem=8388608K,gres/gpu=4"
    assert (whole.account, whole.partition, whole.reservation) == ("astro", "all.q", "3")
    assert whole.sacct is not None
    assert (whole.sacct.ElapsedRaw, whole.sacct.UserCPU, whole.sacct.AveCPU) == (90, 2, 80)
    assert (whole.sacct.MaxVMSize, whole.sacct.MaxRSS) == (4, 2048)
    assert (task.job_step, task.nodes) == ("1.n2", ("n2",))


def test_sonar_export_has_pending_job_without_times() -> None:
    """Times are not made up."""
    (found,) = sonar(JobRuns(job(failed=8, start_time=None, end_time=None)))
    assert (found.job_state, found.start_time, found.end_time) == ("PENDING", "", "")
