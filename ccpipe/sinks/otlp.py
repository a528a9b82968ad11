"""OpenTelemetry: any receiver of OTLP over HTTP, such as a Collector, Prometheus 3 or Mimir.

Prometheus stores nothing of a request with one point that it rejects, and other receivers say only
how many they rejected: see ``docs/stores/otlp.md``.
"""

import time
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any, Literal

from ccpipe.errors import DataError, RejectedError
from ccpipe.formats.lineprotocol import Lines
from ccpipe.formats.otlp import CONTENT_TYPE
from ccpipe.formats.otlp.encoder import MetricsEncoder
from ccpipe.formats.otlp.responses import decode_response, decode_status
from ccpipe.pipeline import Limits
from ccpipe.sinks.http import HttpSink, Response, numbers
from ccpipe.translate.rules.matching import matcher


class OtlpSink(HttpSink[Lines]):
    """Sends numbers as gauges and sums, grouped by host."""

    takes = Lines

    stored = frozenset({200, 202, 204})

    limits = Limits(max_records=10_000, max_bytes=4 * 2**20, max_wait=1.0)

    def __init__(
        self,
        *,
        url: str = "http://127.0.0.1:4318",
        url_path: str = "/v1/metrics",
        counters: Sequence[str] = (),
        tenant: str = "",
        compression: Literal["none", "gzip"] = "gzip",
        **http: Any,
    ) -> None:
        """Configure the address.

        Parameters
        ----------
        url
            The receiver's address.
        url_path
            Path of its endpoint for metrics: ``/api/v1/otlp/v1/metrics`` for Prometheus,
            ``/otlp/v1/metrics`` for Mimir, ``/opentelemetry/v1/metrics`` for VictoriaMetrics.
        counters
            Names of metrics that only increase, as patterns such as ``*_total``; they are sent as
            cumulative sums, all others as gauges.
        tenant
            The tenant, sent to Mimir in the header ``X-Scope-OrgID``.
        compression
            Compression of requests.

        """
        super().__init__(url=url, compression=compression, **http)
        self.path = url_path
        self.headers = {"Content-Type": CONTENT_TYPE} | (
            {"X-Scope-OrgID": tenant} if tenant else {}
        )
        is_counter = matcher(counters, ())
        self.encoder = MetricsEncoder(lambda name: bool(counters) and is_counter(name, {}))

    async def write(self, records: Lines) -> None:
        lines = numbers("OpenTelemetry", records).fill_missing_times(time.time_ns())
        if len(lines):
            await self.post(self.encoder.encode(lines), headers=self.headers)

    async def ask(self) -> None:
        await self.post(b"", headers=self.headers)

    async def request(self, *args: Any, **options: Any) -> Response:
        """Send one request; the text of an error's status is its message."""
        answer = await super().request(*args, **options)
        if answer.status < HTTPStatus.BAD_REQUEST:
            return answer
        return answer._replace(text=decode_status(answer.body) or answer.text)

    def is_receipt(self, answer: Response) -> bool:
        """Return whether a response is one of OTLP; raises RejectedError if it stored only a part.

        The rejected points are found by sending halves again: a point is identified by its series
        and its time, so one that is stored already is not stored twice.
        """
        if not super().is_receipt(answer):
            return False
        try:
            partial = decode_response(answer.body)
        except DataError:
            return False  # a page
        if partial.rejected:
            raise RejectedError(f"{self._shown}{self.path}: {partial.reason or 'rejected'}")
        return True
