"""Publishes encoded messages in order, each with an id for duplicate detection."""

import asyncio
import re
from bisect import bisect_right
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import accumulate
from types import MappingProxyType
from typing import NamedTuple

import xxhash

from ccpipe.bus.nats.connection import NO_STREAM, Answer, Connection, Waiting
from ccpipe.bus.nats.errors import CURE, ForbiddenError, explain
from ccpipe.bus.nats.protocol.frames import write_header
from ccpipe.bus.subjects import KEPT, Subjects
from ccpipe.config import Bus
from ccpipe.errors import CcpipeError, DeniedError, EncodeError, RejectedError, UnavailableError

HEADER_ROOM = 1024
"""Bytes of the server's ``max_payload`` reserved for headers."""
MESSAGE_ID = "Nats-Msg-Id"
"""Header by which the broker detects a message that is published again."""

_BREAK = re.compile(r"[ \t\r\n]")


class Outgoing(NamedTuple):
    """A message to be published."""

    subject: str
    payload: bytes
    id: str
    """Messages with the same id within the broker's duplicate window are stored once."""
    headers: Mapping[str, str] = MappingProxyType({})
    """Headers besides the id."""

    @classmethod
    def of(cls, subject: str, payload: bytes) -> "Outgoing":
        return cls(subject, payload, digest(subject, payload))

    def command(self, reply: str, limit: int) -> tuple[bytes, bytes, bytes]:
        """Return the publish command in three parts, with the id if there is a reply subject.

        Raises EncodeError if the subject or a header contains a line end, and RejectedError if it
        is larger than `limit`, the server's ``max_payload``.
        """
        headers = {MESSAGE_ID: self.id} if reply else {}
        if self.headers:
            for name, value in self.headers.items():
                _check_header(name, value)
            headers = {**self.headers, **headers}
        header = write_header(headers)
        size = len(header) + len(self.payload)
        if size > limit:
            raise RejectedError(f"a message of {size} bytes: the server's max_payload is {limit}")
        subject = f"{_checked(self.subject)} {reply}" if reply else _checked(self.subject)
        line = f"HPUB {subject} {len(header)} {size}" if header else f"PUB {subject} {size}"
        return b"%b\r\n%b" % (line.encode(), header), self.payload, b"\r\n"


def digest(*parts: str | bytes) -> str:
    """Return a message id derived from the content alone: XXH3, 128 bits in hexadecimal.

    It need not be cryptographic: a publisher may choose any id anyway.
    """
    state = xxhash.xxh3_128()
    for part in parts:
        state.update(part.encode() if isinstance(part, str) else part)
        state.update(b"\0")
    return state.hexdigest()


@lru_cache(maxsize=4096)
def _checked(subject: str) -> str:
    if not subject or _BREAK.search(subject):
        raise EncodeError(f"subject {subject!r}: empty, or with a space or the end of a line")
    return subject


def _check_header(name: str, value: str) -> None:
    if not name or ":" in name or _BREAK.search(name) or "\r" in value or "\n" in value:
        raise EncodeError(f"not a header: {name!r}: {value!r:.100}")


STORE_SECONDS = 5.0
"""Time limit for storing a message."""
PING_SECONDS = 1.0
"""Time limit for the broker to respond at all."""
IN_FLIGHT = 32
"""Maximum number of unacknowledged messages, each on a different subject."""
BATCH, BATCH_BYTES = 500, 2**21
"""Maximum number of messages in a batch, and of their bytes unless a single one is larger."""
SMALLEST_BATCH = 3
"""A batch is answered twice."""
NO_BATCHES = (10205, 10208)
"""JetStream's error codes if a stream allows no batches, or if another one got the beginning."""


class NoStreamError(UnavailableError):
    """No stream appears to store a subject; creating one may help."""

    def __init__(self, subject: str, reason: str) -> None:
        super().__init__(f"publishing on {subject}: {reason}")
        self.subject = subject
        self.reason = reason


