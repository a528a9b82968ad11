# ruff: noqa: INP001 - a program, no module
"""A fuzz target for atheris: OpenTelemetry's requests of metrics and of logs, and responses.

``python fuzz/otlp.py -max_total_time=60`` looks for bytes that raise anything but a DataError, that
are read differently with cached attributes, or whose metrics are not what is sent again.
"""

import contextlib
import sys

import atheris

with atheris.instrument_imports(include=["ccpipe.formats.otlp", "ccpipe.formats.protobuf"]):
    from ccpipe.errors import DataError
    from ccpipe.formats.lineprotocol import Lines
    from ccpipe.formats.otlp.decoder import MetricsDecoder
    from ccpipe.formats.otlp.encoder import MetricsEncoder
    from ccpipe.formats.otlp.logs import LogsDecoder
    from ccpipe.formats.otlp.responses import decode_response, decode_status

METRICS = MetricsDecoder(["service.name", "a"])
LOGS = LogsDecoder(["service.name", "a"])
ENCODER = MetricsEncoder()


def check(data: bytes) -> None:
    """Read the same bytes in every way."""
    with contextlib.suppress(DataError):
        found = METRICS.decode(data, now=1)
        again = METRICS.decode(data, now=1)
        assert rows(again.lines) == rows(found.lines)
        assert again.rejected == found.rejected
        returned = METRICS.decode(ENCODER.encode(found.lines), now=1)
        assert sorted(rows(returned.lines)) == sorted(rows(found.lines))
        assert returned.rejected == 0
    with contextlib.suppress(DataError):
        LOGS.decode(data, now=1)
    with contextlib.suppress(DataError):
        decode_response(data)
    decode_status(data)


def rows(lines: Lines) -> list[str]:
    """Return the rows as texts, which can be sorted."""
    return [repr((m.name, sorted(m.tags.items()), m.value, m.time, m.field)) for m in lines]


if __name__ == "__main__":
    atheris.Setup(sys.argv, check)
    atheris.Fuzz()
