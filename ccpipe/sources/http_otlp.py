"""Requests and responses of OpenTelemetry: OTLP over HTTP, in binary."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING

from ccpipe.errors import DataError
from ccpipe.formats.otlp import CONTENT_TYPE
from ccpipe.formats.otlp.decoder import Decoded, MetricsDecoder
from ccpipe.formats.otlp.logs import LogsDecoder
from ccpipe.formats.otlp.responses import PartialSuccess, encode_status
from ccpipe.sources.http_requests import Refused

if TYPE_CHECKING:
    from aiohttp import web

METRICS_PATH, LOGS_PATH = OTLP_PATHS = ("/v1/metrics", "/v1/logs")
MAX_BYTES_AT_ONCE = 2**20
"""Larger requests are decoded in a thread, because 16 MiB may take seconds."""
_REASONS = 10
"""Maximum number of reasons in a response."""


class OtlpReceiver:
    """Decodes requests of metrics and of logs."""

    def __init__(self, tags: Sequence[str]) -> None:
        """Make tags of the attributes `tags` of resources and of log records."""
        self._tags = tags
        self._decoders = {path: self._decoder(path) for path in OTLP_PATHS}

    def _decoder(self, path: str) -> MetricsDecoder | LogsDecoder:
        return MetricsDecoder(self._tags) if path == METRICS_PATH else LogsDecoder(self._tags)

    async def decode(self, request: "web.Request", body: bytes) -> Decoded:
        """Decode a body; raises Refused with 415 for JSON, 400 if it is not a request."""
        if request.content_type != CONTENT_TYPE:
            raise Refused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"expected {CONTENT_TYPE}")
        try:
            if len(body) <= MAX_BYTES_AT_ONCE:
                return self._decoders[request.path].decode(body, time.time_ns())
            decoder = self._decoder(request.path)  # another thread must not share the cache
            return await asyncio.to_thread(decoder.decode, body, time.time_ns())
        except DataError as error:
            raise Refused(HTTPStatus.BAD_REQUEST, str(error)) from None


def otlp_response(found: Decoded) -> "web.Response":
    """Answer that everything is stored, except what was rejected."""
    from aiohttp import web

    reason = "; ".join(one.reason for one in found.lines.rejected[:_REASONS])
    body = PartialSuccess(found.rejected, reason).encode()
    return web.Response(body=body, content_type=CONTENT_TYPE)


def otlp_error(status: int, reason: str, headers: Mapping[str, str] | None) -> "web.Response":
    """Answer with an error; its body is a message in protobuf, too."""
    from aiohttp import web

    return web.Response(
        body=encode_status(reason), status=status, headers=headers, content_type=CONTENT_TYPE
    )
