"""The connection to NATS: reconnects forever, counts and logs errors, dispatches replies."""

import asyncio
import contextlib
import itertools
import logging
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Self

import msgspec
import nats.errors

from ccpipe.bus.nats.announcement import running
from ccpipe.bus.nats.client import PING_SECONDS, UNANSWERED_PINGS, Client, takes_batches
from ccpipe.bus.nats.credentials import (
    check_urls,
    client_options,
    explain_denial,
    requires_tls,
    tls_problem,
    without_secrets,
)
from ccpipe.bus.nats.errors import Permissions
from ccpipe.bus.nats.protocol.frames import Delivery, MalformedMessageError, Receive
from ccpipe.config import Bus
from ccpipe.errors import DeniedError, UnavailableError, system_reason
from ccpipe.process.background import background, end_tasks, guarded, uninterrupted
from ccpipe.telemetry import Telemetry
from ccpipe.terminal import Progress

if TYPE_CHECKING:
    from nats.js import JetStreamContext

log = logging.getLogger(__name__)

DEFAULT_SERVER = "nats://127.0.0.1:4222"
CONNECT_SECONDS = 5.0
BRIEF_SECONDS = 1.0
"""How long opening a sink waits for a server, which may start later."""
CLOSE_SECONDS = 1.0
"""Time limit for sending pending data when the connection is closed."""
FLUSH_SECONDS = 5.0
"""Time limit for sending pending data and the server's answer."""
RECONNECT_SECONDS = 0.5
REPEAT_SECONDS = 60.0
"""Interval at which the same error is logged again."""
TROUBLES = ("authorization", "connection", "permissions", "slow_consumer")
"""Kinds of connection errors, as they are counted."""
PENDING_BYTES = 128 * 2**20
"""Maximum undecoded data of a source, beyond which messages are dropped (slow consumer)."""


