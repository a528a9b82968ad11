# ruff: noqa: INP001 - a program, no module
"""A fuzz target for atheris: accounting read by the kernel and by Python, then translated.

``python fuzz/gridengine.py -max_total_time=60 tests/data/gridengine`` looks for bytes on which the
readers differ, or that raise.
"""

import contextlib
import sys

import atheris

with atheris.instrument_imports(include=["ccpipe.formats.gridengine", "ccpipe.translate"]):
    from ccpipe.errors import DataError
    from ccpipe.formats.gridengine import encode_jsonl, read
    from ccpipe.formats.gridengine.columns import SCHEMA, read_compiled, read_in_python
    from ccpipe.formats.gridengine.reader import lines_of_jobs, search_in_python
    from ccpipe.formats.gridengine.reporting import parse_job_log
    from ccpipe.formats.gridengine.status import parse_xml, read_shares
    from ccpipe.translate.gridengine.export import events
    from ccpipe.translate.gridengine.jobs import Mapping, from_event, job_of, metrics, to_event
    from ccpipe.translate.gridengine.translator import Assembler

MAPPING = Mapping(cluster="fuzz")


def check(payload: bytes) -> None:
    """Read in every way and compare; then go on to events, jobs and back."""
    reading = read(payload)
    compiled = read_compiled(payload, SCHEMA.names, 1, 0)
    compiled.table.validate(full=True)
    assert compiled == read_in_python(payload, SCHEMA.names, 1, 0)
    assert lines_of_jobs(payload, [1, 140]) == search_in_python(payload, [1, 140])
    assembler = Assembler()
    jobs = [job_of(record, "fuzz") for record in reading.records]
    for runs in [*assembler.feed(jobs), *assembler.flush()]:
        list(events(runs, MAPPING))
        list(metrics(runs, MAPPING))
    for record in reading.records:
        assert read(encode_jsonl(record)).rejected == []
        from_event(to_event(record, cluster="fuzz"))
    with contextlib.suppress(DataError):
        parse_job_log(payload)
    with contextlib.suppress(DataError):
        read_shares(parse_xml(payload))


if __name__ == "__main__":
    atheris.Setup(sys.argv, check)
    atheris.Fuzz()
