"""Receives InfluxDB's line protocol, OpenTelemetry, or Sonar's envelopes, over HTTP.

=======================  =================================================================
``POST /write``          InfluxDB 1: Telegraf, Slurm's profile plug-in ``influxdb``
``POST /api/v2/write``   InfluxDB 2 and 3
``POST /v1/metrics``     OpenTelemetry (OTLP in binary), also ``/v1/logs``
``POST …/sample``        Sonar, also ``…/sysinfo``, ``…/job`` and ``…/cluster``, each with or
                         without a prefix and a dot before it
``POST`` elsewhere       Sonar's stream for its Kafka proxy, if it is an octet stream
``GET /ping, /health``   liveness
``POST /query``          InfluxDB 1: ``CREATE DATABASE``, which does nothing
=======================  =================================================================

The response 204, or 200 to OpenTelemetry, means that the data is stored: a request waits until the
sink has written it.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Literal, Self

from ccpipe.config import Duration, Site, Size, listen_address
from ccpipe.errors import ConfigError, MissingExtra
from ccpipe.formats.lineprotocol import Lines, Precision, decode
from ccpipe.formats.lineprotocol.lines import RejectedLine
from ccpipe.formats.otlp import SERVICE
from ccpipe.formats.sonar import decode as decode_sonar
from ccpipe.formats.sonar.envelopes import Envelopes, RejectedEnvelope
from ccpipe.listening import MAX_CONNECTIONS, REQUEST_SECONDS, ConnectionLimits, listen, peer_of
from ccpipe.pipeline import Batch, Source
from ccpipe.sources.http_otlp import OTLP_PATHS, OtlpReceiver, otlp_error, otlp_response
from ccpipe.sources.http_requests import (
    MAX_STREAM,
    STREAM_PART,
    Clusters,
    Credentials,
    KproxStream,
    Refused,
    body_parts,
    read_body,
)
from ccpipe.tls import check_key, server_tls_context

try:
    from aiohttp import web
except ImportError:
    raise MissingExtra("aiohttp", "http") from None

_PRECISIONS: dict[str, Precision] = {
    "": "ns", "n": "ns", "ns": "ns", "u": "us", "us": "us", "ms": "ms", "s": "s",
}  # fmt: skip
_TYPES = frozenset({"sample", "sysinfo", "job", "jobs", "cluster"})
log = logging.getLogger(__name__)

REPEAT_SECONDS = 60.0
"""Minimum interval between log lines about requests that are refused with the same status."""
CLOSE_SECONDS = 2.0
"""Time limit for responses at shutdown, if records cannot be written."""
_REASONS = 10
"""Maximum number of reasons in a response."""


@dataclass(slots=True)
class _Waiting:
    """A request that waits until its records are stored."""

    batch: Batch[Any] | None
    """None once answered, so that nothing is kept for a client that disconnected."""


class HttpSource(Source[Any]):
    """Receives line protocol or Sonar's envelopes by POST."""

    def __init__(
        self,
        *,
        site: Site,
        listen: str = "127.0.0.1:8086",
        format: Literal["line", "sonar"] = "line",  # noqa: A002 - the key in recipes
        users_file: str = "",
        token_file: str = "",
        clusters: dict[str, list[str]] = {},  # noqa: B006 - copied for each
        token_clusters: list[str] = [],  # noqa: B006 - copied for each
        cert_file: str = "",
        key_file: str = "",
        otlp_tags: list[str] = [SERVICE],  # noqa: B006 - copied for each
        max_connections: int = MAX_CONNECTIONS,
        timeout: Duration = Duration(30),
        max_body_bytes: Size = Size(16 * 2**20),
        max_memory: Size = Size(64 * 2**20),
    ) -> None:
        """Configure address, credentials and limits.

        Parameters
        ----------
        listen
            Address and port; use credentials and a certificate for any address other than loopback.
        format
            What is received: ``line`` for InfluxDB's line protocol and OpenTelemetry, ``sonar`` for
            envelopes.
        users_file
            File with lines ``user:password``, one of which is then required (HTTP Basic).
        token_file
            File containing a token that is also accepted (HTTP ``Token`` or ``Bearer``).
        clusters
            Clusters that each user may write for, ``*`` being all. Other users write for the
            cluster of their own name and, with ``line``, for the bridge's cluster, to which lines
            without the tag ``cluster`` belong.
        token_clusters
            Clusters that the token may write for; default: the bridge's cluster.
        cert_file, key_file
            Server certificate and private key; enables HTTPS and disables HTTP.
        otlp_tags
            Attributes that become tags, of OpenTelemetry's resources and log records; those of data
            points all do.
        max_connections
            Maximum number of open connections, half of them from one address; beyond it, the one
            that has waited longest for its request is closed.
        timeout
            Time limit for receiving and storing a request; after it the response is 503.
        max_body_bytes
            Maximum decompressed size of a request; larger ones are answered with 413.
        max_memory
            Maximum total size of pending requests; beyond it, requests are answered with 503.

        """
        self.host, self.port = listen_address("listen", listen)
        check_key(cert_file, key_file)
        self.format = format
        self.gives = Lines if format == "line" else Envelopes
        if max_connections < 1:
            raise ConfigError("max_connections: must be at least 1")
        self.cluster = site.cluster
        self.users_file, self.token_file = users_file, token_file
        self.otlp = OtlpReceiver(otlp_tags)
        self.clusters, self.token_clusters = clusters, token_clusters or [site.cluster]
        self.max_connections = max_connections
        self.cert_file, self.key_file = cert_file, key_file
        self.timeout = float(timeout)
        self.max_body_bytes, self.max_memory = max_body_bytes, max_memory
        self.held = 0
        """Size of the waiting requests, in bytes."""
        self._waiting: asyncio.Queue[_Waiting | None] = asyncio.Queue()
        self._unsafe: set[asyncio.Future[None]] = set()
        self._stopping = False
        self._logged: dict[int, float] = {}
        """When a refusal was last logged, by status."""

    async def check(self) -> None:
        self._read_credentials()
        server_tls_context(self.cert_file, self.key_file)

    def _read_credentials(self) -> Credentials:
        return Credentials.read(
            self.users_file,
            self.token_file,
            self.clusters,
            self.token_clusters,
            everyones=[self.cluster] if self.format == "line" else [],
        )

    async def __aenter__(self) -> Self:
        self._credentials = self._read_credentials()
        app = web.Application()
        for path in ("/ping", "/health"):
            app.router.add_get(path, self._ping)
        if self.format == "line":
            app.router.add_post("/write", self._post)
            app.router.add_post("/api/v2/write", self._post)
            for path in OTLP_PATHS:
                app.router.add_post(path, self._post)
            app.router.add_post("/query", self._query)
        else:
            app.router.add_post("/{path:.*}", self._post)
        tls = server_tls_context(self.cert_file, self.key_file)
        self.limits = ConnectionLimits(
            f"{self.host}:{self.port}",
            connections=self.max_connections,
            seconds=max(REQUEST_SECONDS, self.timeout),
        )
        try:
            self._runner = await listen(
                app, self.host, self.port, self.limits, tls=tls, shutdown_seconds=CLOSE_SECONDS
            )
        except OSError as error:
            raise ConfigError(f"listen: {self.host}:{self.port}: {error.strerror}") from None
        return self

    async def __aexit__(self, *exit_: object) -> None:
        """Answer stored requests, and others with 503; then close."""
        self.stop()
        for done in self._unsafe:
            done.cancel()
        await self._runner.cleanup()

    def stop(self) -> None:
        """Accept no more requests; end when the waiting ones were handed over."""
        if not self._stopping:
            self._stopping = True
            self._waiting.put_nowait(None)

    async def batches(self) -> AsyncIterator[Batch[Any]]:
        while one := await self._waiting.get():
            if one.batch is not None:  # otherwise it was answered with 503 and will be repeated
                yield one.batch

    async def _ping(self, _: web.Request) -> web.Response:
        return web.Response(status=204, headers={"X-Influxdb-Version": "1.8-ccpipe"})

    async def _query(self, request: web.Request) -> web.Response:
        """Answer Telegraf, which creates its database first."""
        form = await request.post()
        text = str(form.get("q", request.query.get("q", "")))
        if not text.lstrip().upper().startswith("CREATE DATABASE"):
            return _error(400, "only writes and CREATE DATABASE are answered here")
        return web.json_response({"results": [{"statement_id": 0}]})

    async def _post(self, request: web.Request) -> web.Response:
        try:
            if self._stopping:
                raise Refused(503, "shutting down")
            async with asyncio.timeout(self.timeout) as limit:
                if self.format == "sonar" and _is_stream(request):
                    return await self._receive_stream(request, limit)
                clusters = self._credentials.check(request.headers.get("Authorization", ""))
                return await self._receive(request, clusters)
        except TimeoutError:
            return _refusal(request, 503, "not written in time; please retry")
        except asyncio.CancelledError:
            if not self._stopping:
                raise
            return _refusal(request, 503, "not written: shutting down; please retry")
        except Refused as refused:
            self._log_refusal(request, refused)
            return _refusal(request, refused.status, str(refused))

    def _log_refusal(self, request: web.Request, refused: Refused) -> None:
        """Log what will not be repeated, such as a wrong password: Sonar takes it for success."""
        if refused.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            return
        now = time.monotonic()
        if now - self._logged.get(refused.status, -REPEAT_SECONDS) >= REPEAT_SECONDS:
            self._logged[refused.status] = now
            log.warning(
                "%s:%d: data from %s are refused with %d: %s",
                self.host, self.port, request.remote, refused.status, refused,
            )  # fmt: skip

    def _take(self, size: int) -> None:
        self.held += size
        if self.held > self.max_memory:
            raise Refused(503, "too many pending requests")

    async def _receive(self, request: web.Request, clusters: Clusters) -> web.Response:
        taken = 0

        def take(size: int) -> None:
            nonlocal taken
            taken += size
            self._take(size)

        if self._credentials.are_required:
            self.limits.keep(peer_of(request))
        try:
            body = await read_body(request, self.max_body_bytes, take)
            self.limits.keep(peer_of(request))
            if self.format == "line" and request.path in OTLP_PATHS:
                found = await self.otlp.decode(request, body)
                clusters.check(self._clusters_of(found.lines))
                if len(found.lines) or found.rejected:  # a client does not repeat bad points
                    await self._until_safe(found.lines, _origin(request))
                return otlp_response(found)
            records = self._decode(request, body)
            clusters.check(self._clusters_of(records))
            reasons = _Reasons()
            await self._store(records, request, reasons)
        finally:
            self.held -= taken
        return reasons.response()

    async def _receive_stream(self, request: web.Request, limit: asyncio.Timeout) -> web.Response:
        """Store the envelopes of a stream in parts, each of which extends `limit`."""
        header = request.headers.get("Authorization", "")
        stream = KproxStream(self._credentials, header, self.cluster, self.max_body_bytes)
        held, reasons = 0, _Reasons()
        try:
            async for part in body_parts(request, MAX_STREAM):
                stream.feed(part)
                if stream.error is not None:
                    break
                grown = stream.size - held
                held += grown
                self._take(grown)
                if stream.is_authenticated:
                    self.limits.keep(peer_of(request))
                if stream.complete >= STREAM_PART:
                    await self._store(stream.take(), request, reasons)
                    self.limits.keep(peer_of(request))
                    limit.reschedule(asyncio.get_running_loop().time() + self.timeout)
            else:
                stream.finish()
            await self._store(stream.take(), request, reasons)
        finally:
            self.held -= held
        if stream.error is not None:
            raise stream.error
        return reasons.response()

    def _decode(self, request: web.Request, body: bytes) -> Lines | Envelopes:
        if self.format == "sonar":
            if _type_of(request) not in _TYPES:
                raise Refused(404, "expected a path that ends in sample, sysinfo, job or cluster")
            return decode_sonar(body)
        precision = _PRECISIONS.get(request.query.get("precision", ""))
        if precision is None:
            raise Refused(400, "precision is not one of s, ms, us, ns")
        lines = decode(body, precision=precision, dialect="influx")
        return lines.fill_missing_times(time.time_ns())

    def _clusters_of(self, records: Lines | Envelopes) -> set[str]:
        if isinstance(records, Envelopes):
            found = records.clusters()
        else:
            series = records.table.series
            found = {series[code].tags.get("cluster", "") for code in set(records.series)}
        return {name or self.cluster for name in found}

    async def _store(
        self, records: Lines | Envelopes, request: web.Request, reasons: "_Reasons"
    ) -> None:
        """Hand records to the pipe and wait until they are stored; note what was rejected."""
        reasons.add(records.rejected)
        if len(records):
            await self._until_safe(records, _origin(request))

    async def _until_safe(self, records: Lines | Envelopes, origin: str) -> None:
        if self._stopping:  # since its first byte arrived
            raise Refused(503, "shutting down")
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def ack() -> None:
            if not done.done():
                done.set_result(None)

        waiting = _Waiting(Batch(records, ack, origin))
        self._waiting.put_nowait(waiting)
        self._unsafe.add(done)
        try:
            await done
        finally:
            self._unsafe.discard(done)
            waiting.batch = None


