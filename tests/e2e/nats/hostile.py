"""Publishes bytes that no client library would, over a plain socket, as any node may."""

import asyncio
import json
from collections.abc import Iterable
from typing import NamedTuple
from urllib.parse import urlsplit


class Hostile(NamedTuple):
    """A message that breaks a rule, or that only looks as if it did."""

    name: str
    subject: bytes
    """What follows the cluster's name."""
    header: bytes
    flaw: str
    """Why it becomes a dead letter; empty where its payload is good and is stored."""


GOOD_HEADER = b"NATS/1.0\r\nA: b\r\n\r\n"
MESSAGES = [
    Hostile("subject", b"events.\xff", b"", "the subject is not valid UTF-8"),
    Hostile("subject and header", b"events.\xc3(", GOOD_HEADER, "the subject is not valid UTF-8"),
    Hostile("three bytes", b"metrics", b"abc", "the header is not a NATS header"),
    Hostile("another protocol", b"metrics", b"HTTP/1.1\r\n\r\n", "the header is not a NATS header"),
    Hostile("open header", b"metrics", b"NATS/1.0\r\nA: b", "the header is not a NATS header"),
    Hostile("header Status", b"metrics", b"NATS/1.0\r\nStatus: 503\r\n\r\n", ""),
    Hostile("status line", b"metrics", b"NATS/1.0 409 Consumer Deleted\r\n\r\n", ""),
    Hostile("bytes in a header", b"metrics", b"NATS/1.0\r\n\xff: \xfe\r\n:\r\nx\r\n\r\n", ""),
    Hostile("white space in a subject", b"events.\x0b\x0c\x00", b"", ""),
]


async def publish(url: str, messages: Iterable[tuple[bytes, bytes, bytes, bytes]]) -> None:
    address = urlsplit(url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    await reader.readline()
    options = {
        "verbose": False,
        "headers": True,
        "user": address.username,
        "pass": address.password,
    }
    writer.write(b"CONNECT %b\r\n" % json.dumps(options).encode())
    for subject, reply, header, payload in messages:
        words = b" ".join(filter(None, [subject, reply]))
        if header:
            writer.write(b"HPUB %b %d %d\r\n" % (words, len(header), len(header + payload)))
        else:
            writer.write(b"PUB %b %d\r\n" % (words, len(payload)))
        writer.write(header + payload + b"\r\n")
    writer.write(b"PING\r\n")
    while (line := await reader.readline()) != b"PONG\r\n":
        assert line.startswith(b"INFO"), line
    writer.close()
    await writer.wait_closed()
