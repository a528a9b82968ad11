"""A source of generated metrics: for testing sinks and recipes, and as a template.

A new source is three files: this one, ``bridges/<name>.toml`` and
``tests/sources/test_<name>.py``, and a line in pyproject's ``ccpipe.sources``.
"""

import asyncio
import time
from collections.abc import AsyncIterator

from ccpipe.errors import ConfigError
from ccpipe.formats.lineprotocol import Lines, to_lines
from ccpipe.message import metric
from ccpipe.pipeline import Batch, Source


class NullSource(Source[Lines]):
    """Yields metrics that mean nothing: ``null`` of the node ``null``, counting up.

    Parameters
    ----------
    batches
        Number of batches.
    lines
        Number of metrics in each.

    """

    gives = Lines

    # A recipe's table becomes these keyword arguments; its values are checked against their
    # annotations. Objects of the pipe are supplied by name: `site: Site`, `telemetry: Telemetry`.
    # Nothing is opened here: `ccpipe validate` constructs parts too.
    def __init__(self, *, batches: int = 1, lines: int = 1) -> None:
        # For what annotations cannot express. The pipe adds file and key path to this error.
        if batches < 0 or lines < 0:
            raise ConfigError(f"batches is {batches} and lines is {lines}: neither can be negative")
        self._batches = batches
        self._lines = lines
        self._stopped = False

    # A source with a connection opens it in `__aenter__` and closes it in `__aexit__`,
    # which the pipe calls if they exist. It raises UnavailableError if retrying may help
    # and DeniedError if not.

    async def batches(self) -> AsyncIterator[Batch[Lines]]:
        """Yield batches; the pipe ends when this ends."""
        for batch in range(self._batches):
            # A source that waits for data must also wake up when it is stopped: see
            # sampler.py. One that always has work must let the rest of the pipe run.
            await asyncio.sleep(0)
            if self._stopped:
                return
            now = time.time_ns()
            yield Batch(
                to_lines(
                    metric("null", batch * self._lines + line, time=now, tags=_TAGS)
                    for line in range(self._lines)
                ),
                # Origin of the records, for dead letters. If they can be redelivered,
                # `ack` reports that they are stored.
                origin=f"null batch {batch}",
            )

    def stop(self) -> None:
        """End after the current batch; called in the event loop's thread."""
        self._stopped = True


_TAGS = {"cluster": "null", "hostname": "null", "type": "node"}
