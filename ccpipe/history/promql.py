"""Queries in PromQL over HTTP."""

import asyncio
import base64
import json
from collections.abc import Mapping, Sequence
from typing import NamedTuple
from urllib.parse import urlsplit

import msgspec
import numpy as np

from ccpipe.config import mask, read_secret
from ccpipe.errors import (
    ConfigError,
    DeniedError,
    MissingExtra,
    TimedOutError,
    UnavailableError,
    UsageError,
    system_reason,
)
from ccpipe.history.interfaces import Column

try:
    import aiohttp
except ImportError:
    raise MissingExtra("aiohttp", "dashboard") from None

MAX_BYTES = 64 * 2**20
"""Maximum size of an answer."""
CONNECTIONS = 4
_REFUSED = frozenset({401, 403})
_ABOUT_QUERY = frozenset({400, 422})
_OK = 200


class PromqlSeries(NamedTuple):
    """A series of an answer; times are milliseconds."""

    labels: Mapping[str, str]
    times: Column
    values: Column


class _Found(msgspec.Struct, frozen=True):
    metric: dict[str, str]
    values: list[tuple[float, str]] = []
    value: tuple[float, str] | None = None


class _Data(msgspec.Struct, frozen=True):
    result: list[_Found] = []


class _Answer(msgspec.Struct, frozen=True):
    data: _Data = _Data()
    error: str = ""


_decoder = msgspec.json.Decoder(_Answer)


class PromqlClient:
    """A store's HTTP API. Its methods raise as ``History`` does, and DeniedError."""

    def __init__(self, url: str, user: str, password_file: str) -> None:
        """Check the address; raises ConfigError if it is invalid or has a password in it."""
        address = urlsplit(url)
        if address.scheme not in ("http", "https") or not address.hostname:
            raise ConfigError(f"history: {mask(url, 'url')!r} is not an http:// address")
        if address.username or address.password:
            raise ConfigError("history: must not contain a password; use user and password_file")
        if bool(user) != bool(password_file):
            raise ConfigError("history: user and password_file go together")
        self.url = url.rstrip("/")
        self.shown = mask(self.url, "url")
        self._user, self._password_file = user, password_file
        self._session: aiohttp.ClientSession | None = None
        self._window_is_closed: bool | None = None

    async def at(self, query: str, milliseconds: int) -> list[PromqlSeries]:
        """Return the answer to a query at one time: a value, or the samples of a range selector."""
        return await self._ask("query", {"query": query, "time": f"{milliseconds / 1000:.3f}"})

    async def over(self, query: str, start: int, stop: int, step: int) -> list[PromqlSeries]:
        """Return the answers at times `step` apart, up to and with `stop`, all in milliseconds."""
        span = {"start": start, "end": stop, "step": step}
        times = {name: f"{number / 1000:.3f}" for name, number in span.items()}
        return await self._ask("query_range", {"query": query, **times})

    async def window(self, milliseconds: int) -> str:
        """Return the range, for a selector, of the samples of so many milliseconds.

        Evaluated at their last millisecond. Prometheus 2 includes both ends of a range, newer ones
        and VictoriaMetrics only the later.
        """
        if self._window_is_closed is None:
            [found] = await self.at("count_over_time(vector(1)[2s:1s])", 10**6)
            self._window_is_closed = found.values[0] > 2  # noqa: PLR2004
        return f"[{max(1, milliseconds - self._window_is_closed)}ms]"

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
        self._session = None

    async def _ask(self, path: str, parameters: Mapping[str, str]) -> list[PromqlSeries]:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                headers={"User-Agent": "ccpipe", **self._credentials()},
                connector=aiohttp.TCPConnector(limit=CONNECTIONS),
            )
        # VictoriaMetrics else rounds times, and hides what is newer than 30 s.
        form = {**parameters, "nocache": "1", "latency_offset": "1ms"}
        place = f"{self.url}/api/v1/{path}"
        try:
            async with self._session.post(place, data=form, allow_redirects=False) as answer:
                body = bytearray()
                async for part in answer.content.iter_any():
                    body += part
                    if len(body) > MAX_BYTES:
                        raise UsageError("the answer is too large; select a shorter time")
        except TimeoutError:
            raise TimedOutError(f"{self.shown}: no answer in time") from None
        except (aiohttp.ClientError, OSError) as error:
            cause = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
            reason = system_reason(cause) or type(error).__name__
            raise UnavailableError(f"{self.shown}: {reason}") from None
        return await asyncio.to_thread(self._read, answer.status, bytes(body))

    def _read(self, status: int, body: bytes) -> list[PromqlSeries]:
        if status in _REFUSED:
            raise DeniedError(f"{self.shown}: {status}: the store refuses our credentials")
        try:
            answer = _decoder.decode(body)
        except msgspec.MsgspecError:
            reason = body[:200].decode(errors="replace").strip()
            raise UnavailableError(f"{self.shown}: {status}: {reason}") from None
        if status in _ABOUT_QUERY:
            raise UsageError(f"{self.shown}: {answer.error[:300]}")
        if status != _OK:
            raise UnavailableError(f"{self.shown}: {status}: {answer.error[:300]}")
        return [_series(found) for found in answer.data.result]

    def _credentials(self) -> dict[str, str]:
        if not self._user:
            return {}
        password = read_secret("history.password_file", self._password_file)
        pair = base64.b64encode(f"{self._user}:{password}".encode()).decode()
        return {"Authorization": f"Basic {pair}"}


def _series(found: _Found) -> PromqlSeries:
    rows: Sequence[tuple[float, str]] = found.values or ([found.value] if found.value else [])
    times = np.rint(np.array([time for time, _ in rows], np.float64) * 1000)
    return PromqlSeries(found.metric, times, np.array([text for _, text in rows], np.float64))


def quoted(text: str) -> str:
    """Return a string literal of PromQL."""
    return json.dumps(text, ensure_ascii=False)
