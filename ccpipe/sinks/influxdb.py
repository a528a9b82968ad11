"""InfluxDB 1, 2 and 3, by line protocol over HTTP.

With a `bucket` it uses ``/api/v2/write``, for InfluxDB 2, 3 and Cloud, otherwise ``/write`` with a
`database`, for InfluxDB 1; ``docs/stores/questdb.md`` has what QuestDB needs. Numbers are passed on
as received. Texts are encoded anew, because ClusterCockpit's strings have escapes that InfluxDB
lacks (``\n``).
"""

from array import array
from collections.abc import Iterator
from typing import Any, Literal

from ccpipe.errors import ConfigError, RejectedError
from ccpipe.formats.lineprotocol import Lines, Precision, ValueType, encode
from ccpipe.formats.lineprotocol.precision import NANOSECONDS, NO_TIME
from ccpipe.formats.lineprotocol.series import escape
from ccpipe.pipeline import Limits
from ccpipe.sinks.http import HttpSink

_AS_FLOAT = bytes.maketrans(
    bytes([ValueType.INT, ValueType.UINT]), bytes([ValueType.FLOAT, ValueType.FLOAT])
)

_NOTHING_TO_WRITE = ("writing requires points", "incoming write was empty")
"""Error texts of InfluxDB 2 and 3 for a valid request without lines."""


class InfluxdbSink(HttpSink[Lines]):
    """Writes everything that line protocol can express; a duplicate point is stored once."""

    takes = Lines

    limits = Limits(max_records=10_000, max_bytes=4 * 2**20, max_wait=1.0)

    def __init__(
        self,
        *,
        url: str = "http://127.0.0.1:8086",
        database: str = "",
        retention_policy: str = "",
        bucket: str = "",
        org: str = "",
        precision: Literal["auto", "s", "ms", "us", "ns"] = "auto",
        as_floats: bool = False,
        **http: Any,
    ) -> None:
        """Configure the address.

        Parameters
        ----------
        url
            The store's address; ``/write`` or ``/api/v2/write`` is appended.
        database
            The database of InfluxDB 1.
        retention_policy
            The retention policy of InfluxDB 1; empty for the database's default.
        bucket
            The bucket of InfluxDB 2, or the database of InfluxDB 3.
        org
            The organisation of InfluxDB 2.
        precision
            Unit of stored timestamps; ``auto`` keeps each payload's unit.
        as_floats
            Write integers as floats: a field has one type, and values of another type would be
            rejected.

        Raises
        ------
        ConfigError
            if there is neither database nor bucket, or both.

        """
        if bool(database) == bool(bucket):
            raise ConfigError("database, bucket: set one: a database of InfluxDB 1, or a bucket")
        if org and not bucket:
            raise ConfigError("org: goes with bucket")
        if retention_policy and not database:
            raise ConfigError("retention_policy: goes with database")
        super().__init__(url=url, **http)
        self.is_v2 = bool(bucket)
        self.path = "/api/v2/write" if bucket else "/write"
        self.scheme = "Token" if bucket else "Bearer"
        names = {"db": database, "rp": retention_policy, "bucket": bucket, "org": org}
        self.params = {key: value for key, value in names.items() if value}
        self.precision: Precision | None = None if precision == "auto" else precision
        self.as_floats = as_floats

    async def write(self, records: Lines) -> None:
        """Write records; if the store rejects some, it stores the others."""
        lines = records
        if len(lines):
            body, precision = payload(lines, self.precision, as_floats=self.as_floats)
            await self._post(body, precision)

    async def ask(self) -> None:
        try:
            await self._post(b"", "s")
        except RejectedError as error:
            if not any(phrase in str(error) for phrase in _NOTHING_TO_WRITE):
                raise

    async def _post(self, body: bytes, precision: Precision) -> None:
        unit = precision if self.is_v2 else _UNITS_OF_1.get(precision, precision)
        await self.post(body, params={**self.params, "precision": unit})


_UNITS_OF_1: dict[str, str] = {"us": "u", "ns": "n"}


def payload(
    lines: Lines, wanted: Precision | None = None, *, as_floats: bool = False
) -> tuple[bytes, Precision]:
    types = lines.types.tobytes()
    if as_floats and (ValueType.INT in types or ValueType.UINT in types):
        lines = lines[:]
        lines.types = array("B", types.translate(_AS_FLOAT))
        lines.verbatim = False
    precision = wanted or lines.precision or "ns"
    if ValueType.TEXT in types:
        numbers = lines.take([kind != ValueType.TEXT for kind in types])
        texts = b"".join(_texts(lines, precision))
        return texts + encode(numbers, precision=precision), precision
    passed = lines.passthrough() if lines.precision == precision else None
    return encode(lines, precision=precision) if passed is None else passed, precision


def _texts(lines: Lines, precision: Precision) -> Iterator[bytes]:
    """Yield the texts as lines whose strings have InfluxDB's own escapes."""
    for row, kind in enumerate(lines.types):
        if kind == ValueType.TEXT:
            series = lines.table.series[lines.series[row]]
            field = escape(lines.table.fields[lines.fields[row]])
            text = lines.texts[lines.exact[row]].replace("\\", "\\\\").replace('"', '\\"')
            time = lines.times[row]
            stamp = b"" if time == NO_TIME else b" %d" % (time // NANOSECONDS[precision])
            yield b'%b %b="%b"%b\n' % (series.key, field, text.encode(), stamp)