async def store(bus: Connection, messages: Sequence[Outgoing], stored: set[str]) -> None:
    """Publish messages and wait until streams have stored them; adds their ids to `stored`.

    Messages whose ids are in `stored` are skipped. They are sent in batches, of which a stream
    stores no message after one that is missing or rejected. What a batch did not store, because of
    an error or of duplicates, is sent again, each message after the previous one on its subject is
    stored: if several were in flight and one failed, its retry would arrive after later messages.

    Raises as ``Sink.write`` does; NoStreamError if no stream acknowledges a message; ForbiddenError
    if the server does not permit some subjects, while messages on others are stored.
    """
    if not messages:
        return
    if bus.is_silent and not await bus.answers(PING_SECONDS):
        raise _no_answer(messages[0].subject)
    await bus.acknowledgements.open()
    await _store_batches(bus, [each for each in messages if each.id not in stored], stored)
    if missing := [each for each in messages if each.id not in stored]:
        await _store_each(bus, missing, stored)


async def _store_each(bus: Connection, messages: Sequence[Outgoing], stored: set[str]) -> None:
    """Store messages, each after the previous one on its subject; raises as `store`."""
    window = _Window(bus, messages, stored)
    with bus.permissions.watching({message.subject for message in messages}, window.refuse):
        await window.run()
    missing = window.missing
    if window.error is None and window.late:
        missing = await _diagnose(bus, window.late)
    if window.error is not None:
        raise window.error
    if window.refused:
        raise ForbiddenError(window.refused)
    if missing is not None:
        raise missing


async def _store_batches(bus: Connection, messages: Sequence[Outgoing], stored: set[str]) -> None:
    """Store messages in batches, as far as they are answered as expected; raises as `store`."""
    ends = list(accumulate(len(each.payload) for each in messages))
    first = before = 0
    while bus.takes_batches and len(messages) - first >= SMALLEST_BATCH:
        last = bisect_right(ends, before + BATCH_BYTES, first, min(first + BATCH, len(messages)))
        part = messages[first : max(last, first + 1)]
        if len(part) < SMALLEST_BATCH or not await _Batch(bus, part).store(stored):
            return
        first += len(part)
        before = ends[first - 1]


class _Batch(Waiting):
    """Messages that are sent together, answered when the last of them is stored."""

    def __init__(self, bus: Connection, messages: Sequence[Outgoing]) -> None:
        self._bus = bus
        self._messages = messages
        self._done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        """How many of the first messages are stored for certain."""

    async def store(self, stored: set[str]) -> bool:
        """Send them; adds the ids of stored ones to `stored`. Return whether these are all."""
        bus, messages = self._bus, self._messages
        replies = bus.acknowledgements.expect_batch(self, len(messages))
        try:
            pairs = zip(messages, replies, strict=True)
            commands = [
                part for one, reply in pairs for part in one.command(reply, bus.max_payload)
            ]
            subjects = {message.subject for message in messages}
            with bus.permissions.watching(subjects, lambda _: self._end(0)):
                bus.write(commands)
                async with asyncio.timeout(STORE_SECONDS):
                    count = await self._done
        except TimeoutError:
            raise await _diagnose(bus, messages[0].subject) from None
        finally:
            bus.acknowledgements.forget(replies)
        stored.update(message.id for message in messages[:count])
        return count == len(messages)

    def _end(self, count: int) -> None:
        if not self._done.done():
            self._done.set_result(count)

    def answered(self, reply: str, answer: Answer) -> None:  # noqa: ARG002 - of the base class
        if self._done.done():
            return
        if answer.error is not None:
            takes_batches = answer.error.get("err_code") not in NO_BATCHES
        else:  # an older server counts none, and a stream only to the first message of another one
            is_complete = answer.count == len(self._messages)
            takes_batches = is_complete or answer.duplicate or not answer.stream
        if not takes_batches:
            self._bus.refuse_batches()
        self._end(answer.count)

    def proceed(self) -> None:
        pass

    def lost(self) -> None:
        if not self._done.done():
            reason = f"the connection to {self._bus.url} was lost"
            self._done.set_exception(UnavailableError(reason))


class _Sent(NamedTuple):
    """A message that awaits its acknowledgement."""

    message: Outgoing
    lane: "deque[Outgoing]"
    """Further messages on its subject."""
    due: float
    """Its deadline, by the event loop's clock."""


