# ruff: noqa: INP001 - a program, no module
"""A fuzz target for atheris: accounting lines one by one against kernel and twin, and what follows.

``python fuzz/gridengine.py -max_total_time=60 tests/data/gridengine`` looks for bytes on which the
readers differ, or that raise.
"""

import contextlib
import sys

import atheris

with atheris.instrument_imports(include=["ccpipe.formats.gridengine", "ccpipe.translate"]):
    from ccpipe.errors import DataError
    from ccpipe.formats.gridengine import encode_jsonl, read
    from ccpipe.formats.gridengine.columns import SCHEMA, with_odd
    from ccpipe.formats.gridengine.event import from_event, to_event
    from ccpipe.formats.gridengine.plain_lines import plain_lines
    from ccpipe.formats.gridengine.reporting import read_job_log
    from ccpipe.formats.gridengine.status import read_shares
    from ccpipe.formats.gridengine.table import from_records
    from ccpipe.formats.gridengine.whole_blocks import plain_in_python
    from ccpipe.translate.gridengine.assembler import Assembler
    from ccpipe.translate.gridengine.events import Mapping, events, metrics

MAPPING = Mapping(cluster="fuzz")


def check(payload: bytes) -> None:
    """Read in every way and compare; then go on to events, jobs and back."""
    reading = read(payload)
    expected = from_records(reading.records, SCHEMA.names)
    for plain in (plain_lines, plain_in_python):
        columns = with_odd(payload, plain(payload, SCHEMA.names, 1, 0), SCHEMA.names, 1, 0)
        columns.table.validate(full=True)
        assert columns.table.equals(expected)
        assert columns.rejected == reading.rejected
        assert (columns.size, columns.lines) == (reading.size, reading.lines)
    assembler = Assembler()
    for job in [*assembler.feed(reading.records), *assembler.flush()]:
        list(events(job, MAPPING))
        list(metrics(job, MAPPING))
    for record in reading.records:
        assert read(encode_jsonl(record)).rejected == []
        from_event(to_event(record, cluster="fuzz"))
    read_job_log(payload)
    with contextlib.suppress(DataError):
        read_shares(payload)


if __name__ == "__main__":
    atheris.Setup(sys.argv, check)
    atheris.Fuzz()
