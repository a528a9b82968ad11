"""A source of made metrics: for trying sinks and recipes, and the one to copy for a new source.

A new source is three files: this one, ``bridges/<name>.toml`` and ``tests/sources/test_<name>.py``,
and a line in pyproject's ``ccpipe.sources``.
"""

import asyncio
import time
from collections.abc import AsyncIterator

from ccpipe.errors import ConfigError
from ccpipe.formats.lineprotocol.messages import Messages
from ccpipe.message import metric
from ccpipe.pipeline import Batch, Source


class NullSource(Source):
    """Yields metrics that mean nothing: ``null`` of the node ``null``, counting up.

    Parameters
    ----------
    batches
        How many batches there are.
    lines
        How many metrics each of them holds.

    """

    gives = Messages

    # A recipe's table becomes these keyword arguments, and their annotations are what its values
    # are checked against. What the pipe knows itself can be asked for by name: `site: Site`,
    # `telemetry: Telemetry`. Nothing is opened here: `ccpipe validate` makes parts too.
    def __init__(self, *, batches: int = 1, lines: int = 1) -> None:
        # An annotation cannot say everything. The pipe adds file and key path to this error.
        if batches < 0 or lines < 0:
            raise ConfigError(f"batches is {batches} and lines is {lines}: neither can be negative")
        self._batches = batches
        self._lines = lines
        self._stopped = False

    # A source that holds a connection opens it in `__aenter__` and closes it in `__aexit__`;
    # the pipe uses them where they are. It raises UnavailableError if trying again may help
    # and DeniedError where it will not.

    async def __aiter__(self) -> AsyncIterator[Batch]:
        """Yield batches; the source ends when this does."""
        for batch in range(self._batches):
            # A source that waits for its data must also wake up when it is stopped: see
            # sampler.py. One that has work all the time lets the rest of the pipe run.
            await asyncio.sleep(0)
            if self._stopped:
                return
            now = time.time_ns()
            yield Batch(
                [
                    metric("null", batch * self._lines + line, time=now, tags=_TAGS)
                    for line in range(self._lines)
                ],
                # Where the records came from, for whoever reads a dead letter. Where they can be
                # handed over again, `ack` says when they need not be.
                origin=f"null batch {batch}",
            )

    def stop(self) -> None:
        """End after the batch in hand. Called in the loop's own thread."""
        self._stopped = True


_TAGS = {"cluster": "null", "hostname": "null", "type": "node"}
