"""Responses, written and read by OpenTelemetry's own classes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsPartialSuccess,
    ExportMetricsServiceResponse,
)

from ccpipe.errors import DataError
from ccpipe.formats.otlp.responses import (
    PartialSuccess,
    decode_response,
    decode_status,
    encode_status,
)


@given(st.integers(0, 2**63 - 1), st.text(st.characters(exclude_categories=["Cs"]), max_size=300))
def test_response_is_that_of_generated_classes(rejected: int, reason: str) -> None:
    """In both directions."""
    theirs = ExportMetricsServiceResponse(
        partial_success=ExportMetricsPartialSuccess(
            rejected_data_points=rejected, error_message=reason
        )
    )
    assert decode_response(theirs.SerializeToString()) == (rejected, reason)
    read = ExportMetricsServiceResponse.FromString(PartialSuccess(rejected, reason).encode())
    assert read.partial_success.rejected_data_points == rejected
    assert read.partial_success.error_message == (reason if rejected else "")


@pytest.mark.parametrize("page", [b"<html>Please log in</html>", b'{"partialSuccess":{}}', b"ok"])
def test_page_is_not_a_response(page: bytes) -> None:
    """A proxy or a login portal answers with one."""
    with pytest.raises(DataError, match="not a protobuf message"):
        decode_response(page)
    assert decode_status(page) == ""


@given(st.text(max_size=300))
def test_status_has_reason(reason: str) -> None:
    shown = reason.encode(errors="backslashreplace").decode()
    assert decode_status(encode_status(reason)) == shown
