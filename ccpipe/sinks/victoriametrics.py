"""VictoriaMetrics, or a vmagent or vminsert before it, by Influx line protocol over HTTP.

Run the store with ``-influxSkipSingleField``, so that ``cpu_load value=1.5`` becomes the series
``cpu_load`` as ClusterCockpit means it, not ``cpu_load_value``. Tags become labels.

What the store makes of lines (seen with 1.79; it answers 204 to all of these):

- values are doubles of about 15 digits: greater integers are rounded, booleans are 1 and 0;
- times are milliseconds: what is finer is cut off;
- a text, ``.5`` and ``1.`` become the number 0, and a line it cannot read is left out: hence
  texts are refused here, such numbers are written anew, and only checked lines are sent;
- rows older than ``-retentionPeriod`` or more than two days ahead are left out, with a warning in
  the store's own log;
- beyond 30 labels the others are dropped (``-maxLabelsPerTimeseries``).

It answers before its disk has the rows: a power cut of the store costs it the last seconds.
"""

import base64
import re
import ssl
from collections.abc import Sequence
from typing import Self
from urllib.parse import urlsplit

import msgspec

from ccpipe.config import Duration, read_secret
from ccpipe.errors import (
    ConfigError,
    DeniedError,
    MissingExtra,
    RejectedError,
    UnavailableError,
)
from ccpipe.formats.lineprotocol import Lines, Precision, ValueType, encode, to_lines
from ccpipe.formats.lineprotocol.messages import Messages
from ccpipe.message import Message
from ccpipe.pipeline import Limits, Sink

try:
    import aiohttp
except ImportError:
    raise MissingExtra("aiohttp", "http") from None


class VictoriaMetricsSink(Sink):
    """Sends numbers to a store that speaks VictoriaMetrics' ``/write``."""

    takes = Messages

    limits = Limits(lines=50_000, bytes=4 * 2**20, age=1.0)

    def __init__(
        self,
        *,
        url: str = "http://127.0.0.1:8428",
        timeout: Duration = Duration(10),
        gzip: bool = False,
        user: str = "",
        password_file: str = "",
        token_file: str = "",
        ca_file: str = "",
    ) -> None:
        """Configure address and credentials.

        Parameters
        ----------
        url
            The store's address; ``/write`` is added. Of a cluster it is vminsert's, as in
            ``http://vminsert:8480/insert/0/influx``.
        timeout
            How long one write may take.
        gzip
            Whether to compress: worth its cost on slow networks only.
        user, password_file
            Name and file with the password, where the store asks for them (HTTP Basic).
        token_file
            File with a token, where it asks for one (HTTP Bearer).
        ca_file
            Certificate authority that signed the server's certificate, where it is a private one.

        Raises
        ------
        ConfigError
            where these contradict each other.

        """
        address = urlsplit(url)
        if address.scheme not in ("http", "https") or not address.hostname:
            raise ConfigError(f"url: {url!r} is not an http:// or https:// address")
        if address.username or address.password:
            raise ConfigError("url: must not contain a password; use user and password_file")
        if bool(user) != bool(password_file):
            raise ConfigError("user and password_file go together")
        if user and token_file:
            raise ConfigError("token_file: a user is configured too; use only one of them")
        self.url = url.rstrip("/") + "/write"
        self.timeout = aiohttp.ClientTimeout(total=float(timeout))
        self.gzip = gzip
        self.user, self.password_file, self.token_file = user, password_file, token_file
        self.ca_file = ca_file
        self._session: aiohttp.ClientSession | None = None

    async def check(self) -> None:
        """Check that the store accepts line protocol at this address, without sending any.

        Raises
        ------
        UnavailableError
            where it does not answer.
        ConfigError
            where a file cannot be read or the address does not accept line protocol.
        DeniedError
            where the store refuses us.

        """
        async with self._open() as self._session:
            await self._ask()

    async def __aenter__(self) -> Self:
        """Prepare; raises as ``check()`` does, but not for a store that is only down."""
        self._session = self._open()
        try:
            await self._ask()
        except UnavailableError:
            pass
        except BaseException:
            await self._session.close()
            raise
        return self

    async def __aexit__(self, *exit_: object) -> None:
        """Close the connection."""
        assert self._session is not None
        await self._session.close()

    async def write(self, records: Sequence[Message]) -> None:
        """Send the records, as the original bytes where possible.

        Raises
        ------
        UnavailableError
            where the store does not answer, is overloaded or has no space.
        RejectedError
            for texts, naming them, and for what the store itself refuses.
        DeniedError
            where the store refuses us.
        EncodeError
            where a message cannot be written as a line.

        """
        lines = to_lines(records)
        if ValueType.TEXT in lines.types.tobytes():
            texts = [row for row, kind in enumerate(lines.types) if kind == ValueType.TEXT]
            raise RejectedError("VictoriaMetrics stores numbers, not text", texts)
        if len(lines):
            await self._post(*payload(lines))

    def _open(self) -> aiohttp.ClientSession:
        credentials, tls = self._credentials(), self._tls()
        connector = aiohttp.TCPConnector(ssl=tls, limit=1)
        return aiohttp.ClientSession(timeout=self.timeout, headers=credentials, connector=connector)

    async def _ask(self) -> None:
        try:
            await self._post(b"", "s")
        except RejectedError as error:
            raise ConfigError(f"url: {self.url} does not accept line protocol: {error}") from None

    async def _post(self, body: bytes, precision: Precision) -> None:
        assert self._session is not None, "a sink is entered before it is written to"
        try:
            async with self._session.post(
                self.url,
                params={"precision": precision},
                data=body,
                compress="gzip" if self.gzip and body else None,
                allow_redirects=False,  # a POST that is redirected would become a GET
            ) as answer:
                reason = (await answer.content.read(2000)).decode(errors="replace").strip()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise UnavailableError(f"{self.url}: {str(error) or type(error).__name__}") from None
        judge(answer.status, f"{self.url}: {answer.status} {answer.reason}: {reason}")

    def _credentials(self) -> dict[str, str]:
        if self.token_file:
            return {"Authorization": f"Bearer {read_secret('token_file', self.token_file)}"}
        if self.user:
            password = read_secret("password_file", self.password_file)
            pair = base64.b64encode(f"{self.user}:{password}".encode()).decode()
            return {"Authorization": f"Basic {pair}"}
        return {}

    def _tls(self) -> ssl.SSLContext | bool:
        if not self.ca_file:
            return True
        try:
            return ssl.create_default_context(cafile=self.ca_file)
        except OSError as error:
            raise ConfigError(f"ca_file: {self.ca_file}: {error.strerror or error}") from None


