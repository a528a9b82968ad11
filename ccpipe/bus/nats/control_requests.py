"""Sends control requests to nodes: the counterpart of ``node/agent/responder.py``."""

import asyncio
import getpass
import os
import socket
import time
from collections.abc import Mapping, Sequence
from time import monotonic

from ccpipe.bus.nats.connection import Connection
from ccpipe.bus.nats.protocol.frames import Delivery
from ccpipe.bus.subjects import REQUESTED_BY, Subjects
from ccpipe.config import Site
from ccpipe.errors import DeniedError, UnavailableError
from ccpipe.formats.lineprotocol import decode, encode
from ccpipe.message import Kind, Message
from ccpipe.pipeline import wait_for_event


async def send_requests(
    bus: Connection, site: Site, requests: Sequence[Message], *, seconds: float
) -> list[Message]:
    """Send requests over an open connection; return the log lines that answer them.

    Returns as soon as every named node has answered, or no subscriber exists; if a request names
    no node, after `seconds`. Nodes that did not answer are missing from the result. Raises
    DeniedError or UnavailableError.
    """
    if not bus.is_connected:
        raise UnavailableError(f"not connected to {bus.url}")
    waiting = {(request.name, request.hostname) for request in requests}
    unanswered = len(requests)
    answers: list[Message] = []
    done = asyncio.Event()

    def receive(delivery: Delivery) -> None:
        nonlocal unanswered
        if delivery.status[0] == "503":  # no subscriber on that subject
            unanswered -= 1
        for line in decode(delivery.payload, lenient=True):
            # Peers send one level only; a stream that keeps the subject answers in JSON.
            if line.kind is Kind.LOG and {"level", "loglevel"} & set(line.tags):
                answers.append(line)
                waiting.discard((line.name, line.hostname))
        if not waiting or not unanswered:
            done.set()

    inbox = bus.new_inbox()
    await bus.subscribe(inbox, receive)
    subjects = Subjects.of(site)
    denied = _denials(bus)
    by = {REQUESTED_BY: _requester()}
    for request in requests:
        payload = encode([request], precision="ns")
        subject = subjects.of_message(request)
        await bus.publish(subject, payload, reply=inbox, headers=by)
    await bus.flush()
    deadline = monotonic() + seconds
    while not done.is_set() and (left := deadline - monotonic()) > 0:
        await wait_for_event(done, min(left, 0.1))
        if _denials(bus) > denied:
            raise DeniedError(
                f"the broker at {bus.url} does not permit this user to send control requests"
            )
    return answers


def _requester() -> str:
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # a container's user need not have a name
        user = str(os.getuid())
    return ascii(f"{user}@{socket.gethostname()}")[1:-1]  # headers must be printable ASCII


def _denials(bus: Connection) -> float:
    return bus.telemetry.bus_errors.values.get("permissions", 0)


def control_request(
    name: str, *, node: str = "", value: str | None = None, tags: Mapping[str, str] | None = None
) -> Message:
    """Build a request to a node, or to all where none is named; one with a `value` is a PUT.

    Its time is now, in nanoseconds, which cc-node-controller insists on.
    """
    method = "GET" if value is None else "PUT"
    named = {"hostname": node} if node else {}
    everything = {**named, "type": "node", **(tags or {}), "method": method}
    return Message(name, everything, value or "", time.time_ns(), "control")
