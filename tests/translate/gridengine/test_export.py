"""Accounting in other forms: every record is in each of them."""

import csv
import io
import json
import re

import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.formats.gridengine import read
from ccpipe.formats.gridengine.columns import from_records
from ccpipe.formats.lineprotocol import decode
from ccpipe.formats.sonar import JobsData
from ccpipe.formats.sonar import decode as decode_sonar
from ccpipe.translate.gridengine.export import FORMATS, Format, open_writer, write_records
from ccpipe.translate.gridengine.jobs import Mapping
from ccpipe.translate.gridengine.translator import MEASURES
from tests.translate.gridengine.test_assembler import DATA

CLASSIC = (DATA / "accounting").read_bytes()
JSONL = (DATA / "derived.jsonl").read_bytes()


def converted(payload: bytes, to: Format, *, command_line: bool = False) -> tuple[bytes, list[str]]:
    target = io.BytesIO()
    reading = read(payload)
    writer = open_writer(to, target, Mapping(cluster="fox"))
    left_out = write_records(writer, reading.records, command_line=command_line)
    writer.close()
    return target.getvalue(), [bad.reason for bad in (*reading.rejected, *left_out)]


def test_grid_engines_own_formats() -> None:
    """The classic file comes out as it went in; as JSON it holds the same records."""
    assert converted(CLASSIC, "classic") == (CLASSIC, [])
    lines, _ = converted(CLASSIC, "json")
    same = [(r.job_number, r.usage, r.end_time) for r in read(CLASSIC).records]
    assert [(r.job_number, r.usage, r.end_time) for r in read(lines).records] == same


def test_a_record_that_a_format_cannot_carry_is_left_out_and_told() -> None:
    """A colon in a name cannot stand in the classic format; its neighbours are written."""
    payload = JSONL.replace(b'"job_name":"exit3"', b'"job_name":"a:b"')
    lines, reasons = converted(payload, "classic")
    assert len(read(lines).records) == 23
    assert reasons == ["job 1002: job_name is 'a:b': it ends the field"]


@pytest.mark.parametrize("to", sorted(set(FORMATS) - {"classic", "parquet"}))
def test_text_is_utf_8_in_every_format_but_grid_engines_own(to: Format) -> None:
    """Cells of before 2010 have Latin-1: such a byte becomes U+FFFD, or ``%E9`` in a tag."""
    fields = CLASSIC.splitlines()[4].split(b":")
    fields[2] = fields[4] = b"caf\xe9"
    line = b":".join(fields) + b"\n"
    written, left_out = converted(line, to)
    assert left_out == []
    assert written.decode("utf-8", "strict")


def test_tables_have_a_row_for_each_record() -> None:
    """CSV and Parquet have the columns of the table, and its values."""
    text, _ = converted(CLASSIC, "csv")
    rows = list(csv.DictReader(io.StringIO(text.decode())))
    assert [int(row["job_number"]) for row in rows] == [r.job_number for r in read(CLASSIC).records]
    parquet, _ = converted(JSONL, "parquet", command_line=True)
    table = pyarrow.parquet.read_table(io.BytesIO(parquet))
    assert table.equals(from_records(read(JSONL).records))


def test_tables_keep_custom_usage_and_unknown_keys() -> None:
    """What has no column is JSON in one: nothing of a record is lost."""
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


def test_jobs_in_line_protocol_and_sonar() -> None:
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
def test_any_text_can_be_written_or_is_refused(to: Format, text: bytes, key: str) -> None:
    """Bytes that are not UTF-8 are kept in the classic format and U+FFFD in the others."""
    line = JSONL.split(b"\n")[1]
    payload = re.sub(
        rb'"%b":"[^"]*"' % key.encode(), lambda _: b'"%b":"%b"' % (key.encode(), text), line
    )
    written, _ = converted(payload, to)
    if to not in {"classic", "parquet"}:
        written.decode()


@pytest.mark.parametrize("to", FORMATS)
def test_the_command_line_is_kept_back_unless_asked_for(to: Format) -> None:
    """No format shows it by itself; bad lines are told whatever is written."""
    payload = (DATA / "derived/derived-malformed.jsonl").read_bytes()
    written, reasons = converted(payload, to)
    assert b"sleep 3" not in written
    assert len(reasons) == 3