class _Window(Waiting):
    """Messages in flight, at most one per subject.

    Everything happens where replies are read, without a task or a future for each message.
    """

    def __init__(self, bus: Connection, messages: Sequence[Outgoing], stored: set[str]) -> None:
        self.error: CcpipeError | None = None
        """The first error, except those with an attribute of their own."""
        self.missing: NoStreamError | None = None
        self.refused: set[str] = set()
        """Subjects on which the server does not permit us to publish."""
        self.late = ""
        """A subject that timed out."""
        self._bus = bus
        self._stored = stored
        lanes: dict[str, deque[Outgoing]] = defaultdict(deque)
        for message in messages:
            lanes[message.subject].append(message)
        self._ready = deque(lanes.values())  # subjects with nothing in flight
        self._in_flight: dict[str, _Sent] = {}  # by reply subject, the oldest first
        self._loop = asyncio.get_running_loop()
        self._done = self._loop.create_future()

    async def run(self) -> None:
        self._timer = self._loop.call_later(STORE_SECONDS, self._expire)
        try:
            self.proceed()
            await self._done
        finally:
            self._timer.cancel()
            self._bus.acknowledgements.forget(self._in_flight)

    def proceed(self) -> None:
        commands: list[bytes] = []
        due = self._loop.time() + STORE_SECONDS
        try:
            while self._ready and len(self._in_flight) < IN_FLIGHT and not self._has_failed:
                lane = self._ready.popleft()
                message = lane.popleft()
                reply = self._bus.acknowledgements.expect(self)
                self._in_flight[reply] = _Sent(message, lane, due)
                commands += message.command(reply, self._bus.max_payload)
        except CcpipeError as error:
            self.error = error
            self._forget(reply)
        if commands:
            try:
                self._bus.write(commands)
            except UnavailableError as error:
                self._give_up(error)
        if not self._in_flight and not self._done.done():
            self._done.set_result(None)

    def answered(self, reply: str, answer: Answer) -> None:
        message, lane, _ = self._in_flight.pop(reply)
        if answer.stream and answer.error is None:
            self._stored.add(message.id)
            if lane:
                self._ready.append(lane)
        elif answer is NO_STREAM:
            self.missing = NoStreamError(message.subject, "no stream stores it")
        else:
            self.error = self.error or _refusal(answer, message.subject)

    def lost(self) -> None:
        self._give_up(UnavailableError(f"the connection to {self._bus.url} was lost"))
        self.proceed()

    def refuse(self, subject: str) -> None:
        """Drop messages on a forbidden subject, without blocking other subjects."""
        self.refused.add(subject)
        for reply, sent in list(self._in_flight.items()):
            if sent.message.subject == subject:
                self._forget(reply)
        self.proceed()

    @property
    def _has_failed(self) -> bool:
        return bool(self.error or self.missing or self.late)

    def _expire(self) -> None:
        """Handle timeouts; one timer, for the oldest message, suffices."""
        now = self._loop.time()
        for reply, sent in list(self._in_flight.items()):
            if sent.due <= now:
                self.late = self.late or sent.message.subject
                self._forget(reply)
        if self._in_flight:
            oldest = next(iter(self._in_flight.values()))
            self._timer = self._loop.call_at(oldest.due, self._expire)
        self.proceed()

    def _give_up(self, error: CcpipeError) -> None:
        self.error = self.error or error
        for reply in list(self._in_flight):
            self._forget(reply)

    def _forget(self, reply: str) -> None:
        del self._in_flight[reply]
        self._bus.acknowledgements.forget((reply,))


def _refusal(answer: Answer, subject: str) -> CcpipeError:
    import nats.js.errors  # rarely needed, and it takes 1 MB

    try:
        raise nats.js.errors.APIError.from_error(answer.error or {})
    except nats.js.errors.APIError as error:
        return explain(error, f"publishing on {subject}")


async def _diagnose(bus: Connection, subject: str) -> NoStreamError:
    """Determine why the answer is missing; a subject may have subscribers but no stream.

    A server that does not answer a ping gets no further request, since the process may be
    ending.
    """
    if not await bus.answers(PING_SECONDS):
        raise _no_answer(subject)
    bus.permissions.require_replies()
    from ccpipe.bus.nats.streams.jetstream import names_of  # rarely needed, and it takes 1 MB

    try:
        stuck = await names_of(bus.jetstream(PING_SECONDS), subject)
    except (UnavailableError, DeniedError):
        stuck = []  # not permitted to every user
    if stuck:
        # The server does not answer at all if a write to its disk fails.
        raise UnavailableError(
            f"publishing on {subject}: the server answers, but its stream {stuck[0]} "
            f"acknowledges nothing: it is overloaded, or JetStream's disk is full or fails: {CURE}"
        )
    return NoStreamError(subject, "the server did not answer in time")


