"""Counters of a running pipe, and ``/health``, ``/ready`` and ``/metrics`` over HTTP.

Counters are named ``ccpipe_<what>_total`` and gauges ``ccpipe_<what>``, with the unit in the name;
the label ``component`` is the source, sink, collector or process, unless `label` has another name.
The counters of a pipe's parts are exported from zero on. If a process runs several recipes, each
metric has the label ``recipe`` as well.
``/metrics`` answers in OpenMetrics format if the client accepts it, otherwise in Prometheus text
format.
"""

import logging
import platform
import socket
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from io import BufferedReader
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit

import msgspec

from ccpipe.errors import ConfigError, system_reason
from ccpipe.listening import BACKLOG, ConnectionLimits

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIEnvironment

    from _typeshed import WriteableBuffer
    from prometheus_client import CollectorRegistry
    from prometheus_client.core import Metric

log = logging.getLogger(__name__)

MAX_REQUESTS = 32
"""Maximum number of open connections to `/metrics` and its neighbours, each with a thread."""
REQUEST_SECONDS = 10.0
"""Time limit for such a request and its response."""
MAX_REQUEST_SIZE = 16 * 2**10
"""Bytes read of a request, none of which needs a body."""


class Connected(Protocol):
    """A connection to a broker."""

    @property
    def is_connected(self) -> bool:
        """Whether a server is connected at the other end."""


class Counter(msgspec.Struct):
    """A counter for each part; it never decreases."""

    name: str
    what: str
    values: dict[str, float] = {}
    """By part."""
    label: str = "component"
    """The label that distinguishes the parts."""


class Gauge(msgspec.Struct):
    """A gauge, or one for each part."""

    name: str
    what: str
    values: dict[str, float] = {}
    """By part; the key is the empty string if there is only one value."""
    label: str = "component"

    def set(self, value: float, part: str = "") -> None:
        self.values[part] = value


class Exporter(ABC):
    """Answers ``/health``, ``/ready`` and ``/metrics``.

    prometheus_client is imported on the first request: it costs 20 ms and 3 MB, which most
    commands do not need.
    """

    def __init__(self) -> None:
        self._registry: CollectorRegistry | None = None
        self._lock = threading.Lock()

    @abstractmethod
    def collect(self) -> "Iterator[Metric]":
        """Yield the metrics, each name once."""

    @abstractmethod
    def why_not_ready(self) -> str:
        """Return why ``/ready`` fails; empty if the program is ready."""

    @property
    def registry(self) -> "CollectorRegistry":
        with self._lock:
            if self._registry is None:
                from prometheus_client import CollectorRegistry

                self._registry = CollectorRegistry()
                self._registry.register(self)
            return self._registry

    def answer(
        self, environ: "WSGIEnvironment", start_response: "StartResponse"
    ) -> Iterable[bytes]:
        """Answer ``/health``, ``/ready`` and ``/metrics`` as a WSGI application."""
        status, body = "200 OK", b"ok\n"
        content_type = "text/plain; charset=utf-8"
        match environ["PATH_INFO"]:
            case "/metrics":
                from prometheus_client.exposition import choose_encoder

                encode, content_type = choose_encoder(environ.get("HTTP_ACCEPT", ""))
                body = encode(self.registry)
            case "/health":
                pass
            case "/ready":
                if reason := self.why_not_ready():
                    status = "503 Service Unavailable"
                    body = f"not ready: {reason}\n".encode()
            case _:
                status, body = "404 Not Found", b"/health /ready /metrics\n"
        start_response(status, [("Content-Type", content_type)])
        return [body]

    def serve(self, listen: str) -> "TelemetryServer":
        """Serve HTTP at `listen` (``host:port``) until the server is closed."""
        return TelemetryServer(self, listen)


