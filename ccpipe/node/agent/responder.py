"""Control requests to this node; ``bus/nats/control_requests.py`` is the client.

A request is a control line on ``<cluster>.control.get`` or ``.put``; its answer is one log line
with the request's name and tags, on the request's reply subject. The answer's tag ``level`` is
INFO or ERROR, as the client of cc-node-controller expects; an ERROR has a tag ``reason`` too.

Every node receives every request and answers those that name it in the tag ``hostname``. A GET
that names no node is answered by all of them; a PUT must name its node. Where subjects have a
method, requests of the other method are refused there: the broker grants rights by subject. A PUT
must have the current time by this node's clock and is executed once. Requests delivered by a
stream are ignored.

Source: ClusterCockpit specification, *Controls* and *Messaging subjects*; cc-node-controller.
"""

import asyncio
import functools
import inspect
import json
import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Self

from ccpipe.bus.nats.connection import Connection
from ccpipe.bus.nats.protocol.frames import Delivery
from ccpipe.bus.nats.publisher import HEADER_ROOM
from ccpipe.bus.subjects import REQUESTED_BY, Subjects, escape, minimal
from ccpipe.config import Site
from ccpipe.errors import (
    CcpipeError,
    ConfigError,
    DataError,
    DeniedError,
    EncodeError,
    UnavailableError,
    UsageError,
    suggestion,
)
from ccpipe.formats.lineprotocol import decode, encode
from ccpipe.message import CONTROL_METHODS, Kind, Message
from ccpipe.node.controls.control import Control, Tags
from ccpipe.process.background import background, call_blocking, guarded
from ccpipe.telemetry import Telemetry

log = logging.getLogger(__name__)

MAX_BYTES = 64 * 2**10  # maximum size of a request
MAX_LINES = 100  # maximum number of requests answered per message
MAX_WAITING = 64
"""Maximum number of waiting messages; further ones are answered as busy."""
ANSWER_SECONDS = 5.0  # time limit for one answer
MAX_OFFSET_SECONDS = 30.0
"""Maximum difference between the time of a PUT and this node's clock."""
Reason = Literal["", "unknown", "invalid", "denied", "failed"]
"""Reasons of an ERROR: no such control or device, invalid value, not allowed, failed."""


class Request(NamedTuple):
    """One line of a request that is for this node."""

    message: Message
    problem: str = ""  # why it is invalid; empty if it is valid

    @property
    def method(self) -> str:
        return self.message.tags.get("method", "")


class Reply(NamedTuple):
    """The answer to one request."""

    text: str
    reason: Reason = ""  # empty on success


def read(
    payload: bytes, *, cluster: str, hostname: str, method: str = "", now: int | None = None
) -> list[Request]:
    """Parse a message's requests to this node; invalid ones have a problem set.

    The list is empty if the message is for other nodes only. `method` is the only one allowed on
    the message's subject; empty if both are. `now` is the time of arrival in nanoseconds since the
    epoch; default: the current time.
    """
    now = time.time_ns() if now is None else now
    if len(payload) > MAX_BYTES:
        return [_unreadable(f"a request of {len(payload)} bytes is more than {MAX_BYTES}")]
    # The specification's own example has no quotes around the request.
    lines = decode(payload, lenient=True)
    requests = []
    for message in lines:
        named = message.hostname
        if named in ("", hostname) and message.tags.get("cluster", cluster) == cluster:
            requests.append(Request(message, _problem(message, method, now)))
    if len(lines) and not requests:
        return []
    requests += [_unreadable(f"line {bad.line}: {bad.rule}") for bad in lines.rejected]
    return requests[:MAX_LINES] or [_unreadable("the request is empty")]


def _problem(message: Message, allowed: str, now: int) -> str:
    method = message.tags.get("method", "")
    if message.kind is not Kind.CONTROL:
        return f"the field must be 'control', not {message.field!r:.40}"
    if method not in CONTROL_METHODS:
        return f"tag method must be one of {', '.join(CONTROL_METHODS)}"
    if allowed and method != allowed:
        return f"tag method is {method}, on the subject of {allowed} requests"
    if method == "PUT" and not message.hostname:
        return "a PUT must name its node in the tag hostname"
    if method == "PUT":
        return _offset_problem(message.time, now)
    return ""


def _offset_problem(sent: int | None, now: int) -> str:
    """Return why a PUT's time is refused: an old request may be a replay."""
    if sent is None:
        return "a PUT must have a timestamp"
    seconds = (now - sent) / 1e9
    if abs(seconds) <= MAX_OFFSET_SECONDS:
        return ""
    relation = "before" if seconds > 0 else "after"
    return (
        f"the request was sent {abs(seconds):.0f} s {relation} this node's time; at most "
        f"{MAX_OFFSET_SECONDS:g} s are accepted"
    )


def _is_from_stream(delivery: Delivery) -> bool:
    """Return whether JetStream delivered a message, on a subject chosen by its consumer.

    A consumer's messages have reply subjects of JetStream; republished and directly read ones
    have headers that name their stream.
    """
    return delivery.reply.startswith("$JS.") or b"Nats-Stream" in delivery.header


