"""Prometheus, or Mimir, Thanos, Cortex and others, by remote write 1.0.

Run Prometheus with ``--web.enable-remote-write-receiver``, and with an
``out_of_order_time_window`` in its configuration: see ``docs/stores/prometheus.md``.
"""

import time
from array import array
from typing import Any

from ccpipe.config import Duration
from ccpipe.formats.lineprotocol import Lines, SeriesTable
from ccpipe.formats.prometheus import HEADERS, STALE, RemoteWrite
from ccpipe.pipeline import Limits
from ccpipe.sinks.http import HttpSink, Response, numbers


class PrometheusSink(HttpSink[Lines]):
    """Sends numbers by remote write."""

    takes = Lines

    stored = frozenset({200, 204})

    limits = Limits(lines=10_000, bytes=4 * 2**20, age=1.0)

    def __init__(
        self,
        *,
        url: str = "http://127.0.0.1:9090",
        path: str = "/api/v1/write",
        tenant: str = "",
        stale_after: Duration = Duration(0),
        **http: Any,
    ) -> None:
        """Configure the address.

        Parameters
        ----------
        url
            The store's address.
        path
            Path of its remote write endpoint: ``/api/v1/push`` for Mimir, ``/api/v1/receive`` for
            Thanos.
        tenant
            The tenant, sent to Mimir and Cortex in the header ``X-Scope-OrgID``.
        stale_after
            Mark a series as stale after this time without a sample, so that queries do not show its
            last value for five more minutes; 0 disables this.

        """
        super().__init__(url=url, **http)
        self.path = path
        self.headers = HEADERS | ({"X-Scope-OrgID": tenant} if tenant else {})
        self.gzip = False  # the body is always compressed with snappy
        self.encoder = RemoteWrite()
        self.live = LiveSeries(int(stale_after * 10**9)) if stale_after else None

    async def write(self, records: Lines) -> None:
        lines = numbers("Prometheus", records)
        lines.fill_missing_times(time.time_ns())
        if len(lines):
            await self.post(self.encoder.encode(lines), headers=self.headers)
            if self.live is not None and (ended := self.live.ended(lines, time.time_ns())):
                await self.post(self.encoder.encode(ended), headers=self.headers)

    async def ask(self) -> None:
        await self.post(self.encoder.encode(Lines()), headers=self.headers)

    def is_receipt(self, answer: Response) -> bool:
        """Return whether the status is 204 (Prometheus) or 200 (Mimir), without an HTML page."""
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