class Telemetry(Exporter):
    """The counters of one pipe, shared by its parts."""

    def __init__(self) -> None:
        super().__init__()
        self.read = self._counter("read_records", "records read from the source")
        self.written = self._counter("written_records", "records stored by the sink")
        self.batches = self._counter("written_batches", "writes accepted by the sink")
        self.write_seconds = self._counter("write_seconds", "time that these writes took")
        self.retries = self._counter("retries", "writes that failed and were retried")
        self.dead = self._counter("dead_letters", "lines and records that were rejected")
        self.missed = self._counter("missed_slots", "times at which a source could not sample")
        self.failed_reads = self._counter("failed_reads", "readings of a collector that failed")
        self.dropped_log_lines = self._counter("dropped_log_lines", "log lines not sent to the bus")
        self.requests = self._counter("control_requests", "control requests", "outcome")
        self.restarts = self._counter("restarts", "child processes started again")
        self.dropped_records = self._counter(
            "dropped_records", "accounting records dropped", "reason"
        )
        self.bus_errors = self._counter("bus_errors", "errors of the broker connection", "kind")
        self.dropped_messages = self._counter(
            "dropped_messages", "messages that a stream deleted unread", "consumer"
        )
        self.pending_messages = Gauge(
            "ccpipe_consumer_pending_messages",
            "messages of the stream that were not delivered yet",
            label="consumer",
        )
        self.dropped_lines = self._counter(
            "dropped_lines", "lines dropped by a limit that was set, or by damage in the spool"
        )
        self.spooled_messages = Gauge(
            "ccpipe_spooled_messages", "messages on disk for the broker", {"": 0}
        )
        self.spooled_bytes = Gauge("ccpipe_spooled_bytes", "bytes that they take", {"": 0})
        self.queued_bytes = Gauge("ccpipe_queued_bytes", "bytes read and not yet written", {"": 0})
        self.last_write = Gauge(
            "ccpipe_last_write_timestamp_seconds",
            "time of the last write that the sink accepted",
            {"": 0},
        )
        self.ready = False
        """Whether the pipe runs and its last write succeeded, for ``/ready``."""
        self._due: dict[str, float] = {}  # by part: deadline for its next progress
        self._awaited: dict[int, str] = {}  # by part: a broker that it never reached
        self.connections: list[Connected] = []
        """The connections to brokers that are in use."""

    def _counter(self, name: str, what: str, label: str = "component") -> Counter:
        return Counter(f"ccpipe_{name}", what, label=label)

    def declare(self, counter: Counter, *parts: object) -> None:
        """Export a counter for some parts, starting at zero."""
        for part in parts:
            self.count(counter, part, 0)

    def count(self, counter: Counter, part: object, amount: float = 1) -> None:
        """Add to a counter for a part, named by its class or by a string."""
        label = part if isinstance(part, str) else type(part).__name__
        with self._lock:
            counter.values[label] = counter.values.get(label, 0.0) + amount

    def total(self, counter: Counter) -> int:
        with self._lock:
            return int(sum(counter.values.values()))

    def collect(self) -> "Iterator[Metric]":
        from importlib import metadata

        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        kinds = {Counter: CounterMetricFamily, Gauge: GaugeMetricFamily}
        for each in [each for each in vars(self).values() if isinstance(each, Counter | Gauge)]:
            with self._lock:
                values = list(each.values.items())
            names = [] if values and not values[0][0] else [each.label]
            family = kinds[type(each)](each.name, each.what, labels=names)
            for part, value in values:
                family.add_metric([part] if names else [], value)
            yield family
        build = GaugeMetricFamily(
            "ccpipe_build_info", "versions of ccpipe and Python", labels=["version", "python"]
        )
        build.add_metric([metadata.version("ccpipe"), platform.python_version()], 1)
        yield build
        if self.connections:
            is_connected = all(each.is_connected for each in self.connections)
            yield GaugeMetricFamily(
                "ccpipe_connected", "whether all brokers are connected, 0 or 1", value=is_connected
            )

    def expect(self, part: object, seconds: float) -> None:
        """Expect progress of a part within this time; otherwise it counts as stuck."""
        self._due[type(part).__name__] = time.monotonic() + seconds

    def expect_nothing(self, part: object) -> None:
        """Expect no progress of a part: it waits for others, perhaps indefinitely."""
        self._due.pop(type(part).__name__, None)

    def await_broker(self, part: object, broker: str) -> None:
        """Count as not ready until a part has `reached` its broker for the first time.

        Later on a lost connection does not matter: a spool or the broker keeps the data meanwhile.
        """
        self._awaited[id(part)] = broker

    def reached(self, part: object) -> None:
        """Note that a part was connected to its broker, or no longer needs it."""
        self._awaited.pop(id(part), None)

    def why_not_ready(self) -> str:
        if awaited := list(self._awaited.values()):
            return f"not connected to {', '.join(awaited)} since the start"
        if not self.ready:
            return "not running, or the last write failed"
        if stuck := self.stuck():
            return f"no progress in {', '.join(stuck)}"
        return ""

    def stuck(self) -> list[str]:
        now = time.monotonic()
        return [part for part, due in list(self._due.items()) if due < now]

    def wrote(self, part: object, records: int, seconds: float) -> None:
        self.count(self.written, part, records)
        self.count(self.batches, part)
        self.count(self.write_seconds, part, seconds)
        self.last_write.set(time.time())
        self.ready = True

    def failed(self, part: object) -> None:
        self.count(self.retries, part)
        self.expect_nothing(part)
        self.ready = False


