"""A message to be published, and the protocol command that publishes it."""

import re
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple

import xxhash

from ccpipe.bus.nats.protocol.frames import write_header
from ccpipe.errors import EncodeError, RejectedError

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
        """Return the publish command with reply subject `reply`, in three parts.

        Raises EncodeError if the subject or a header contains a line end, and RejectedError if it
        is larger than `limit`, the server's ``max_payload``.
        """
        for name, value in self.headers.items():
            _check_header(name, value)
        header = write_header({**self.headers, MESSAGE_ID: self.id})
        size = len(header) + len(self.payload)
        if size > limit:
            raise RejectedError(f"a message of {size} bytes: the server's max_payload is {limit}")
        line = f"HPUB {_checked(self.subject)} {reply} {len(header)} {size}\r\n".encode()
        return line + header, self.payload, b"\r\n"


def digest(*parts: str | bytes) -> str:
    """Return a message id derived from the content alone: XXH3, 128 bits in hexadecimal.

    It need not be cryptographic: whoever may publish may choose any id.
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