def _unreadable(problem: str) -> Request:
    return Request(Message("control", {"type": "node"}, "", None, "control"), problem)


class Responder:
    """Answers the requests to this node, as an async context manager.

    It subscribes once it is connected. Requests are answered one after the other, each in a
    thread, so that they do not block the process.
    """

    def __init__(
        self,
        bus: Connection,
        site: Site,
        controls: Mapping[str, Control],
        telemetry: Telemetry | None = None,
    ) -> None:
        self.bus = bus
        self.telemetry = telemetry or Telemetry()
        self.site = site
        self.controls = controls
        """By name, such as ``interval`` or ``rapl.pkg_limit_1``; may be replaced at any time."""
        self.allowed: Collection[str] = site.publish.control.allow
        """Settable controls: full names or the part before the dot; may be replaced at any time."""
        self._waiting: asyncio.Queue[tuple[list[Request], Delivery]] = asyncio.Queue(MAX_WAITING)
        self._running: set[str] = set()  # controls that a thread reads or sets
        self._refusals: set[asyncio.Task[None]] = set()
        self._received: dict[tuple[object, ...], int] = {}  # recent PUTs, with their times

    async def __aenter__(self) -> Self:
        self._task = background(self._serve(), "ccpipe-control")
        return self

    async def __aexit__(self, *exit_: object) -> None:
        for task in (self._task, *self._refusals):
            task.cancel()
        await asyncio.wait({self._task, *self._refusals})

    async def _serve(self) -> None:
        while not self.bus.is_connected:  # noqa: ASYNC110 - the client has no such event
            await asyncio.sleep(0.1)
        for subject, method in _own_subjects(self.site):
            try:
                await self.bus.subscribe(subject, functools.partial(self._receive, method))
            except UnavailableError as error:  # subscribed again once the connection is back
                log.warning("control: %s: %s", subject, error)
        while True:
            requests, delivery = await self._waiting.get()
            try:
                answers = [(request, await self._answer(request, delivery)) for request in requests]
                for _, answer in answers:
                    self.telemetry.count(self.telemetry.requests, answer.reason or "answered")
                await self._reply(delivery, answers)
            except Exception:
                log.exception("control: a request could not be answered")

    def _receive(self, method: str, delivery: Delivery) -> None:
        """Queue a request; if too many are waiting, refuse it at once.

        `method` is the subject's method; empty if it serves both.
        """
        site = self.site
        if _is_from_stream(delivery):
            self.telemetry.count(self.telemetry.requests, "denied")
            log.warning("control: ignored a request that a stream delivered")
            return
        requests = read(
            delivery.payload, cluster=site.cluster, hostname=site.hostname, method=method
        )
        if not requests:
            return
        try:
            self._waiting.put_nowait((requests, delivery))
        except asyncio.QueueFull:
            busy = Reply(f"busy: {MAX_WAITING} requests are waiting", "failed")
            self.telemetry.count(self.telemetry.requests, "busy", len(requests))
            work = guarded(self._reply)(delivery, [(request, busy) for request in requests])
            task = background(work, "ccpipe-control-busy")
            self._refusals.add(task)
            task.add_done_callback(self._refusals.discard)

    async def _answer(self, request: Request, delivery: Delivery) -> Reply:
        """Answer one request; any error becomes an answer."""
        by = delivery.headers.get(REQUESTED_BY, "unknown")
        try:
            if request.problem:
                raise DataError(request.problem)
            name, value = _resolve(request)
            if name == "controls":
                return Reply(self._list())
            control = self._find(name)
            if request.method == "GET":
                return Reply(await self._run(name, control.get, request.message.tags))
            self._refuse_repeated(request.message)
            return await self._set(name, control, value, request.message.tags, by)
        except (CcpipeError, OSError, ValueError) as error:
            answer = Reply(str(error) or type(error).__name__, _reason(error))
        except Exception as error:
            log.exception("control: %.80r", request.message.name)
            answer = Reply(f"{type(error).__name__}: {error}", "failed")
        if request.method == "PUT" or answer.reason == "denied":
            log.warning("control: %.80r by %.80r: %s", request.message.name, by, answer.text)
        return answer

    def _find(self, name: str) -> Control:
        if name in self.controls:
            return self.controls[name]
        hint = suggestion(name, self.controls, "`ccpipe control get` lists them")
        raise UsageError(f"no control {name!r:.80} on this node; {hint}")

    def _refuse_repeated(self, request: Message) -> None:
        """Raise DeniedError for a PUT that was received before, from any sender."""
        oldest = time.time_ns() - int(2 * MAX_OFFSET_SECONDS * 1e9)
        self._received = {each: sent for each, sent in self._received.items() if sent > oldest}
        content = (request.name, *sorted(request.tags.items()), request.value, request.time)
        if content in self._received:
            raise DeniedError("the same request, with the same timestamp, was received before")
        self._received[content] = request.time or 0

    async def _set(self, name: str, control: Control, value: str, tags: Tags, by: str) -> Reply:
        if control.put is None:
            raise DeniedError(f"{name} cannot be set")
        if not {name, name.partition(".")[0]} & set(self.allowed):
            raise DeniedError(f"{name} may not be set here: publish.control.allow does not list it")
        before, after = await self._run(name, control.put, value, tags)
        kind = tags.get("type") or "node"
        where = kind if kind == "node" else f"{kind}:{tags.get('type-id', '')}"
        # A warning, so that it is logged at every level except the highest.
        log.warning("control: %s of %s set from %s to %s by %.80r", name, where, before, after, by)
        return Reply(f"Set '{name}' for device '{where}': SUCCESS! It was {before}, it is {after}")

    async def _run(self, name: str, work: Callable[..., Any], *arguments: object) -> Any:
        """Run `work` without blocking others, for at most ``ANSWER_SECONDS``."""
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                if inspect.iscoroutinefunction(work):
                    return await work(*arguments)
                return await self._in_thread(name, work, *arguments)
        except TimeoutError:
            raise UnavailableError(f"{name} takes more than {ANSWER_SECONDS:g} s") from None

    async def _in_thread(self, name: str, work: Callable[..., Any], *arguments: object) -> Any:
        """Run `work` in its own thread: a read that hangs in the kernel cannot be cancelled."""
        if name in self._running:
            raise UnavailableError(f"{name} is still blocked by an earlier request")

        def run() -> Any:
            try:
                return work(*arguments)
            finally:
                self._running.discard(name)

        self._running.add(name)
        return await call_blocking(run)

    def _list(self) -> str:
        """Return all controls as cc-node-controller lists them."""
        entries = []
        for name, control in sorted(self.controls.items()):
            category, _, short = name.rpartition(".")
            settable = {name, name.partition(".")[0]} & set(self.allowed) and control.put
            entries.append(
                {
                    "category": category,
                    "name": short,
                    "device_type": control.device,
                    "description": control.about,
                    "methods": "ALL" if settable else "GET",
                }
            )
        return json.dumps({"controls": entries})

    async def _reply(self, delivery: Delivery, answers: Sequence[tuple[Request, Reply]]) -> None:
        """Send one message with a line for each request; the broker may allow only one."""
        if not delivery.reply:
            return
        limit = self.bus.max_payload - HEADER_ROOM
        lines = [self._line(request, answer) for request, answer in answers]
        if (size := sum(map(len, lines))) > limit:
            large = Reply(f"the answer of {size} bytes exceeds the maximum message size", "failed")
            lines = [self._line(answers[0][0], large)]
        try:
            await self.bus.publish(delivery.reply, b"".join(lines))
        except UnavailableError as error:
            log.warning("control: an answer could not be sent: %s", error)

    def _line(self, request: Request, answer: Reply) -> bytes:
        level = "ERROR" if answer.reason else "INFO"
        added = {"hostname": self.site.hostname, "level": level, "loglevel": level.lower()}
        if answer.reason:
            added["reason"] = answer.reason
        tags = {"type": "node", **request.message.tags, **added}
        message = Message(request.message.name, tags, answer.text, time.time_ns(), "log")
        try:
            return encode([message], precision="ns")
        except EncodeError as error:  # the request cannot be encoded again
            tags = {"type": "node", **added, "level": "ERROR", "loglevel": "error"}
            message = Message("control", tags, ascii(str(error)), time.time_ns(), "log")
            return encode([message], precision="ns")


