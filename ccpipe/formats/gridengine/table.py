"""Accounting records as an Arrow table."""

import json
from collections.abc import Callable, Sequence
from typing import Any

from ccpipe.errors import MissingExtra
from ccpipe.formats.gridengine.classic import RUSAGE
from ccpipe.formats.gridengine.record import Accounting, Amount, clean

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
JSON = ("usage_json", "extra_json")
PLACE = ("line", "offset")

SCHEMA = pa.schema(
    [(name, pa.int64()) for name in (*WHOLE, *TIMES)]
    + [(name, pa.string()) for name in (*TEXTS, *JSON)]
    + [(name, pa.float64()) for name in (*RUSAGE, *EUSAGE)]
    + [(name, pa.int64()) for name in PLACE]
)
"""All columns; names, units and nulls are those of ``Accounting``.

``wallclock`` is that of ``eusage``; ``Accounting.wallclock``, which qacct sums, is
``ru_wallclock``. Usage that a variant does not have is null. ``usage_json`` and ``extra_json`` are
JSON objects of what has no column (custom usage, unknown keys), or null. Bytes that are not UTF-8
become U+FFFD, in the JSON columns the escapes ``\\udc80`` to ``\\udcff``.
"""

COLUMNS = tuple(name for name in SCHEMA.names if name not in PLACE)
"""The columns that are read by default."""


def from_records(records: Sequence[Accounting], columns: Sequence[str] = COLUMNS) -> pa.Table:
    schema = pa.schema([SCHEMA.field(name) for name in columns])
    arrays = [
        pa.array([get(record) for record in records], SCHEMA.field(name).type)
        for name, get in ((name, _getter(name)) for name in columns)
    ]
    return pa.table(arrays, schema=schema)


def _getter(name: str) -> Callable[[Accounting], Any]:
    if name in _JSON:
        return _JSON[name]
    if name in PLACE or name == "variant":
        return lambda record: getattr(record.origin, name)
    if name in RUSAGE or name in EUSAGE:
        container = "rusage" if name in RUSAGE else "eusage"
        return lambda record: _number(record, container, name)
    if name in TEXTS:
        return lambda record: _text(getattr(record, name))
    return lambda record: getattr(record, name)


def _number(record: Accounting, container: str, name: str) -> float | None:
    value = record.usage.get(container, {}).get(name)
    return float(value) if isinstance(value, int | float) else None


def _custom(usage: dict[str, dict[str, Amount]]) -> dict[str, dict[str, Amount]]:
    custom = {}
    for container, values in usage.items():
        known = _COLUMNS_OF.get(container, frozenset())
        if rest := {n: v for n, v in values.items() if n not in known or isinstance(v, str)}:
            custom[container] = rest
    return custom


_COLUMNS_OF = {"rusage": frozenset(RUSAGE), "eusage": frozenset(EUSAGE)}


def _json(tree: dict[str, Any]) -> str | None:
    return json.dumps(tree, separators=(",", ":")) if tree else None


_JSON: dict[str, Callable[[Accounting], str | None]] = {
    "usage_json": lambda record: _json(_custom(record.usage)),
    "extra_json": lambda record: _json(record.extra),
}


def _text(text: str | None) -> str | None:
    """Replace bytes that are not UTF-8, which Arrow's strings cannot hold, by U+FFFD."""
    return None if text is None else clean(text)