class RecipesTelemetry(Exporter):
    """The counters of several recipes in one process; the label ``recipe`` distinguishes them."""

    def __init__(self, recipes: Mapping[str, Telemetry]) -> None:
        super().__init__()
        self._recipes = recipes

    def collect(self) -> "Iterator[Metric]":
        merged: dict[str, Metric] = {}
        for recipe, telemetry in self._recipes.items():
            for metric in telemetry.collect():
                samples = [
                    sample._replace(labels={"recipe": recipe, **sample.labels})
                    for sample in metric.samples
                ]
                metric.samples = []
                merged.setdefault(metric.name, metric).samples += samples
        yield from merged.values()

    def why_not_ready(self) -> str:
        reasons = {recipe: each.why_not_ready() for recipe, each in self._recipes.items()}
        return "; ".join(f"{recipe}: {reason}" for recipe, reason in reasons.items() if reason)


class _FirstBytes(socket.SocketIO):
    """The start of what a client sends; then the end of the stream."""

    _left = MAX_REQUEST_SIZE

    def readinto(self, buffer: "WriteableBuffer") -> int | None:
        size = super().readinto(memoryview(buffer)[: self._left])
        self._left -= size or 0
        return size


class TelemetryServer:
    """The HTTP server, in separate threads, so that it answers while the pipe is busy."""

    def __init__(self, telemetry: Exporter, listen: str) -> None:
        """Bind and start; raises ConfigError if the address is not available."""
        from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

        limits = self.limits = ConnectionLimits(
            "telemetry", connections=MAX_REQUESTS, seconds=REQUEST_SECONDS
        )

        class Threaded(ThreadingMixIn, WSGIServer):
            daemon_threads = True  # a slow client delays neither other clients nor the exit
            request_queue_size = BACKLOG

            def get_request(self) -> tuple[socket.socket, object]:
                return limits.admit(*super().get_request())

            def service_actions(self) -> None:
                """Close connections that are open for too long; called every 0.1 s."""
                limits.expire()

            def handle_error(self, request: object, client_address: object) -> None:  # noqa: ARG002
                """Log that a client disconnected, which is not an error."""
                log.debug("telemetry: %s: %s", client_address, sys.exception())

        class Quiet(WSGIRequestHandler):
            def setup(self) -> None:
                """Read no more than a request can need."""
                super().setup()
                self.rfile.close()
                self.rfile = BufferedReader(_FirstBytes(self.connection, "r"), MAX_REQUEST_SIZE)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                """Log nothing: health probes arrive every few seconds."""

        try:
            address = urlsplit(f"//{listen}")
            if address.port is None:
                raise ValueError("the port is missing")
            self._server = make_server(
                address.hostname or "127.0.0.1",
                address.port,
                telemetry.answer,
                server_class=Threaded,
                handler_class=Quiet,
            )
        except (OSError, ValueError, OverflowError) as error:
            reason = system_reason(error)
            raise ConfigError(f"telemetry.listen: cannot listen on {listen!r}: {reason}") from None
        self.port = self._server.server_port
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
