"""Standard output: for inspecting records, and for shell pipes."""

import functools
import math
import os
import sys
from typing import Literal

from ccpipe.errors import OutputError, UnavailableError
from ccpipe.formats import lineprotocol, rows
from ccpipe.formats.lineprotocol import Lines, Precision
from ccpipe.pipeline import Limits, Sink
from ccpipe.process.background import call_blocking
from ccpipe.terminal import data_for_stdout


class StdoutSink(Sink[Lines]):
    """Writes records as lines to standard output."""

    takes = Lines

    limits = Limits(max_wait=0.1, write_timeout=math.inf)  # a user may have suspended the reader

    def __init__(
        self,
        *,
        format: Literal["line", "json"] = "line",  # noqa: A002 - the key in recipes
        precision: Precision | Literal["auto"] = "auto",
    ) -> None:
        """Choose a format.

        Parameters
        ----------
        format
            ``line`` for line protocol, ``json`` for one JSON object a line.
        precision
            The unit of the timestamps in line protocol; ``auto`` is lossless.

        """
        self.format = format
        self.precision = precision

    async def write(self, records: Lines) -> None:
        if self.format == "json":
            payload = rows.encode_json(records)
        else:
            payload = lineprotocol.encode(records, precision=self.precision)
        try:
            # A slow reader must not block the event loop, nor a stopped one the exit.
            await call_blocking(functools.partial(_write, data_for_stdout(payload)))
        except BrokenPipeError:
            raise
        except OutputError as error:
            raise UnavailableError(str(error)) from None
        except OSError as error:
            raise UnavailableError(f"standard output: {error.strerror}") from None


def _write(payload: bytes) -> None:
    """Write without Python's buffer, whose lock a waiting thread would keep at exit."""
    descriptor = sys.stdout.fileno()
    rest = memoryview(payload)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
