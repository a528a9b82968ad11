"""Accounting records as one Arrow table: its columns, and the way from records to them."""

import re
from collections.abc import Callable, Sequence
from typing import Any

from ccpipe.errors import MissingExtra
from ccpipe.formats.gridengine.classic import RUSAGE
from ccpipe.formats.gridengine.record import Accounting

try:
    import pyarrow as pa
except ImportError:
    raise MissingExtra("pyarrow", "parquet") from None

WHOLE = ("job_number", "task_number", "slots", "arid", "priority", "failed", "exit_status")
TIMES = ("submission_time", "start_time", "end_time", "ar_submission_time", "reported")
TEXTS = (
    "owner", "group", "account", "qname", "hostname", "project", "department", "granted_pe",
    "job_name", "category", "pe_taskid", "submit_cmd_line", "deleted_by", "variant",
)  # fmt: skip
EUSAGE = ("wallclock", "cpu", "mem", "io", "ioops", "iow", "maxvmem", "maxrss", "maxpss")
PLACE = ("line", "offset")

SCHEMA = pa.schema(
    [(name, pa.int64()) for name in (*WHOLE, *TIMES)]
    + [(name, pa.string()) for name in TEXTS]
    + [(name, pa.float64()) for name in (*RUSAGE, *EUSAGE)]
    + [(name, pa.int64()) for name in PLACE]
)
"""All columns; names, units and what is null are those of ``Accounting``.

``wallclock`` is that of ``eusage``; what ``Accounting.wallclock`` says, and qacct sums, is
``ru_wallclock``. Usage that a variant does not have is null. Bytes that are not UTF-8 have become
U+FFFD.
"""

COLUMNS = tuple(name for name in SCHEMA.names if name not in PLACE)
"""What is read unless other columns are asked for."""


def from_records(records: Sequence[Accounting], columns: Sequence[str] = COLUMNS) -> pa.Table:
    """Return records as a table of these columns."""
    schema = pa.schema([SCHEMA.field(name) for name in columns])
    arrays = [
        pa.array([get(record) for record in records], SCHEMA.field(name).type)
        for name, get in ((name, _getter(name)) for name in columns)
    ]
    return pa.table(arrays, schema=schema)


def _getter(name: str) -> Callable[[Accounting], Any]:
    if name in PLACE or name == "variant":
        return lambda record: getattr(record.origin, name)
    if name in RUSAGE:
        return lambda record: _number(record, "rusage", name)
    if name in EUSAGE:
        return lambda record: _number(record, "eusage", name)
    if name in TEXTS:
        return lambda record: _text(getattr(record, name))
    return lambda record: getattr(record, name)


def _number(record: Accounting, container: str, name: str) -> float | None:
    value = record.usage.get(container, {}).get(name)
    return float(value) if isinstance(value, int | float) else None


def _text(text: str | None) -> str | None:
    """Put U+FFFD for what Arrow's strings cannot hold: bytes that are not UTF-8."""
    if text is None or text.isascii():
        return text
    return _SURROGATE.sub("\ufffd", text)


_SURROGATE = re.compile("[\ud800-\udfff]")
