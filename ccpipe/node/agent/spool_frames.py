"""The content of the spool's files: frames, each a message with a checksum.

A damaged frame costs itself only: reading goes on at the next one.
"""

import struct
from collections.abc import Iterator, Sequence

import msgspec
import xxhash

from ccpipe.bus.nats.outgoing import Outgoing

MAGIC = b"\xffccp"
"""Begins a frame. No payload contains it, since its first byte does not occur in UTF-8."""

_HEADER = struct.Struct("<4sQII")  # MAGIC, checksum, index of the message, size of the body
_decode = msgspec.msgpack.Decoder(tuple[str, bytes, str, dict[str, str]]).decode


def encode_frames(number: int, messages: Sequence[Outgoing]) -> bytes:
    parts: list[bytes] = []
    for index, (subject, payload, id_, headers) in enumerate(messages):
        body = msgspec.msgpack.encode((subject, payload, id_, dict(headers)))
        parts += [_HEADER.pack(MAGIC, _checksum(number, index, body), index, len(body)), body]
    return b"".join(parts)


def decode_frames(number: int, content: bytes) -> Iterator[tuple[int, Outgoing]]:
    """Yield the messages whose frames are undamaged, with their indices."""
    view = memoryview(content)
    begin = content.find(MAGIC)
    while 0 <= begin <= len(content) - _HEADER.size:
        _, checksum, index, size = _HEADER.unpack_from(content, begin)
        end = begin + 1
        body = view[begin + _HEADER.size :][:size]
        if len(body) == size and _checksum(number, index, body) == checksum:
            try:
                message = Outgoing(*_decode(body))
            except (msgspec.DecodeError, UnicodeDecodeError):
                pass
            else:
                yield index, message
                end = begin + _HEADER.size + size
        begin = content.find(MAGIC, end)


def _checksum(number: int, index: int, body: bytes | memoryview) -> int:
    """Return the checksum of a body at its place: a block of another file does not fit."""
    return xxhash.xxh3_64_intdigest(body, seed=(number << 32 | index) % 2**64)
