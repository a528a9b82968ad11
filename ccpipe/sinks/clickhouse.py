"""ClickHouse, by RowBinary over HTTP, into a table that the sink creates.

An insert that is repeated with the same messages is recognized by its token and stored once.
Messages that are delivered again in other batches, after a bridge was killed, are rows with the
same key, of which a merge keeps one: see ``docs/stores/clickhouse.md``.
"""

import re
import time
from collections.abc import Mapping
from hashlib import sha256
from http import HTTPStatus
from typing import Any

from ccpipe.errors import ConfigError, RejectedError, UnavailableError
from ccpipe.formats.clickhouse import COLUMNS, TABLE, RowBinary
from ccpipe.formats.lineprotocol import Lines
from ccpipe.pipeline import Limits
from ccpipe.records import Provenance
from ccpipe.sinks.http import HttpSink, Response

TOO_MANY_PARTITIONS = "Too many partitions"
"""Text of the only error that is about the records: an insert has rows of more than 100 days."""

MAX_TOKEN = 500
"""Maximum length of a token that names its messages."""


class ClickHouseSink(HttpSink[Lines]):
    """Writes metrics, events and logs as rows of one table."""

    takes = Lines

    stored = frozenset({HTTPStatus.OK})

    limits = Limits(max_records=50_000, max_bytes=8 * 2**20, max_wait=1.0)

    def __init__(
        self,
        *,
        url: str = "http://127.0.0.1:8123",
        database: str = "default",
        table: str = "metrics",
        create_table: bool = True,
        deduplicate: bool = True,
        **http: Any,
    ) -> None:
        """Configure address and table.

        Parameters
        ----------
        url
            The address of the server's HTTP interface.
        database
            An existing database.
        table
            The table.
        create_table
            Create the table if it is missing; it may also exist with other settings.
        deduplicate
            Send a token with each insert, by which the server recognizes a repeated one; it needs
            ClickHouse 22.2 or later.

        Raises
        ------
        ConfigError
            if a name has other characters than letters, digits and ``_``.

        """
        for option, name in {"database": database, "table": table}.items():
            if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
                raise ConfigError(f"{option}: {name!r} is not a name of letters, digits and _")
        super().__init__(url=url, **http)
        self.path = "/"
        self.table = f"{database}.{table}"
        self.create_table = create_table
        self._is_created = False
        self.deduplicate = deduplicate
        self.insert = f"INSERT INTO {self.table} ({', '.join(COLUMNS)}) FORMAT RowBinary"
        self.rows = RowBinary()

    async def write(self, records: Lines) -> None:
        lines = records
        lines.fill_missing_times(time.time_ns())
        if len(lines):
            if self.create_table and not self._is_created:
                await self.run(TABLE.format(table=self.table).encode())
                self._is_created = True
            await self.run(self.rows.encode(lines), self._settings(lines.provenance))

    async def ask(self) -> None:
        await self.post(b"SELECT 1 FORMAT Null")

    def is_receipt(self, answer: Response) -> bool:
        """Return whether the status is 200, without the text of an error or a page."""
        return super().is_receipt(answer) and not answer.text

    async def run(self, body: bytes, params: Mapping[str, str] | None = None) -> None:
        """Run a statement, or an insert with its rows; raises as ``Sink.write`` does.

        Whatever else the server reports concerns its table or its state, and must not turn records
        into dead letters.
        """
        try:
            await self.post(body, params=params)
        except (RejectedError, UnavailableError) as error:
            self._is_created = False  # the table may be gone
            if TOO_MANY_PARTITIONS in str(error):
                raise RejectedError(str(error)) from None
            if isinstance(error, RejectedError):
                raise UnavailableError(str(error)) from None
            raise

    def _settings(self, provenance: Provenance | None) -> dict[str, str]:
        if not self.deduplicate:
            return {"query": self.insert}
        # By default the server may respond before it has stored an insert, or ignore the token.
        settings = {"query": self.insert, "async_insert": "0"}
        token = token_of(provenance)
        return settings | ({"insert_deduplication_token": token} if token else {})


def token_of(provenance: Provenance | None) -> str:
    """Return the token of an insert: its messages; empty if one of them is unknown.

    The time is that of the first message: numbers start over with a new stream. Of many runs of
    messages it is the digest, because it is sent in the address of the request.
    """
    if provenance is None or not all(provenance.consumers):
        return ""
    token = ",".join(
        f"{run.consumer}:{run.first}-{run.last}@{run.since}" for run in provenance.runs()
    )
    return token if len(token) <= MAX_TOKEN else sha256(token.encode()).hexdigest()
