"""VictoriaMetrics, or a vmagent or vminsert before it, by Influx line protocol over HTTP.

It answers 204 also to what it drops or misreads (seen with 1.79): a text, ``.5`` and ``1.`` become
the number 0, and a line it cannot read is left out. Hence texts are refused here, such numbers are
written anew, and only checked lines are sent: see ``docs/stores/victoriametrics.md``.
"""

import re
from http import HTTPStatus
from typing import Any

import msgspec

from ccpipe.config import Interval
from ccpipe.errors import ConfigError, DeniedError, UnavailableError
from ccpipe.formats.lineprotocol import Lines, Precision, encode
from ccpipe.message import Message
from ccpipe.pipeline import Limits, UnsyncedSink
from ccpipe.sinks.http import ABOUT_US, HttpSink, numbers

FLUSHES, PENDING_SECONDS = 2, 3.0
"""When the disk has a row at the latest, in flush intervals and more seconds.

A row waits up to two seconds for others before it counts as data in memory; that is written once it
is older than the interval, which the store finds out once in an interval.
"""
METRICS_BYTES = 4 * 2**20
"""Maximum size of the store's page of metrics; a usual one has 50 kB."""

_UPTIME = re.compile(r"^vm_app_uptime_seconds (\S+)$", re.MULTILINE)
_STORES = re.compile(r"^vm_rows\{", re.MULTILINE)  # neither vmagent nor vminsert


class VictoriaMetricsSink(HttpSink[Lines], UnsyncedSink[Lines]):
    """Sends numbers to a store that speaks VictoriaMetrics' ``/write``."""

    takes = Lines

    path = "/write"

    limits = Limits(
        max_records=50_000, max_bytes=4 * 2**20, max_wait=1.0, max_memory=16 * 2**20
    )  # four writes: more would wait here instead of in the stream

    def __init__(
        self,
        *,
        url: str = "http://127.0.0.1:8428",
        wait_for_flush: bool = False,
        flush_interval: Interval = Interval(5),  # noqa: B008 - immutable
        **http: Any,
    ) -> None:
        """Configure the address.

        Parameters
        ----------
        url
            The store's address; ``/write`` is appended. For a cluster, vminsert's, such as
            ``http://vminsert:8480/insert/0/influx``.
        wait_for_flush
            Acknowledge rows only when the store has them on its disk, and write them again if it
            was restarted before. For a single-node store only.
        flush_interval
            The store's ``-inmemoryDataFlushInterval``, after which its disk has the rows.

        """
        super().__init__(url=url, **http)
        wait = FLUSHES * float(flush_interval) + PENDING_SECONDS
        self.safe_after = wait if wait_for_flush else 0.0
        if wait_for_flush:  # what waits bounds the rows of each second
            self.limits = msgspec.structs.replace(self.limits, max_memory=Limits().max_memory)

    async def write(self, records: Lines) -> None:
        """Send the records, as the original bytes where possible."""
        lines = numbers("VictoriaMetrics", records)
        if len(lines):
            body, precision = payload(lines)
            await self.post(body, params={"precision": precision})

    async def ask(self) -> None:
        await self.post(b"", params={"precision": "s"})
        if self.safe_after:
            await self.uptime()

    async def uptime(self) -> float:
        """Return for how many seconds the store has been running."""
        answer = await self.request("GET", "/metrics", max_bytes=METRICS_BYTES)
        place = f"{self._shown}/metrics"
        if answer.status in ABOUT_US:
            raise DeniedError(
                f"{place}: {answer.status} {answer.reason} (needed by wait_for_flush)"
            )
        if answer.status != HTTPStatus.OK:
            raise UnavailableError(f"{place}: {answer.status} {answer.reason}")
        found = _UPTIME.search(answer.text)
        if found is None or not _STORES.search(answer.text):
            raise ConfigError(
                f"wait_for_flush: {place} does not belong to a single-node VictoriaMetrics"
            )
        return float(found[1])


def payload(lines: Lines) -> tuple[bytes, Precision]:
    """Return the body to send and the unit of its timestamps.

    It is the received bytes where possible. The store names a series after its field only if a
    line has several fields, so that one field could get two names. Hence a line with a field other
    than ``value`` is encoded anew: one line per field, with its series always called
    ``<name>_<field>``.
    """
    if lines.only_field is None or lines.only_field != lines.table.field_codes.get(b"value"):
        return encode(map(named_after_field, lines), precision="ns"), "ns"
    # The store silently reads numbers such as `.5` and `1.` as 0.
    verbatim = None if lines.bare_points else lines.passthrough()
    if verbatim is None or lines.precision is None:
        return encode(lines, precision="ns"), "ns"
    return verbatim, lines.precision


def named_after_field(message: Message) -> Message:
    """Append the field to the name, unless it is ``value``."""
    if message.field == "value":
        return message
    return msgspec.structs.replace(message, name=f"{message.name}_{message.field}", field="value")