class _Reasons:
    """The rejected records of a request, for its response."""

    def __init__(self) -> None:
        self.rejected = 0
        self._first: list[str] = []

    def add(self, rejected: Sequence[RejectedLine] | Sequence[RejectedEnvelope]) -> None:
        self.rejected += len(rejected)
        for one in rejected[: _REASONS - len(self._first)]:
            self._first.append(f"line {one.line}: {one.reason}")

    def response(self) -> web.Response:
        if not self.rejected:
            return web.Response(status=204)
        return _error(400, f"partial write: {'; '.join(self._first)}; dropped={self.rejected}")


def _type_of(request: web.Request) -> str:
    """Return the last word of the path: the type of an envelope, or anything."""
    return request.path.rpartition("/")[2].rpartition(".")[2]


def _origin(request: web.Request) -> str:
    return f"http://{request.remote or '?'}{request.path}"


def _is_stream(request: web.Request) -> bool:
    return _type_of(request) not in _TYPES and request.content_type == "application/octet-stream"


def _refusal(request: web.Request, status: int, reason: str) -> web.Response:
    if request.path in OTLP_PATHS:
        return otlp_error(status, reason, _HEADERS.get(status))
    return _error(status, reason)


def _error(status: int, reason: str) -> web.Response:
    return web.json_response({"error": reason}, status=status, headers=_HEADERS.get(status))


_HEADERS: dict[int, dict[str, str]] = {
    HTTPStatus.UNAUTHORIZED: {"WWW-Authenticate": 'Basic realm="ccpipe"'},
    HTTPStatus.SERVICE_UNAVAILABLE: {"Retry-After": "1"},
}
