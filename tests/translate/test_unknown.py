"""Unknown values are omitted: a field missing in a record never becomes 0."""

import io
import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from ccpipe.config import Duration, Site
from ccpipe.formats import sonar
from ccpipe.formats.gridengine import read
from ccpipe.formats.lineprotocol import decode
from ccpipe.formats.slurm.text import SacctReader
from ccpipe.jobs import Jobs
from ccpipe.message import Message
from ccpipe.translate.gridengine.export import Format, open_writer, write_records
from ccpipe.translate.gridengine.jobs import Mapping
from ccpipe.translate.slurm.jobs import job_of_row
from ccpipe.translate.slurm.to_cc import SlurmToCc
from ccpipe.translate.slurm.to_sonar import SlurmToSonar
from tests.formats.slurm.captured import UTC, captured
from tests.paths import TEST_DATA

SITE = Site(cluster="fox", hostname="master")
TIME = 1_795_170_834 * 10**9


def zeros(document: Any, path: tuple[object, ...] = ()) -> Iterator[tuple[object, ...]]:
    """Yield where a document, or JSON in one of its texts, has the number 0."""
    if isinstance(document, str) and document[:1] in ("{", "["):
        document = json.loads(document)
    if isinstance(document, dict):
        for key, value in document.items():
            yield from zeros(value, (*path, key))
    elif isinstance(document, list):
        for place, value in enumerate(document):
            yield from zeros(value, (*path, place))
    elif document == 0 and not isinstance(document, bool):
        yield path


def of_lines(lines: Any) -> set[tuple[object, ...]]:
    """Return where messages have zeros, by name, function and device."""

    def about(message: Message) -> tuple[object, ...]:
        tags = ("function", "stype", "stype-id", "type", "type-id")
        return (message.name, *(message.tags.get(tag, "") for tag in tags))

    return {place for message in lines for place in zeros(message.value, about(message))}


SACCT = captured("sacct/phase3_pss_influx.all_fields.txt").split(b"\n")
COLUMNS = SACCT[0].decode().split("|")
FINISHED = [row for row in SACCT[1:] if b"|COMPLETED|" in row or b"|FAILED|" in row][:3]


@pytest.mark.parametrize("blank", [b"", b"Unknown"])
def test_unknown_cell_of_sacct_is_omitted(blank: bytes) -> None:
    """Neither in events of ClusterCockpit nor in Sonar's envelopes nor in tables."""

    def zeros_of(row: bytes) -> set[tuple[object, ...]]:
        rows = SacctReader(zone=UTC).read(SACCT[0] + b"\n" + row + b"\n").records
        jobs = Jobs([job_of_row(each, "fox") for each in rows], time=TIME)
        found = of_lines(SlurmToCc(site=SITE, stop_delay=Duration(0)).feed(jobs))
        for envelope in SlurmToSonar(site=SITE).feed(jobs):
            found |= set(zeros(json.loads(sonar.encode(envelope))))
        return found | set(zeros(jobs.to_arrow().to_pylist()))

    for row in FINISHED:
        cells, known = row.split(b"|"), zeros_of(row)
        for place, column in enumerate(COLUMNS):
            less = b"|".join([*cells[:place], blank, *cells[place + 1 :]])
            assert zeros_of(less) <= known, column


@pytest.mark.parametrize("to", ["metrics", "events", "sonar"])
def test_missing_key_of_accounting_is_omitted(to: Format) -> None:
    """In all outputs of Grid Engine's records; usage has a key for each measurement."""

    def zeros_of(record: Any) -> set[tuple[object, ...]]:
        target = io.BytesIO()
        writer = open_writer(to, target, Mapping(cluster="fox"))
        write_records(writer, read(msgspec.json.encode(record) + b"\n").records)
        writer.close()
        text = target.getvalue()
        return set(zeros(json.loads(text or b"{}"))) if to == "sonar" else of_lines(decode(text))

    lines = (TEST_DATA / "gridengine/derived.jsonl").read_bytes().splitlines()
    record = next(each for each in map(json.loads, lines) if each["usage"]["rusage"]["ru_utime"])
    known = zeros_of(record)
    for key in record:
        assert zeros_of({name: record[name] for name in record if name != key}) <= known, key
    for container, values in record["usage"].items():
        for key in values:
            less = {name: value for name, value in values.items() if name != key}
            usage = record["usage"] | {container: less}
            assert zeros_of(record | {"usage": usage}) <= known, (container, key)