def payload(lines: Lines) -> tuple[bytes, Precision]:
    """Return the bytes to send and the unit of their timestamps.

    They are the bytes that came, where those can stand. The store names a series after its field
    only where a line has several, so that one field would get two names. Hence a line with
    another field than ``value`` is written anew: one line for each field, its series called
    ``<name>_<field>`` always.
    """
    code = lines.table.field_codes.get(b"value")
    if code is None or lines.fields.count(code) < len(lines):
        return encode(map(named_after_field, lines), precision="ns"), "ns"
    verbatim = lines.passthrough()
    if verbatim is None or lines.precision is None or _MISREAD.search(verbatim):
        return encode(lines, precision="ns"), "ns"
    return verbatim, lines.precision


_MISREAD = re.compile(rb" value=-?(?:\.|[0-9]++\.[^0-9])")
"""Numbers such as ``.5`` and ``1.``, which the store silently reads as 0."""


def named_after_field(message: Message) -> Message:
    """Put the field into the name, where it is not ``value``."""
    if message.field == "value":
        return message
    return msgspec.structs.replace(message, name=f"{message.name}_{message.field}", field="value")


_ACCEPTED = range(200, 300)
_ABOUT_THE_BODY = {400, 413, 422}  # bad request, too large, not to be processed
_ABOUT_US = {401, 403}  # unauthorized, forbidden


def judge(status: int, reason: str) -> None:
    """Translate an HTTP status.

    Only a status that speaks of the body condemns it. Any other, a 404 of a proxy that has just
    lost its way among them, may pass, and records must not become dead letters for it.

    Raises
    ------
    RejectedError, DeniedError, UnavailableError
        unless it means that all went well.

    """
    if status in _ABOUT_THE_BODY:
        raise RejectedError(reason)
    if status in _ABOUT_US:
        raise DeniedError(reason)
    if status not in _ACCEPTED:
        raise UnavailableError(reason)
