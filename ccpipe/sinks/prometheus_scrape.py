"""The latest values, for a Prometheus that scrapes: ``GET /metrics``.

Prometheus stores a sample with the time of its scrape: of several samples between two scrapes it
sees only the last one, and late samples appear as current. Where every sample counts, use
``prometheus``.
"""

import asyncio
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple, Self

from ccpipe.config import Duration, listen_address
from ccpipe.errors import ConfigError
from ccpipe.formats.lineprotocol import Lines, SeriesTable
from ccpipe.formats.prometheus import TEXT_TYPE, text_labels
from ccpipe.listening import ConnectionLimits, listen
from ccpipe.pipeline import Limits, Sink
from ccpipe.sinks.http import numbers

if TYPE_CHECKING:
    from aiohttp import web


class Latest(NamedTuple):
    """The latest sample of a series."""

    name: str
    number: float
    time: int


class PrometheusScrapeSink(Sink[Lines]):
    """Holds the latest number of each series and exposes them on ``/metrics``."""

    takes = Lines

    limits = Limits(lines=50_000, bytes=4 * 2**20, age=1.0)

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
            if the address is none, or `max_series` is less than 1.

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
