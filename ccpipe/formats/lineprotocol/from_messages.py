"""Messages to ``Lines``."""

from collections.abc import Iterable, Sequence

from ccpipe.errors import EncodeError
from ccpipe.formats.lineprotocol.decoder import decode
from ccpipe.formats.lineprotocol.encoder import encode
from ccpipe.formats.lineprotocol.lines import Lines, RejectedLine
from ccpipe.formats.lineprotocol.writer import original
from ccpipe.message import Message


def to_lines(messages: Iterable[Message], rejected: Sequence[RejectedLine] = ()) -> Lines:
    """Convert messages to columns; ``Lines`` are returned unchanged.

    Messages that line protocol cannot carry are among ``rejected``, after those that are given:
    what could not be read of the same input.
    """
    if isinstance(messages, Lines):
        return messages
    messages, bad = list(messages), list(rejected)
    # The kernel's encoder and decoder apply every rule, at several million messages per second;
    # columns appended one by one would take ten times as long.
    try:
        encoded = encode(messages, precision="ns")
    except EncodeError:
        good = []
        for message in messages:
            try:
                good.append(encode([message], precision="ns"))
            except EncodeError as error:
                bad.append(RejectedLine(0, 0, 0, str(error), original(message)))
        encoded = b"".join(good)
    lines = decode(encoded, precision="ns")
    lines.rejected[:0] = bad
    return lines
