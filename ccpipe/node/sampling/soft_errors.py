"""Errors that cost one reading of a collector: each is counted, and logged once.

A collector that reads many things surrounds each reading with ``noted()`` and calls ``report()``
once they are done, in an attribute ``soft``, from which the sampler counts them. Only what can be
read at all makes an error one of a single reading: with nothing read, ``report`` raises it.
"""

import contextlib
import logging
from collections.abc import Iterator

from ccpipe.errors import DataError

log = logging.getLogger(__name__)

_MAX_TEXTS = 1000  # that are remembered as logged


class SoftErrors:
    """The errors so far, by their texts."""

    def __init__(self, collector: str = "") -> None:
        self._prefix = f"collector {collector}: " if collector else ""
        self._reported: set[str] = set()
        self._errors: list[Exception] = []
        self.count = 0  # number of errors, whether they were logged or not
        self.last: list[str] = []  # the errors of the last reading

    def note(self, text: str, error: BaseException | None = None) -> None:
        """Log a text that was not logged before, with the traceback of `error` if there is one."""
        self.count += 1
        if text not in self._reported and len(self._reported) < _MAX_TEXTS:
            self._reported.add(text)
            log.warning("%s%s", self._prefix, text, exc_info=error)

    @contextlib.contextmanager
    def noted(self) -> Iterator[None]:
        """Go on after an error of one reading."""
        try:
            yield
        except (OSError, DataError) as error:
            self._errors.append(error)

    def report(self, found: object) -> None:
        """Note the errors since the last call; raise the first one if nothing was found."""
        errors, self._errors = self._errors, []
        self.last = list(map(str, errors))
        if errors and not found:
            raise errors[0]
        for error in errors:
            self.note(str(error))


def new_errors(collector: object, before: int) -> int:
    """Return how many errors of single readings a collector has had beyond `before`."""
    soft = getattr(collector, "soft", None)
    return soft.count - before if isinstance(soft, SoftErrors) else 0
