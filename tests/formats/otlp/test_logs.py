"""Requests of logs, written by OpenTelemetry's own classes, and damaged ones."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsServiceRequest as Request,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, ResourceLogs, ScopeLogs, SeverityNumber
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from ccpipe.errors import DataError
from ccpipe.formats.otlp import rows
from ccpipe.formats.otlp.logs import LogsDecoder
from ccpipe.message import Message, log

NOW = 1740052800 * 10**9


def request(*records: LogRecord, scope: str = "", **resource: str) -> bytes:
    attributes = [pair(key.replace("_", "."), text) for key, text in resource.items()]
    scopes = ScopeLogs(scope=InstrumentationScope(name=scope), log_records=records)
    logs = ResourceLogs(resource=Resource(attributes=attributes), scope_logs=[scopes])
    return bytes(Request(resource_logs=[logs]).SerializeToString())


def pair(key: str, text: str) -> KeyValue:
    return KeyValue(key=key, value=AnyValue(string_value=text))


def read(body: bytes, *tags: str) -> list[Message]:
    return list((LogsDecoder(tags) if tags else LogsDecoder()).decode(body, NOW).lines)


def test_record_is_log_message_of_its_service() -> None:
    """With its level, time and text, and the tags of the node."""
    record = LogRecord(
        time_unix_nano=5,
        severity_number=SeverityNumber.SEVERITY_NUMBER_ERROR,
        body=AnyValue(string_value='disk "a" failed\n'),
    )
    (found,) = read(request(record, scope="io", service_name="solver", host_name="n1"))
    assert found == log(
        "solver", "error", 'disk "a" failed\n', time=5,
        tags={"hostname": "n1", "service.name": "solver", "type": "node"},
    )  # fmt: skip
    assert found.problems() == []


def test_component_is_name_of_scope_without_service() -> None:
    assert read(request(LogRecord(), scope="io"))[0].name == "io"
    assert read(request(LogRecord()))[0].name == "otlp"


def test_attributes_of_record_are_tags_if_wanted() -> None:
    """Others are left out: each line of a program would be a series."""
    record = LogRecord(attributes=[pair("slurm.job.id", "7"), pair("code.lineno", "12")])
    (found,) = read(request(record), "slurm.job.id")
    assert found.tags == {"loglevel": "info", "slurm.job.id": "7"}


@pytest.mark.parametrize(
    ("number", "text", "level"),
    [(1, "", "debug"), (8, "", "debug"), (9, "", "info"), (12, "", "info"), (13, "", "warn"),
     (16, "", "warn"), (17, "", "error"), (24, "", "error"), (0, "WARN", "warn"),
     (0, "critical", "info"), (0, "", "info")],
)  # fmt: skip
def test_level_is_that_of_severity(number: int, text: str, level: str) -> None:
    record = LogRecord(severity_number=SeverityNumber.ValueType(number), severity_text=text)
    (found,) = read(request(record))
    assert found.tags["loglevel"] == level


def test_time_is_observed_one_or_ours_without_its_own() -> None:
    """A time of 0 means that it is unknown."""
    records = [
        LogRecord(time_unix_nano=3, observed_time_unix_nano=4),
        LogRecord(observed_time_unix_nano=4),
        LogRecord(),
    ]
    assert [found.time for found in read(request(*records))] == [3, 4, NOW]


def test_structured_body_is_json() -> None:
    body = AnyValue()
    body.array_value.values.append(AnyValue(int_value=-1))
    assert read(request(LogRecord(body=body)))[0].value == "[-1]"


def test_bad_record_is_rejected_alone() -> None:
    records = LogRecord(time_unix_nano=2**63), LogRecord(time_unix_nano=7)
    found = LogsDecoder().decode(request(*records), NOW)
    assert [each.time for each in found.lines] == [7]
    assert found.rejected == 1
    assert "exceeds 63 bits" in found.lines.rejected[0].reason


@given(st.binary(max_size=100), st.data())
def test_decoder_reads_or_refuses_any_bytes(junk: bytes, data: st.DataObject) -> None:
    """Random ones, and requests that are cut or damaged."""
    body = request(LogRecord(time_unix_nano=5, severity_text="INFO", attributes=[pair("a", "b")]))
    where = data.draw(st.integers(0, len(body)))
    for damaged in (junk, body[:where], body[:where] + junk + body[where + 1 :]):
        try:
            found = LogsDecoder().decode(damaged, NOW)
        except DataError as error:
            assert str(error)  # noqa: PT017 - some bytes are a request
        else:
            assert all(message.time is not None for message in found.lines)


def test_number_of_records_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A record can be two bytes, and takes far more in memory."""
    monkeypatch.setattr(rows, "MAX_MESSAGES", 100)
    assert len(read(request(*[LogRecord()] * 98))) == 98
    with pytest.raises(DataError, match="more than 100 resources, scopes and metrics or logs"):
        read(request(*[LogRecord()] * 99))
