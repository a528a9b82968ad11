"""Scrapes Prometheus' exporters: node_exporter, dcgm-exporter and others.

All targets are scraped in each interval, spread over a part of it. The samples of a target make a
batch, with the time at which the interval began unless `timestamps` is set. Each also has the
metrics of Prometheus about itself, with ``stype=target``: ``up``, ``scrape_duration_seconds``,
``scrape_samples_scraped``.

A target that is slow, down or too large has ``up`` 0 and no samples; others are unaffected.
"""

import asyncio
import logging
import time
import zlib
from collections.abc import AsyncIterator, Mapping
from http import HTTPStatus
from typing import Literal, Self

from ccpipe.config import (
    Duration,
    Interval,
    Site,
    Size,
    authorization,
    check_credentials,
)
from ccpipe.errors import ConfigError, DataError, MissingExtra, UnavailableError, system_reason
from ccpipe.formats.exposition import ACCEPT, KnownSeries, PageDecoder
from ccpipe.formats.lineprotocol import Lines, Series
from ccpipe.formats.lineprotocol.series import valid_tags, write_series
from ccpipe.pipeline import Batch, Source, wait_for_event
from ccpipe.process.background import background, end_tasks
from ccpipe.sources.http_requests import Refused, Unpacker
from ccpipe.sources.scrape_targets import Target, TargetFiles, TargetRules
from ccpipe.tls import check_key, tls_context

try:
    import aiohttp
except ImportError:
    raise MissingExtra("aiohttp", "http") from None

log = logging.getLogger(__name__)

REREAD_SECONDS = 5.0
"""Interval at which files of targets are checked for changes."""

SECOND = 10**9