_CLASSES = {"cpu_freq": "freq", "prefetch": "prefetcher"}
"""Names of controls in LIKWID and cc-node-controller that differ from ours."""


def _resolve(request: Request) -> tuple[str, str]:
    """Return the name of the requested control, and the value to set.

    The specification names a class and has the rest as the request (``rapl``, then
    ``pkg_limit_1``, or ``pkg_limit_1=85`` to set it); cc-node-controller names the whole
    (``rapl.pkg_limit_1``), and the request is the value.
    """
    category, _, control = request.message.name.partition(".")
    text = str(request.message.value)
    if request.method == "PUT" and not control and "=" in text:
        control, _, text = text.partition("=")
    elif request.method == "GET":
        control = control or text
    category = _CLASSES.get(category, category)
    return (f"{category}.{control.strip()}" if control else category), text.strip()


def _reason(error: Exception) -> Reason:
    match error:
        case DeniedError() | PermissionError():
            return "denied"
        case UsageError():
            return "unknown"
        case DataError() | ConfigError() | ValueError():
            return "invalid"
        case _:
            return "failed"


def _own_subjects(site: Site) -> list[tuple[str, str]]:
    """Return the subjects to subscribe to, each with its only method; empty if it has both.

    A template may have one subject for each node, and one for all.
    """
    template = Subjects.of(site).templates["control"]
    methods = CONTROL_METHODS if "{method}" in template else ("",)
    cluster, hosts = escape(site.cluster), (escape(site.hostname), escape(""))
    return [
        (subject, method)
        for method in sorted(methods)
        for subject in minimal(
            template.format(cluster=cluster, hostname=host, name="*", method=method.lower())
            for host in hosts
        )
    ]
