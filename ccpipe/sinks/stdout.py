"""Standard output: to look at what passes, and to feed the next program of a shell pipe."""

import asyncio
import sys
from collections.abc import Sequence
from typing import Literal

from ccpipe.errors import UnavailableError
from ccpipe.formats import jsonlines, lineprotocol
from ccpipe.formats.lineprotocol import Precision
from ccpipe.formats.lineprotocol.messages import Messages
from ccpipe.message import Message
from ccpipe.pipeline import Limits, Sink


class StdoutSink(Sink):
    """Writes records as lines to standard output."""

    takes = Messages

    limits = Limits(age=0.1)  # someone is looking on

    def __init__(
        self,
        *,
        format: Literal["line", "json"] = "line",  # noqa: A002 - the word of the recipe
        precision: Precision | Literal["auto"] = "auto",
    ) -> None:
        """Choose a format.

        Parameters
        ----------
        format
            ``line`` for line protocol, ``json`` for one JSON object a line.
        precision
            The unit of the timestamps in line protocol; ``auto`` loses nothing.

        """
        self.format = format
        self.precision = precision

    async def write(self, records: Sequence[Message]) -> None:
        """Write and flush.

        Raises
        ------
        BrokenPipeError
            where the reader has gone away: that ends the command, and is no failure.
        UnavailableError
            where the output cannot take more now: a full disk behind ``>``.
        EncodeError
            as the format does.

        """
        if self.format == "json":
            payload = jsonlines.encode(records)
        else:
            payload = lineprotocol.encode(records, precision=self.precision)
        try:
            # A reader that is slow must not keep the loop from its other duties.
            await asyncio.to_thread(_write, payload)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise UnavailableError(f"standard output: {error.strerror}") from None


def _write(payload: bytes) -> None:
    output = sys.stdout.buffer
    rest = memoryview(payload)
    while rest:
        rest = rest[output.write(rest) :]  # all at once, unless PYTHONUNBUFFERED is set
    output.flush()
