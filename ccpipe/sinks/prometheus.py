"""Prometheus, or Mimir, Thanos, Cortex and others, by remote write; or a page that it scrapes.

For remote write run it with ``--web.enable-remote-write-receiver``, and with an
``out_of_order_time_window`` in its configuration: see ``docs/stores/prometheus.md``. Scraped
samples are stored with the time of the scrape: of several samples between two scrapes only the
last one is stored, and late samples appear as current.
"""

import asyncio
import time
from array import array
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self

from ccpipe.config import Duration, listen_address
from ccpipe.errors import ConfigError, UnavailableError
from ccpipe.formats.lineprotocol import Lines, SeriesTable
from ccpipe.formats.prometheus import HEADERS, STALE, TEXT_TYPE, RemoteWrite, text_labels
from ccpipe.formats.remote_write_2 import HEADERS_2, SAMPLES_WRITTEN, RemoteWrite2
from ccpipe.listening import ConnectionLimits, listen
from ccpipe.pipeline import Limits, Sink
from ccpipe.sinks.http import HttpSink, Response, numbers


class PrometheusSink(HttpSink[Lines]):
    """Sends numbers by remote write."""

    takes = Lines

    stored = frozenset({200, 204})

    limits = Limits(max_records=10_000, max_bytes=4 * 2**20, max_wait=1.0)

    def __init__(
        self,
        *,
        url: str = "http://127.0.0.1:9090",
        url_path: str = "/api/v1/write",
        remote_write: Literal["1.0", "2.0"] = "1.0",
        tenant: str = "",
        stale_after: Duration = Duration(0),
        **http: Any,
    ) -> None:
        """Configure the address.

        Parameters
        ----------
        url
            The store's address.
        url_path
            Path of its remote write endpoint: ``/api/v1/push`` for Mimir, ``/api/v1/receive`` for
            Thanos.
        remote_write
            Version of the protocol. With ``2.0``, for Prometheus 3, the store's response has the
            number of samples that it stored, which is checked.
        tenant
            The tenant, sent to Mimir and Cortex in the header ``X-Scope-OrgID``.
        stale_after
            Mark a series as stale after this time without a sample, so that queries do not show its
            last value for five more minutes; 0 disables this.

        """
        super().__init__(url=url, **http)
        self.path = url_path
        self.compression = "none"  # the body is always compressed with snappy
        self.encoder = RemoteWrite2() if remote_write == "2.0" else RemoteWrite()
        headers = HEADERS_2 if remote_write == "2.0" else HEADERS
        self.headers = headers | ({"X-Scope-OrgID": tenant} if tenant else {})
        self._written = ""
        self.live = LiveSeries(int(stale_after * 10**9)) if stale_after else None

    async def write(self, records: Lines) -> None:
        lines = numbers("Prometheus", records)
        lines.fill_missing_times(time.time_ns())
        if len(lines):
            await self._send(lines)
            if self.live is not None and (ended := self.live.ended(lines, time.time_ns())):
                await self._send(ended)

    async def ask(self) -> None:
        await self.post(self.encoder.encode(Lines()), headers=self.headers)
        if isinstance(self.encoder, RemoteWrite2) and not self._written:
            raise ConfigError(f'remote_write: "2.0": {self._shown} does not report what it stored')

    async def _send(self, lines: Lines) -> None:
        await self.post(self.encoder.encode(lines), headers=self.headers)
        if isinstance(self.encoder, RemoteWrite2) and self._written != str(self.encoder.samples):
            raise UnavailableError(
                f"{self._shown}: stored {self._written or 'none'} of {self.encoder.samples} samples"
            )

    def is_receipt(self, answer: Response) -> bool:
        """Return whether the status is 204 (Prometheus) or 200 (Mimir), without an HTML page."""
        self._written = answer.headers.get(SAMPLES_WRITTEN, "")
        return super().is_receipt(answer) and not answer.text


class LiveSeries:
    """Time of the latest sample of each series; series that end get a stale marker."""

    def __init__(self, age: int) -> None:
        """End series after `age` nanoseconds."""
        self.age = age
        self.table = SeriesTable()
        self.latest: dict[tuple[int, int], int] = {}
        self.checked = 0

    def ended(self, lines: Lines, now: int) -> Lines | None:
        """Record the samples of `lines`; return stale markers of series that have ended, if any."""
        self._move_to(lines.table)
        self.latest.update(
            zip(zip(lines.series, lines.fields, strict=True), lines.times, strict=True)
        )
        if now - self.checked < self.age // 4:
            return None
        self.checked = now
        old = [key for key, when in self.latest.items() if when < now - self.age]
        if not old:
            return None
        times = [self.latest.pop(key) + self.age for key in old]
        markers = Lines(b"", self.table)
        markers.extend(
            {
                "series": array("i", [series for series, _ in old]),
                "fields": array("i", [field for _, field in old]),
                "numbers": array("d", [STALE]) * len(old),
                "times": array("q", times),
            }
        )
        return markers

    def _move_to(self, table: SeriesTable) -> None:
        """Renumber series for `table`; a decoder starts a new table when one is full."""
        if table is not self.table:
            series, fields = self.table.series, self.table.fields
            if len(self.latest) > MAX_LIVE:
                self.latest.clear()
            self.latest = {
                (table.code_of(series[code]), table.field_code_of(fields[field])): when
                for (code, field), when in self.latest.items()
            }
            self.table = table