class Connection:
    """One connection, as an async context manager.

    It reconnects forever and renews its subscriptions. Slow consumers, missing permissions and
    lost connections are counted in ``telemetry.bus_errors`` and logged.
    """

    def __init__(self, bus: Bus, *, name: str, telemetry: Telemetry, forever: bool = True) -> None:
        """Prepare; `forever` waits for a server that is not reachable yet instead of failing."""
        self._bus = bus
        self.servers = servers_of(bus)
        self.name = name
        self.telemetry = telemetry
        self.forever = forever
        self.is_silent = False
        """Whether the server did not respond to the last call of ``answers``."""
        self.connects = 0
        """Number of times the connection was made."""
        self._refused_batch = -1  # the connection number since which none is tried
        check_urls(self.servers)
        self._options = client_options(bus)
        self.permissions = Permissions()
        self.acknowledgements = Acknowledgements(self.new_inbox, self.subscribe_lists)
        self._inbox_prefix = str(self._options.get("inbox_prefix", "_INBOX"))
        telemetry.declare(telemetry.bus_errors, *TROUBLES)
        self._client = self._new_client()
        self._subscriptions: list[tuple[str, str, Receive]] = []
        self._reported: dict[str, float] = {}
        self._denied: str | None = None
        self._is_open = False
        self._leaving = False
        self._again: asyncio.Task[None] | None = None
        self._opening: asyncio.Task[Self] | None = None

    async def connect_in_background(self) -> Self:
        """Start connecting; after `BRIEF_SECONDS` go on in the background."""
        self._opening = asyncio.create_task(self.__aenter__(), name="ccpipe-bus")
        await asyncio.wait({self._opening}, timeout=BRIEF_SECONDS)
        return self

    def require_connected(self) -> None:
        """Raise UnavailableError if not connected, DeniedError if our credentials were refused."""
        if self._opening is not None and self._opening.done():
            self._opening.result()
        self._require_client()

    def _require_client(self) -> None:
        if not self.is_connected:
            raise UnavailableError(f"not connected to {self.url}")

    async def __aenter__(self) -> Self:
        """Connect; raises DeniedError, and UnavailableError unless `forever`."""
        deadline = math.inf if self.forever else time.monotonic() + CONNECT_SECONDS
        self.telemetry.connections.append(self)
        self.telemetry.await_broker(self, self.url)
        try:
            while not await self._attempt(deadline):
                self.servers, self._client = servers_of(self._bus), self._new_client()
        except BaseException:
            self._leaving = True
            self._forget()
            await self._client.leave(flushed=False)
            raise
        self._is_open = True
        self.telemetry.reached(self)
        return self

    async def _attempt(self, deadline: float) -> bool:
        """Connect; false if other servers are now configured: a `ccpipe up` that just started."""
        attempt = asyncio.create_task(self._connect(), name="ccpipe-connect")
        progress = Progress()
        try:
            while not attempt.done():
                if not self.forever:
                    progress.show(f"connecting to {self.url}")
                await asyncio.wait({attempt}, timeout=0.05)
                if servers_of(self._bus) != self.servers:
                    return False
                if self._denied:
                    raise DeniedError(f"NATS at {self.url}: {self._denied}")
                if time.monotonic() > deadline:
                    raise UnavailableError(f"no NATS server answers at {self.url}")
            await attempt
            return True
        finally:
            progress.clear()
            await end_tasks([attempt])

    async def __aexit__(self, *exit_: object) -> None:
        """Send pending data, then close; an unresponsive server is not waited for."""
        self._leaving = True
        self._forget()
        self.telemetry.reached(self)
        await uninterrupted(self._close())

    async def _close(self) -> None:
        await end_tasks([self._again, self._opening])
        await self._client.leave(flushed=await self.answers(CLOSE_SECONDS))

    def _forget(self) -> None:
        with contextlib.suppress(ValueError):  # it may not be open
            self.telemetry.connections.remove(self)

    @property
    def url(self) -> str:
        return ", ".join(without_secrets(server) for server in self.servers)

    @property
    def is_connected(self) -> bool:
        return self._client.is_connected

    @property
    def server_version(self) -> str:
        return self._client.server_version

    @property
    def takes_batches(self) -> bool:
        """Whether a stream may store fast-ingest batches, if its configuration allows them."""
        return takes_batches(self.server_version) and self._refused_batch != self.connects

    def refuse_batches(self) -> None:
        """Note that a stream does not store batches; they are tried again after a reconnect."""
        self._refused_batch = self.connects

    @property
    def max_payload(self) -> int:
        """Maximum message size that the server accepts, in bytes, headers included."""
        return self._client.max_payload

    def jetstream(self, timeout: float = 5.0) -> "JetStreamContext":
        return self._client.jetstream(timeout=timeout, domain=self._bus.domain or None)

    @property
    def api_prefix(self) -> str:
        return f"$JS.{self._bus.domain}.API" if self._bus.domain else "$JS.API"

    def new_inbox(self) -> str:
        return str(self._client.new_inbox())

    async def subscribe(
        self, subject: str, callback: Callable[[Delivery], None], queue: str = ""
    ) -> None:
        """Call `callback` with every message; members of the same `queue` group share them.

        Messages that violate the protocol are dropped, counted and logged. Raises UnavailableError
        if the connection is lost; the subscription is made once it is back.
        """

        def receive(messages: Sequence[Delivery]) -> None:
            for message in messages:
                try:
                    if message.flaw:
                        raise MalformedMessageError(message)
                    callback(message)
                except Exception as error:  # noqa: BLE001 - only this message is lost
                    self._client.reader.report(error)

        await self.subscribe_lists(subject, receive, queue)

    async def subscribe_lists(self, subject: str, receive: Receive, queue: str = "") -> None:
        """Call `receive` with lists of messages, including those with a `flaw`; see `subscribe`."""
        self._subscriptions.append((subject, queue, receive))
        try:
            await self._client.subscribe_lists(subject, queue, receive)
        except nats.errors.Error as error:
            raise UnavailableError(f"subscribing to {subject}: {error}") from None

    async def publish(
        self,
        subject: str,
        payload: bytes,
        *,
        reply: str = "",
        headers: dict[str, str] | None = None,
    ) -> None:
        """Publish without acknowledgement; raises UnavailableError if disconnected."""
        self._require_client()
        await self._client.publish(subject, payload, reply, headers)

    def write(self, commands: Sequence[bytes]) -> None:
        """Send protocol commands, in pieces, without waiting; raises as ``publish`` does."""
        self._require_client()
        self._client.write(commands)

    async def publish_each(self, subjects: Iterable[bytes], payload: bytes) -> None:
        """Publish one payload to many subjects that the server chose; raises as ``publish``.

        Each text is one write: subjects with a space between two.
        """
        end = b" %d\r\n%b\r\n" % (len(payload), payload)
        for each in list(subjects):
            self._require_client()
            await self._client.send(b"PUB %b%b" % (each.replace(b" ", end + b"PUB "), end))

    async def answers(self, seconds: float) -> bool:
        """Return whether the server has received what was published and answers a ping in time."""
        if self._client.is_connected:
            with contextlib.suppress(nats.errors.Error, TimeoutError, OSError):
                async with asyncio.timeout(seconds):
                    await self._client.flush(timeout=math.ceil(seconds))
                    self.is_silent = False
                    return True
        self.is_silent = True
        return False

    async def flush(self, commands: Sequence[bytes] = ()) -> None:
        """Send protocol commands, and wait until the server has received all that was published.

        Raises UnavailableError.
        """
        self._require_client()
        try:
            async with asyncio.timeout(FLUSH_SECONDS):
                await self._client.write_through(commands)
        except (nats.errors.Error, TimeoutError, OSError) as error:
            raise UnavailableError(f"{self.url}: {error or type(error).__name__}") from None

    def _new_client(self) -> Client:
        client = Client(guarded(self._report_error))
        client.requires_tls = requires_tls(self._bus)
        return client

    async def _connect(self) -> None:
        await self._client.connect(
            servers=self.servers,
            name=f"ccpipe {self.name}",
            max_reconnect_attempts=-1,
            reconnect_time_wait=RECONNECT_SECONDS,  # type: ignore[arg-type] # a float works
            connect_timeout=2,
            ping_interval=PING_SECONDS,
            max_outstanding_pings=UNANSWERED_PINGS,
            error_cb=guarded(self._report_error),
            disconnected_cb=guarded(self._report_disconnect),
            reconnected_cb=guarded(self._report_reconnect),
            closed_cb=guarded(self._closed),
            **self._options,
        )

    async def _report_error(self, error: Exception) -> None:
        text = str(error) or type(error).__name__
        if isinstance(error, OSError):
            text = system_reason(error)
        if isinstance(error, nats.errors.SlowConsumerError):
            kind = "slow_consumer"
            text = f"messages on {error.subject} were dropped: we read too slowly"
        elif isinstance(error, MalformedMessageError):
            kind = "malformed"
        elif "permissions violation" in text.lower():
            kind = "permissions"
            if not self.permissions.report(self._client.server_error, self._inbox_prefix):
                return
        elif problem := tls_problem(error):
            kind, self._denied, text = "tls", problem, problem
        elif isinstance(error, nats.errors.AuthorizationError) or "authorization" in text.lower():
            text = text.removeprefix("nats: ").strip("'")
            kind, self._denied = "authorization", f"{text}; {explain_denial(self._bus)}"
        else:
            kind = "connection"
        self.telemetry.count(self.telemetry.bus_errors, kind)
        is_retry = kind == "connection" and self._client.is_reconnecting
        if is_retry or (self._denied and not self._is_open):
            return  # the lost connection was logged already; a first attempt raises the denial
        now = time.monotonic()
        reported = kind if kind == "malformed" else text  # may contain anything
        if now - self._reported.get(reported, -REPEAT_SECONDS) >= REPEAT_SECONDS:
            self._reported = {**dict(list(self._reported.items())[-20:]), reported: now}
            log.warning("%s: NATS at %s: %s", self.name, self.url, text)

    async def _report_disconnect(self) -> None:
        self.acknowledgements.lost()
        if not self._leaving:
            reason = f" ({self._client.loss})" if self._client.loss else ""
            log.warning(
                "%s: the connection to NATS at %s is lost%s; retrying until it is back",
                self.name,
                self.url,
                reason,
            )

    async def _report_reconnect(self) -> None:
        self._reported.clear()
        self.permissions.forget()
        self.connects += 1
        log.info("%s: NATS at %s is back", self.name, self.url)

    async def _closed(self) -> None:
        """Start over if the client gave up: after a refusal it does so permanently."""
        if not self._leaving and self._again is None:
            self._again = background(self._restart_client(), "ccpipe-reconnect")

    async def _restart_client(self) -> None:
        while True:
            await asyncio.sleep(RECONNECT_SECONDS)
            self._client = self._new_client()
            try:
                await self._connect()
                for subscription in self._subscriptions:
                    await self._client.subscribe_lists(*subscription)
            except nats.errors.Error as error:  # refused once more
                await self._report_error(error)
                await self._client.leave(flushed=False)
            else:
                break
        self._again = None
        await self._report_reconnect()


