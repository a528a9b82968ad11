"""A message that is to be published, and the command of the protocol that publishes it."""

import re
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple

import xxhash

from ccpipe.bus.nats.protocol.frames import write_header
from ccpipe.errors import EncodeError, RejectedError

HEADER_ROOM = 1024
"""Bytes of the server's ``max_payload`` that are left for headers."""
MESSAGE_ID = "Nats-Msg-Id"
"""Header by which the broker recognises a message that is published again."""

_BREAK = re.compile(r"[ \t\r\n]")


class Outgoing(NamedTuple):
    """A message that is to be published."""

    subject: str
    payload: bytes
    id: str
    """The same id within the broker's window for duplicates is stored once."""
    headers: Mapping[str, str] = MappingProxyType({})
    """Besides the id."""

    @classmethod
    def of(cls, subject: str, payload: bytes) -> "Outgoing":
        """Return a message whose id is a hash of what it says and where."""
        return cls(subject, payload, digest(subject, payload))

    def command(self, reply: str, limit: int) -> tuple[bytes, bytes, bytes]:
        """Return what publishes the message and has it acknowledged at `reply`, in three parts.

        Raises
        ------
        EncodeError
            if the subject or a header would end the command.
        RejectedError
            if it is larger than `limit`, the server's ``max_payload``.

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
    """Return a message id that depends on the content alone: XXH3, 128 bits in hexadecimal.

    Nothing secret rests on it: whoever may publish may write any id.
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
