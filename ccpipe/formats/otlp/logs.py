"""The body of an ``ExportLogsServiceRequest`` to ``Lines`` of logs.

::

    ExportLogsServiceRequest { repeated ResourceLogs resource_logs = 1; }
    ResourceLogs { Resource resource = 1; repeated ScopeLogs scope_logs = 2; }
    ScopeLogs    { InstrumentationScope scope = 1; repeated LogRecord log_records = 2; }
    InstrumentationScope { string name = 1; }
    LogRecord    { fixed64 time_unix_nano = 1; SeverityNumber severity_number = 2;
                   string severity_text = 3; AnyValue body = 5; repeated KeyValue attributes = 6;
                   fixed64 observed_time_unix_nano = 11; }
"""

from collections.abc import Sequence

from ccpipe.errors import DataError, EncodeError
from ccpipe.formats.lineprotocol import SeriesTable
from ccpipe.formats.lineprotocol.series import valid_tag
from ccpipe.formats.otlp import SERVICE
from ccpipe.formats.otlp.attributes import (
    Span,
    as_text,
    read_attributes,
    read_value,
    resource_tags,
    utf8,
)
from ccpipe.formats.otlp.decoder import Decoded, children, resource_attributes
from ccpipe.formats.otlp.rows import RequestRows
from ccpipe.formats.protobuf import fields, read_varint
from ccpipe.message import LOG_LEVELS

_FIRST, _SECOND = 0x0A, 0x12
_TIME, _SEVERITY, _SEVERITY_TEXT, _BODY, _ATTRIBUTE, _OBSERVED = 0x09, 0x10, 0x1A, 0x2A, 0x32, 0x59
_LEVELS = {0: "", **dict.fromkeys(range(1, 9), "debug"), **dict.fromkeys(range(9, 13), "info"),
           **dict.fromkeys(range(13, 17), "warn")}  # fmt: skip
"""By severity number; all others are errors."""


class LogsDecoder:
    """Decodes requests."""

    def __init__(self, tags: Sequence[str] = (SERVICE,)) -> None:
        """Make tags of the attributes `tags`, of resources and of records."""
        self._wanted = tags
        self._table = SeriesTable()

    def decode(self, body: bytes, now: int) -> Decoded:
        """Decode a request; a record without any time gets the time `now`, in nanoseconds.

        The component is the name of the service or, without it, of the scope. Raises DataError if
        the body is not a request.
        """
        self._table = self._table.current()
        rows = RequestRows(self._table, now)
        for resource in rows.within(children(body, (0, len(body)), _FIRST)):
            attributes = resource_attributes(body, resource)
            tags = resource_tags(attributes, self._wanted)
            if "hostname" in tags:
                tags["type"] = "node"
            for scope in rows.within(children(body, resource, _SECOND)):
                component = attributes.get(SERVICE) or _scope_name(body, scope) or "otlp"
                for record in rows.within(children(body, scope, _SECOND)):
                    try:
                        self._record(body, record, component, tags, rows)
                    except (DataError, EncodeError) as error:
                        rows.reject(component, body[slice(*record)], error)
        return Decoded(rows.lines(), rows.rejected)

    def _record(
        self, body: bytes, span: Span, component: str, tags: dict[str, str], rows: RequestRows
    ) -> None:
        times, severity, severity_text, value = {}, 0, "", None
        for key, start, end in fields(body, *span):
            if key in (_TIME, _OBSERVED) and any(body[start:end]):
                times[key] = rows.time(body, start)
            elif key == _SEVERITY:
                severity, _ = read_varint(body, start, end)
            elif key == _SEVERITY_TEXT:
                severity_text = utf8(body, start, end)
            elif key == _BODY:
                value = read_value(body, start, end)
        attributes = read_attributes(body, children(body, span, _ATTRIBUTE))
        own = {key: attributes[key] for key in self._wanted if key in attributes}
        level = _LEVELS.get(severity, "error") or _named_level(severity_text)
        code = rows.code(valid_tag(component), {**own, **tags, "loglevel": level})
        time = times.get(_TIME, times.get(_OBSERVED, rows.now))
        rows.add_text(code, "log", as_text(value), time)


def _named_level(text: str) -> str:
    return text.lower() if text.lower() in LOG_LEVELS else "info"


def _scope_name(body: bytes, span: Span) -> str:
    name = ""
    for scope in children(body, span, _FIRST):
        for start, end in children(body, scope, _FIRST):
            name = utf8(body, start, end)
    return name