MAX_LIVE = 200_000
"""Maximum number of series carried over to a new table; others end without a marker."""


if TYPE_CHECKING:
    from aiohttp import web


class Latest(NamedTuple):
    """The latest sample of a series."""

    name: str
    number: float
    time: int


class PrometheusScrapeSink(Sink[Lines]):
    """Keeps the latest number of each series and exposes them on ``/metrics``."""

    takes = Lines

    limits = Limits(max_records=50_000, max_bytes=4 * 2**20, max_wait=1.0)

    def __init__(
        self,
        *,
        listen: str = "127.0.0.1:9401",
        stale_after: Duration = Duration(300),
        max_series: int = 100_000,
        timestamps: bool = False,
    ) -> None:
        """Configure the address.

        Parameters
        ----------
        listen
            Address and port, as in ``127.0.0.1:9401``; an address other than loopback exposes the
            metrics to anyone who can reach it.
        stale_after
            A series without a new sample for this long is no longer shown.
        max_series
            Maximum number of series; beyond it, the least recently written are removed.
        timestamps
            Expose the time of each sample; Prometheus then cannot detect stale series.

        Raises
        ------
        ConfigError
            if the address is invalid or `max_series` is less than 1.

        """
        self.host, self.port = listen_address("listen", listen)
        if max_series < 1:
            raise ConfigError("max_series: must be at least 1")
        self.stale_after = int(stale_after * 10**9)
        self.max_series, self.timestamps = max_series, timestamps
        self.latest: dict[str, Latest] = {}
        """By name and labels, least recently written first."""
        self.names: dict[tuple[int, int], tuple[str, str]] = {}
        self._table: SeriesTable | None = None

    async def check(self) -> None:
        """Check that the host is one of ours; a running bridge may have the port."""
        try:
            loop = asyncio.get_running_loop()
            (await loop.create_server(asyncio.Protocol, self.host, 0)).close()
        except OSError as error:
            raise ConfigError(f"listen: {self.host}: {error.strerror}") from None

    async def __aenter__(self) -> Self:
        from aiohttp import web

        app = web.Application()
        app.router.add_get("/metrics", self._answer)
        self.connections = ConnectionLimits(f"{self.host}:{self.port}")
        try:
            self._runner = await listen(app, self.host, self.port, self.connections)
        except OSError as error:
            raise ConfigError(f"listen: {self.host}:{self.port}: {error.strerror}") from None
        return self

    async def __aexit__(self, *exit_: object) -> None:
        await self._runner.cleanup()

    async def write(self, records: Lines) -> None:
        lines = numbers("Prometheus", records)
        lines.fill_missing_times(time.time_ns())
        if lines.table is not self._table or len(self.names) > self.max_series:
            self._table = lines.table
            self.names.clear()
        names, latest = self.names, self.latest
        for series, field, number, when in zip(
            lines.series, lines.fields, lines.numbers, lines.times, strict=True
        ):
            known = names.get((series, field))
            if known is None:
                labels = text_labels(lines.table.series[series], lines.table.fields[field])
                known = names[series, field] = labels[0], "".join(labels)
            name, key = known
            before = latest.pop(key, None)
            if before is None or before.time <= when:
                before = Latest(name, number, when)
            latest[key] = before
            if len(latest) > self.max_series:
                del latest[next(iter(latest))]

    async def _answer(self, _: "web.Request") -> "web.Response":
        from aiohttp import web

        text = "".join(self.text(time.time_ns()))
        answer = web.Response(body=text.encode(), headers={"Content-Type": TEXT_TYPE})
        answer.enable_compression()
        return answer

    def text(self, now: int) -> Iterator[str]:
        """Yield the exposition text, metric by metric; drop series that have ended."""
        oldest = now - self.stale_after
        for key in [key for key, sample in self.latest.items() if sample.time < oldest]:
            del self.latest[key]
        by_name: dict[str, list[str]] = {}
        for key, (name, number, when) in self.latest.items():
            stamp = f" {when // 10**6}" if self.timestamps else ""
            by_name.setdefault(name, []).append(f"{key} {number!r}{stamp}\n")
        for name, samples in by_name.items():
            yield f"# TYPE {name} untyped\n"
            yield from samples
