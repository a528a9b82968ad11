# ruff: noqa: INP001 - a program, no module
"""A fuzz target for atheris: files of the spool, however damaged.

``python fuzz/spool.py -max_total_time=60`` looks for bytes that raise, that are read as a message
which is not in them, or that keep a later message from being read.
"""

import sys

import atheris

with atheris.instrument_imports(include=["ccpipe.node.agent.spool"]):
    from ccpipe.node.agent import spool
    from ccpipe.node.agent.spool import decode_frames, encode_frames

from ccpipe.bus.nats.publisher import Outgoing

LAST = Outgoing.of("fox.metrics", b"m,hostname=n1 value=4711234")


def framed(number: int, body: bytes) -> bytes:
    """Return a frame with a right checksum around any bytes."""
    header = spool._HEADER  # noqa: SLF001
    checksum = spool._checksum(number, 0, body)  # noqa: SLF001
    return header.pack(spool.MAGIC, checksum, 0, len(body)) + body


def check(data: bytes) -> None:
    """Read a file that ends with a good message; the first byte is the file's number."""
    number, content = (data[0] if data else 0), data[1:]
    good = encode_frames(number, [LAST])
    found = list(decode_frames(number, content + good))
    assert found[-1] == (0, LAST)
    for index, message in found:
        before = len(encode_frames(number, [message] * index))
        assert encode_frames(number, [message] * (index + 1))[before:] in content + good
    assert list(decode_frames(number, framed(number, content) + good))[-1] == (0, LAST)


if __name__ == "__main__":
    atheris.Setup(sys.argv, check)
    atheris.Fuzz()
