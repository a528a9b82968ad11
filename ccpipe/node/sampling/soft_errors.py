"""Errors that cost a part of one sample: each is logged once, so that none fills the log."""

import logging

log = logging.getLogger(__name__)

_MAX_TEXTS = 1000  # that are remembered as logged


class SoftErrors:
    """The errors so far, by their texts."""

    def __init__(self) -> None:
        """Remember nothing yet."""
        self._reported: set[str] = set()

    def note(self, text: str, error: BaseException | None = None) -> None:
        """Log a text that was not logged before, with the traceback of `error` if there is one."""
        if text not in self._reported and len(self._reported) < _MAX_TEXTS:
            self._reported.add(text)
            log.warning("%s", text, exc_info=error)