def _no_answer(subject: str) -> UnavailableError:
    return UnavailableError(f"publishing on {subject}: the server does not answer")


FIND_SECONDS = 1.0
"""Time limit for finding out whether a stream exists."""


class Publisher:
    """Publishes messages over a connection opened and closed by the caller.

    With JetStream a call returns when the broker has stored every message; without it, when the
    server has received them.
    """

    def __init__(
        self, bus: Connection, config: Bus, subjects: Subjects, names: Sequence[str] = KEPT
    ) -> None:
        """Publish on `subjects`; creates a stream for those in `names` if missing."""
        self.bus = bus
        self.config = config
        self.subjects = subjects
        self.names = names
        self._stored: set[str] = set()
        self._has_stored = False

    async def publish(self, messages: Sequence[Outgoing]) -> None:
        """Publish messages; after a failure, the same call again sends only what is missing.

        Raises as ``Sink.write`` does, and ForbiddenError, where permitted messages were published.
        """
        if self.config.jetstream:
            await self._store_all(messages)
        else:
            await self._send_all([each for each in messages if each.id not in self._stored])
        self._stored.clear()

    def unstored(self, messages: Sequence[Outgoing]) -> list[Outgoing]:
        return [message for message in messages if message.id not in self._stored]

    def forget(self) -> None:
        self._stored.clear()

    async def _send_all(self, messages: Sequence[Outgoing]) -> None:
        """Publish messages without acknowledgement; the server has then received them."""
        try:
            with self.bus.permissions.publishing({message.subject for message in messages}):
                limit = self.bus.max_payload
                await self.bus.flush([part for one in messages for part in one.command("", limit)])
        except ForbiddenError as error:
            self._stored.update(each.id for each in messages if each.subject not in error.subjects)
            raise

    async def _store_all(self, messages: Sequence[Outgoing]) -> None:
        if messages and not self._has_stored:
            await self._find_stream(messages[0].subject)
            # Alone: if its stream must be created first, plain subscribers receive only this twice.
            await self._store_in_stream(messages[:1])
            self._has_stored = True
        await self._store_in_stream(messages)

    async def _find_stream(self, subject: str) -> None:
        """Create the stream if it is visibly missing, so that nothing is published twice."""
        from ccpipe.bus.nats.streams.jetstream import names_of  # only with JetStream: it takes 1 MB

        try:
            async with self.bus.permissions.replying(self._api_of_streams, probe=True):
                is_stored = bool(await names_of(self.bus.jetstream(FIND_SECONDS), subject))
        except (ForbiddenError, UnavailableError, DeniedError):
            return  # a missing stream shows when the first message is not acknowledged
        if not is_stored:
            await self._ensure_stream(NoStreamError(subject, "no stream stores it"))

    async def _store_in_stream(self, messages: Sequence[Outgoing]) -> None:
        try:
            await store(self.bus, messages, self._stored)
        except NoStreamError as missing:
            await self._ensure_stream(missing)
            try:
                await store(self.bus, messages, self._stored)
            except NoStreamError as again:
                reason = f"publishing on {again.subject}: its stream has no leader"
                raise UnavailableError(reason) from None

    async def _ensure_stream(self, missing: NoStreamError) -> None:
        """Create the stream unless there is one, whose servers may be electing a leader."""
        from ccpipe.bus.nats.streams.jetstream import names_of
        from ccpipe.bus.nats.streams.stream import ensure_stream  # only if one is missing

        patterns = [missing.subject, *self.subjects.patterns(self.names)]
        try:
            async with self.bus.permissions.replying(self._api_of_streams):
                jetstream = self.bus.jetstream()
                if not await names_of(jetstream, missing.subject):
                    await ensure_stream(jetstream, self.config, self.subjects, patterns)
        except ForbiddenError:
            reason = f"{missing.reason}, and we may not make one: a bridge does when it starts"
            raise NoStreamError(missing.subject, reason) from None

    @property
    def _api_of_streams(self) -> str:
        return f"{self.bus.api_prefix}.STREAM.>"