async def check(bus: Bus, telemetry: Telemetry) -> None:
    """Connect once to check address and credentials; raises UnavailableError or DeniedError."""
    async with Connection(bus, name="check", telemetry=telemetry, forever=False):
        pass


def servers_of(bus: Bus) -> list[str]:
    """Return the configured servers, else a running ``ccpipe up``'s, else localhost's."""
    if bus.servers:
        return list(bus.servers)
    local = running()
    return [local.url if local else DEFAULT_SERVER]


class Answer(msgspec.Struct):
    """The broker's reply to one message."""

    stream: str = ""
    """Name of the stream that stored it; empty if none has."""
    error: dict[str, Any] | None = None
    """Why the stream rejected it: an error of JetStream's API."""
    count: int = 0
    """How many of the first messages of the batch are stored."""
    duplicate: bool = False
    """Whether the message was stored before, which ends a batch that begins with it."""


NO_STREAM = Answer()
"""The subject has no subscriber, and no stream stores it."""

_decode = msgspec.json.Decoder(Answer).decode

_BEGIN, _APPEND, _COMMIT = range(3)
"""What a message of a batch does."""


class Waiting(ABC):
    """A sender that waits for replies."""

    @abstractmethod
    def answered(self, reply: str, answer: Answer) -> None:
        """Called with the reply to the message with this reply subject."""

    @abstractmethod
    def proceed(self) -> None:
        """Called after a group of replies that arrived together."""

    @abstractmethod
    def lost(self) -> None:
        """Called when the connection is lost: no reply will arrive."""


