"""Base of sinks to HTTP stores: address, credentials, TLS, gzip, and the meaning of responses."""

import asyncio
import gzip
import ssl
import time
import warnings
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from types import MappingProxyType
from typing import Any, ClassVar, Literal, NamedTuple, NoReturn, Self, TypeVar
from urllib.parse import urlsplit

from ccpipe.config import Duration, authorization, check_credentials, mask
from ccpipe.errors import (
    ConfigError,
    DeniedError,
    MissingExtra,
    RejectedError,
    TimedOutError,
    UnavailableError,
    system_reason,
)
from ccpipe.formats.lineprotocol import Lines, ValueType
from ccpipe.pipeline import TimedSink
from ccpipe.records import Records
from ccpipe.tls import check_key, tls_context

try:
    import aiohttp
except ImportError:
    raise MissingExtra("aiohttp", "http") from None

A_contra = TypeVar("A_contra", bound=Records, contravariant=True)

ABOUT_THE_BODY = frozenset({400, 413, 422})
ABOUT_US = frozenset({401, 403})

GZIP_LEVEL = 1
"""For line protocol: a third of the CPU time of level 6, with 15 % of the size instead of 11 %."""

MAX_RETRY_SECONDS = 300.0
"""Maximum pause that a store can ask for with ``Retry-After``."""

EXCERPT = 2000
"""Maximum number of bytes of a response quoted in an error."""


class Response(NamedTuple):
    """A store's response to a request."""

    status: int
    reason: str
    text: str
    body: bytes = b""
    retry_after: float = 0.0
    """Seconds to wait before the next attempt, from the header ``Retry-After``."""
    headers: Mapping[str, str] = MappingProxyType({})
    """By names in any case."""

    def __str__(self) -> str:
        return f"{self.status} {self.reason}: {self.text[:EXCERPT]}"


