"""Messages to ``Lines``."""

from collections.abc import Iterable

from ccpipe.errors import EncodeError
from ccpipe.formats.lineprotocol.decoder import decode
from ccpipe.formats.lineprotocol.encoder import encode
from ccpipe.formats.lineprotocol.lines import Lines
from ccpipe.message import Message


def to_lines(messages: Iterable[Message]) -> Lines:
    """Convert messages to columns; ``Lines`` are returned unchanged.

    Raises
    ------
    EncodeError
        if a message cannot be encoded as a line.

    """
    if isinstance(messages, Lines):
        return messages
    # Encoding and decoding applies every rule, and is fast.
    lines = decode(encode(messages, precision="ns"), precision="ns")
    if lines.rejected:
        raise EncodeError(str(lines.rejected[0]))
    return lines
