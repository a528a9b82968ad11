"""cc-metric-store by ``POST /api/write``, restricted to lines that it stores correctly.

These have timestamps in seconds, one numeric field ``value``, and tags ``cluster`` and
``hostname``. At any other line the store drops the rest of the request; it replaces timestamps in
other units by the time of arrival, and stores a line without cluster under the preceding line's.
"""

import time
from typing import Any

from ccpipe.errors import RejectedError
from ccpipe.formats.lineprotocol import Lines, ValueType, encode
from ccpipe.formats.lineprotocol.series import PerSeries, Tags
from ccpipe.pipeline import Limits
from ccpipe.sinks.http import HttpSink, Response

NUMBERS = frozenset({ValueType.FLOAT, ValueType.INT, ValueType.UINT})


class CcMetricStoreSink(HttpSink[Lines]):
    """Writes metrics; writing one twice has no effect."""

    takes = Lines

    stored = frozenset({200})

    path = "/api/write"

    limits = Limits(max_records=10_000, max_bytes=4 * 2**20, max_wait=1.0)

    def __init__(self, *, url: str = "http://127.0.0.1:8082", **http: Any) -> None:
        """Configure the address.

        Parameters
        ----------
        url
            The store's address; ``/api/write`` is appended. ``token_file`` contains a JWT signed
            with the private key that matches the store's public key.

        """
        super().__init__(url=url, **http)
        self._is_placed = PerSeries(_is_placed)

    async def write(self, records: Lines) -> None:
        lines = records.fill_missing_times(time.time_ns())
        self._require_fileable(lines)
        if len(lines):
            passed = lines.passthrough() if lines.precision == "s" else None
            await self.post(encode(lines, precision="s") if passed is None else passed)

    def is_receipt(self, answer: Response) -> bool:
        """Return whether the response is an empty 200; other servers send a page."""
        return super().is_receipt(answer) and not answer.text

    def _require_fileable(self, lines: Lines) -> None:
        """Raise RejectedError for rows that the store would store wrongly."""
        if not lines.used_types <= NUMBERS:
            bad = [row for row, kind in enumerate(lines.types) if kind not in NUMBERS]
            raise RejectedError("cc-metric-store takes numbers only", bad)
        value = lines.table.field_codes.get(b"value")
        if value is None or lines.only_field != value:
            bad = [row for row, field in enumerate(lines.fields) if field != value]
            if bad:
                raise RejectedError("cc-metric-store takes the field 'value' only", bad)
        placed = self._is_placed.of_rows(lines)
        if not all(placed):
            bad = [row for row, is_placed in enumerate(placed) if not is_placed]
            raise RejectedError("a tag cluster or hostname is missing", bad)


def _is_placed(_: str, tags: Tags) -> bool:
    return "cluster" in tags and ("hostname" in tags or "host" in tags)