class HttpSink(TimedSink[A_contra]):
    """A store written to by POST requests, one at a time."""

    stored: ClassVar[frozenset[int]] = frozenset({204})
    """Statuses that mean that the store has the records.

    Only these: a captive portal or a wrong address may answer 200 with a page of its own.
    """
    path: str = ""
    """Where records are posted, below the address."""
    scheme: str = "Bearer"
    """The scheme before a token in the header ``Authorization``."""

    def __init__(
        self,
        *,
        url: str,
        timeout: Duration = Duration(10),
        compression: Literal["none", "gzip"] = "none",
        user: str = "",
        password_file: str = "",
        token_file: str = "",
        ca_file: str = "",
        cert_file: str = "",
        key_file: str = "",
    ) -> None:
        """Configure address and credentials.

        Parameters
        ----------
        url
            The store's address, ``http://`` or ``https://``.
        timeout
            Time limit for one write; it is raised while the store takes longer for small ones.
        compression
            Compression of requests; ``gzip``, to about a seventh, is worth the CPU time on slow
            networks.
        user, password_file
            User name and password file for HTTP Basic authentication.
        token_file
            File containing an authentication token.
        ca_file
            CA certificate of the server, if it is signed by a private CA.
        cert_file, key_file
            Client certificate and private key, if the server requires them.

        Raises
        ------
        ConfigError
            if these contradict each other.

        """
        address = urlsplit(url)
        if address.scheme not in ("http", "https") or not address.hostname:
            raise ConfigError(f"url: {mask(url, 'url')!r} is not an http:// or https:// address")
        if address.username or address.password:
            raise ConfigError("url: must not contain a password; use user and password_file")
        check_credentials(user, password_file, token_file)
        check_key(cert_file, key_file)
        self.url = url.rstrip("/")
        self._shown = mask(self.url, "url")
        """The address for messages: a parameter of it may be a secret."""
        self.time_limit = self._connect_seconds = float(timeout)
        self.compression = compression
        self.user, self.password_file, self.token_file = user, password_file, token_file
        self.ca_file, self.cert_file, self.key_file = ca_file, cert_file, key_file
        self._session: aiohttp.ClientSession | None = None

    async def ask(self) -> None:
        """Verify address and credentials by a request; RejectedError means a wrong address."""
        await self.post(b"")

    async def check(self) -> None:
        """Check that the store accepts records at this address, without sending any."""
        async with self._open() as self._session:
            await self._ask()

    async def __aenter__(self) -> Self:
        """Prepare; raises like ``check()``, except for a store that is currently down."""
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
        assert self._session is not None
        await self._session.close()

    async def _ask(self) -> None:
        try:
            await self.ask()
        except RejectedError as error:
            raise ConfigError(f"url: does not accept our records: {error}") from None

    async def post(
        self,
        body: bytes,
        *,
        path: str | None = None,
        params: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Send one request; raises for a response that is not a receipt: see ``judge``."""
        path = self.path if path is None else path
        if self.compression == "gzip" and body:
            body = await asyncio.to_thread(gzip.compress, body, GZIP_LEVEL, mtime=0)
            headers = {**(headers or {}), "Content-Encoding": "gzip"}
        answer = await self.request("POST", path, body, params, headers)
        if not self.is_receipt(answer):
            judge(answer, f"{self._shown}{path}: {answer}")

    def is_receipt(self, answer: Response) -> bool:
        """Return whether a response confirms that the store has the records."""
        return answer.status in self.stored

    async def request(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        params: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        max_bytes: int = EXCERPT,
    ) -> Response:
        """Send one request; of its response at most `max_bytes` are read."""
        assert self._session is not None, "a sink is entered before it is written to"
        # Connecting to a server does not get more time.
        timeout = aiohttp.ClientTimeout(self.time_limit, sock_connect=self._connect_seconds)
        try:
            async with self._session.request(
                method,
                self.url + path,
                params=params,
                data=_payload(body),
                headers=headers,
                timeout=timeout,
                allow_redirects=False,  # a redirected POST would become a GET
            ) as answer:
                content = await _read(answer.content, max_bytes)
                pause = retry_seconds(answer.headers.get("Retry-After", ""), time.time())
        except aiohttp.ConnectionTimeoutError:
            raise UnavailableError(f"{self._shown}{path}: the server does not respond") from None
        except TimeoutError:
            raise TimedOutError(f"{self._shown}{path}: no answer in time") from None
        except (aiohttp.ClientError, OSError) as error:
            if isinstance(error, aiohttp.ClientConnectorError):
                error = error.os_error
            reason = mask(system_reason(error)) or type(error).__name__
            raise UnavailableError(f"{self._shown}{path}: {reason}") from None
        text = content.decode(errors="replace").strip()
        return Response(answer.status, answer.reason or "", text, content, pause, answer.headers)

    def _open(self) -> aiohttp.ClientSession:
        credentials = authorization(self.user, self.password_file, self.token_file, self.scheme)
        headers = {"User-Agent": "ccpipe", **credentials}
        connector = aiohttp.TCPConnector(ssl=self._tls(), limit=1)
        return aiohttp.ClientSession(headers=headers, connector=connector)

    def _tls(self) -> ssl.SSLContext | bool:
        if not (self.ca_file or self.cert_file):
            return True
        return tls_context(self.ca_file, self.cert_file, self.key_file)


async def _read(content: aiohttp.StreamReader, max_bytes: int) -> bytes:
    body = b""
    while len(body) < max_bytes and (part := await content.read(max_bytes - len(body))):
        body += part
    return body


def _payload(body: bytes) -> Any:
    """Wrap a body for aiohttp, without its warning about large bodies.

    It is sent in one write to the socket; a stream would be split into pieces of 64 KiB.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        return aiohttp.BytesPayload(body)


def numbers(store: str, lines: Lines) -> Lines:
    """Return the lines of a numeric store; raises RejectedError naming the texts."""
    if ValueType.TEXT in lines.used_types:
        texts = [row for row, kind in enumerate(lines.types) if kind == ValueType.TEXT]
        raise RejectedError(f"{store} stores numbers, not text", texts)
    return lines


def retry_seconds(header: str, now: float) -> float:
    """Return the seconds that a header ``Retry-After`` asks for, as a number or a date; else 0."""
    try:
        if header.isascii() and header.isdigit():
            seconds = float(header)
        else:
            seconds = parsedate_to_datetime(header).timestamp() - now
    except (ValueError, OverflowError):
        return 0.0
    return min(max(seconds, 0.0), MAX_RETRY_SECONDS)


def judge(answer: Response, reason: str) -> NoReturn:
    """Raise the error `reason` for a response that does not confirm the write.

    Only a status about the body rejects the records. Any other, such as the 404 of a misconfigured
    proxy, may be temporary, and must not turn records into dead letters.
    """
    if answer.status in ABOUT_THE_BODY:
        raise RejectedError(reason)
    if answer.status in ABOUT_US:
        raise DeniedError(reason)
    raise UnavailableError(reason, retry_after=answer.retry_after)