class Acknowledgements:
    """The broker's replies to messages published into streams, dispatched to their senders.

    One subscription receives all replies of a connection. nats-py's own way creates a future, a
    timer and a JSON dictionary for each message, which costs more than encoding 500 lines.
    """

    def __init__(
        self, new_inbox: Callable[[], str], subscribe: Callable[[str, Receive], Awaitable[None]]
    ) -> None:
        self._new_inbox = new_inbox
        self._subscribe = subscribe
        self._inbox = ""
        self._numbers = itertools.count()
        self._waiting: dict[str, Waiting] = {}  # by reply subject

    async def open(self) -> None:
        """Subscribe, once; raises UnavailableError if not connected."""
        if not self._inbox:
            self._inbox = self._new_inbox()
            await self._subscribe(f"{self._inbox}.>", self._receive)

    def expect(self, waiting: Waiting) -> str:
        """Return a reply subject whose reply is dispatched to `waiting`."""
        reply = f"{self._inbox}.{next(self._numbers)}"
        self._waiting[reply] = waiting
        return reply

    def expect_batch(self, waiting: Waiting, count: int) -> list[str]:
        """Return reply subjects that make a batch of `count` messages.

        They name the batch, after how many messages the server confirms what is stored so far, that
        it stores nothing after a missing message, the number of the message and what it does: it
        begins the batch, belongs to it or ends it.

        Source: ADR-50, *JetStream Batch Publishing*, fast-ingest batches.
        """
        batch = f"{self._inbox}.{self._inbox.rpartition('.')[2]}-{next(self._numbers)}"
        kinds = [_BEGIN, *[_APPEND] * (count - 2), _COMMIT]
        replies = [f"{batch}.{count}.fail.{n}.{kind}.$FI" for n, kind in enumerate(kinds, 1)]
        self._waiting |= dict.fromkeys(replies, waiting)
        return replies

    def forget(self, replies: Iterable[str]) -> None:
        for reply in replies:
            self._waiting.pop(reply, None)

    def lost(self) -> None:
        waiting = set(self._waiting.values())
        self._waiting.clear()
        for each in waiting:
            each.lost()

    def _receive(self, deliveries: Sequence[Delivery]) -> None:
        woken: set[Waiting] = set()
        for delivery in deliveries:
            waiting = self._waiting.get(delivery.subject)
            if waiting is not None and (answer := _read(delivery)) is not None:
                del self._waiting[delivery.subject]
                waiting.answered(delivery.subject, answer)
                woken.add(waiting)
        for each in woken:
            each.proceed()


def _read(delivery: Delivery) -> Answer | None:
    """Return the broker's reply; None for a reply of a plain subscriber."""
    if delivery.status[0] == "503":
        return NO_STREAM
    try:
        answer = _decode(delivery.payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return answer if answer.stream or answer.error else None