class PrometheusScrapeSource(Source[Lines]):
    """Scrapes targets that expose metrics for Prometheus."""

    gives = Lines

    def __init__(
        self,
        *,
        site: Site,
        targets: list[str] = [],  # noqa: B006 - only read
        target_files: list[str] = [],  # noqa: B006 - only read
        interval: Interval = Interval(15),  # noqa: B008 - frozen, as any float
        timeout: Interval = Interval(10),  # noqa: B008
        jitter: Duration = Duration(5),
        path: str = "/metrics",
        scheme: Literal["http", "https"] = "http",
        short_hostnames: bool = True,
        timestamps: bool = False,
        max_samples: int = 50_000,
        max_body_bytes: Size = Size(16 * 2**20),
        user: str = "",
        password_file: str = "",
        token_file: str = "",
        ca_file: str = "",
        cert_file: str = "",
        key_file: str = "",
    ) -> None:
        """Configure targets, intervals and limits.

        Parameters
        ----------
        targets
            What to scrape: ``host:port``, where the host may be a node list as in
            ``f[0101-0188]:9100``, or a URL. The host without port becomes the tag ``hostname``.
        target_files
            JSON files of targets as for Prometheus' ``file_sd_configs``, which may be shell
            patterns; they are read again when they change. Their labels become tags.
        interval
            Time between two scrapes of a target. Samples have the time at which it began.
        timeout
            Time limit for one scrape, at most `interval`.
        jitter
            Time over which the scrapes of an interval are spread, at most half of it. A target
            always has the same delay.
        path
            Path of targets without one.
        scheme
            ``https`` for targets that are not URLs and require it.
        short_hostnames
            Cut host names at the first dot.
        timestamps
            Keep timestamps that exporters give to samples.
        max_samples
            Maximum number of samples of a target; one with more has none, and ``up`` 0.
        max_body_bytes
            Maximum decompressed size of a page; a target with a larger one has ``up`` 0.
        user, password_file
            User name and password file for HTTP Basic authentication at all targets.
        token_file
            File containing a token for all targets (HTTP ``Bearer``).
        ca_file
            CA certificate of the targets, if they are signed by a private CA.
        cert_file, key_file
            Client certificate and private key, if targets require them.

        Raises
        ------
        ConfigError
            if there is no target, one is invalid, or options contradict each other.

        """
        if not (targets or target_files):
            raise ConfigError("targets: expected at least one, or target_files")
        if timeout > interval:
            raise ConfigError(f"timeout: {timeout:g} s is longer than the interval")
        if max_samples < 1:
            raise ConfigError("max_samples: must be at least 1")
        check_key(cert_file, key_file)
        check_credentials(user, password_file, token_file)
        rules = TargetRules(scheme, path, short_hostnames)
        try:
            self._fixed = [found for each in targets for found in rules.targets(each, {})]
        except DataError as error:
            raise ConfigError(f"targets: {error}") from None
        self._files = TargetFiles(target_files, rules)
        self.cluster = site.cluster
        self.timeout = float(timeout)
        self.jitter = min(float(jitter), interval / 2)
        self._interval = round(interval * SECOND)
        self.timestamps = timestamps
        self.max_samples, self.max_body_bytes = max_samples, int(max_body_bytes)
        self.user, self.password_file, self.token_file = user, password_file, token_file
        self.ca_file, self.cert_file, self.key_file = ca_file, cert_file, key_file
        self._known = KnownSeries()
        self._scrapes: dict[Target, asyncio.Task[None]] = {}
        self._ready: asyncio.Queue[tuple[Target, Batch[Lines]] | None] = asyncio.Queue()
        self._waiting: set[Target] = set()
        """Targets with a batch that the pipe has not taken yet."""
        self._stopped = asyncio.Event()

    async def check(self) -> None:
        """Read the files that options name; raise UnavailableError if no target answers."""
        self._files.check()
        async with self:
            targets = self._targets()
            failures = await asyncio.gather(*map(self._failure, targets[:100]))
        if failures and all(failures):
            raise UnavailableError(f"{targets[0].url}: {failures[0]}")

    async def __aenter__(self) -> Self:
        headers = {
            "Accept": ACCEPT,
            "Accept-Encoding": "gzip",
            "User-Agent": "ccpipe",
            "X-Prometheus-Scrape-Timeout-Seconds": f"{self.timeout:g}",
            **authorization(self.user, self.password_file, self.token_file),
        }
        tls = tls_context(self.ca_file, self.cert_file, self.key_file)
        self._session = aiohttp.ClientSession(
            headers=headers,
            connector=aiohttp.TCPConnector(ssl=tls, limit=0),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,  # here, in pieces of bounded size
        )
        return self

    async def __aexit__(self, *exit_: object) -> None:
        await self._session.close()

    def stop(self) -> None:
        if not self._stopped.is_set():
            self._stopped.set()
            self._ready.put_nowait(None)

    async def batches(self) -> AsyncIterator[Batch[Lines]]:
        watching = background(self._watch_files(), "ccpipe-targets")
        try:
            while found := await self._ready.get():
                target, batch = found
                self._waiting.discard(target)
                yield batch
        finally:
            await end_tasks([watching, *self._scrapes.values()])
            self._scrapes.clear()

    async def _watch_files(self) -> None:
        """Start and end the scrapes of targets, as files list them."""
        while not self._stopped.is_set():
            targets = await asyncio.to_thread(self._targets)
            await end_tasks([self._scrapes.pop(each) for each in self._scrapes.keys() - {*targets}])
            for target in targets:
                if target not in self._scrapes:
                    work = self._scrape_regularly(target)
                    self._scrapes[target] = background(work, f"ccpipe-scrape {target.instance}")
            await wait_for_event(self._stopped, REREAD_SECONDS)

    def _targets(self) -> list[Target]:
        return list(dict.fromkeys([*self._fixed, *self._files.read()]))

    async def _scrape_regularly(self, target: Target) -> None:
        tags = {"cluster": self.cluster, **dict(target.tags)}
        decoder = PageDecoder(self._known, tags)
        about = {**tags, "stype": "target", "stype-id": target.instance}
        delay = self.jitter * zlib.crc32(repr(target).encode()) / 2**32
        slot, problem = 0, ""
        while not self._stopped.is_set():
            slot = next_slot(time.time_ns() - round(delay * SECOND), self._interval, slot)
            await wait_for_event(self._stopped, max(0.0, slot / SECOND + delay - time.time()))
            if self._stopped.is_set():
                return
            if target in self._waiting:
                problem = _log_change(target, problem, "skipped: its last page is not stored yet")
                continue
            begin = time.monotonic()
            lines, samples, failure = await self._scrape(target, decoder, slot)
            problem = _log_change(target, problem, failure)
            values = {
                "up": float(not failure),
                "scrape_duration_seconds": time.monotonic() - begin,
                "scrape_samples_scraped": float(samples),
            }
            _append(lines, values, about, slot)
            self._waiting.add(target)
            self._ready.put_nowait((target, Batch(lines, origin=target.url)))

    async def _scrape(
        self, target: Target, decoder: PageDecoder, at: int
    ) -> tuple[Lines, int, str]:
        """Return lines, the number of samples, and why there are none."""
        try:
            body, is_openmetrics = await self._fetch(target)
            page = decoder.decode(
                body,
                at,
                own_times=self.timestamps,
                is_openmetrics=is_openmetrics,
                max_samples=self.max_samples,
            )
        except (aiohttp.ClientError, OSError, DataError, Refused) as error:
            return Lines(b"", self._known.current()), 0, _reason(error, self.timeout)
        return page.lines, page.samples, ""

    async def _fetch(self, target: Target) -> tuple[bytes, bool]:
        """Return a page, and whether it is OpenMetrics."""
        async with (
            asyncio.timeout(self.timeout),
            self._session.get(target.url, allow_redirects=False) as response,
        ):
            if response.status != HTTPStatus.OK:
                raise DataError(f"{response.status} {response.reason}")
            if response.content_type == "text/html":
                raise DataError("answered with a page of HTML instead of metrics")
            body = await self._read(response)
            return body, response.content_type == "application/openmetrics-text"

    async def _read(self, response: aiohttp.ClientResponse) -> bytes:
        is_packed = response.headers.get("Content-Encoding", "") in ("gzip", "deflate")
        unpack = Unpacker() if is_packed else None
        parts, size = list[bytes](), 0
        async for chunk in response.content.iter_any():
            for part in unpack.pieces(chunk) if unpack else (chunk,):
                parts.append(part)
                size += len(part)
                if size > self.max_body_bytes:
                    raise DataError(f"more than {self.max_body_bytes} bytes (max_body_bytes)")
        if unpack and not unpack.ended:
            raise DataError("the compressed page is truncated")
        return b"".join(parts)

    async def _failure(self, target: Target) -> str:
        decoder = PageDecoder(self._known, dict(target.tags))
        return (await self._scrape(target, decoder, time.time_ns()))[2]


def next_slot(now: int, interval: int, last: int) -> int:
    """Return the next multiple of the interval from `now` on that is not the last one.

    All are nanoseconds.
    """
    slot = -(-now // interval) * interval
    return slot if slot != last else slot + interval


def _append(lines: Lines, values: Mapping[str, float], tags: Mapping[str, str], time: int) -> None:
    field = lines.table.field_code_of("value")
    tags = valid_tags(tags)
    for name, value in values.items():
        series = Series(name, tags, write_series(name, tags))
        lines.append(lines.table.code_of(series), field, value, time)


def _log_change(target: Target, before: str, now: str) -> str:
    """Log a new reason why there are no samples of a target, and its end."""
    if now and now != before:
        log.warning("%s: %s", target.url, now)
    elif before and not now:
        log.info("%s: scraped again", target.url)
    return now


def _reason(error: BaseException, timeout: float) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer within {timeout:g} s"
    if isinstance(error, aiohttp.ClientConnectorError):
        error = error.os_error
    return system_reason(error) or type(error).__name__
