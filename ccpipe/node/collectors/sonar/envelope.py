"""Parts common to Sonar's two envelopes of a node: times, texts, errors and producer.

Source: Sonar JSON format output specification, *Timestamp*, *ErrorObject*, *MetadataObject*.
"""

import contextlib
from collections.abc import Iterator
from datetime import datetime

from ccpipe import __version__
from ccpipe.errors import DataError, MissingExtra
from ccpipe.formats.sonar import Envelope, ErrorObject, MetadataObject, timestamp

META = MetadataObject(producer="ccpipe", version=__version__)

_MAX_ERRORS = 20  # in one envelope
_MAX_TEXT = 500  # characters of one


class Errors:
    """Errors of one reading: each text once, up to a maximum."""

    def __init__(self) -> None:
        self.texts: dict[str, None] = {}
        self._more = 0

    def note(self, error: BaseException | str) -> None:
        text = str(error)[:_MAX_TEXT] or type(error).__name__
        if text not in self.texts and len(self.texts) >= _MAX_ERRORS:
            self._more += 1
        else:
            self.texts[text] = None

    @contextlib.contextmanager
    def noted(self) -> Iterator[None]:
        try:
            yield
        except (OSError, DataError, MissingExtra) as error:
            self.note(error)

    def reported(self, time: int, cluster: str, node: str) -> tuple[ErrorObject, ...]:
        texts = [*self.texts, *([f"{self._more} more errors"] if self._more else ())]
        return tuple(
            ErrorObject(time=local(time), detail=readable(text), cluster=cluster, node=node)
            for text in texts
        )

    def envelope(self, time: int, cluster: str, node: str) -> Envelope:
        return Envelope(meta=META, errors=self.reported(time, cluster, node))


def local(nanoseconds: int) -> str:
    """Format a time as specified: local time with offset, whole seconds."""
    at = datetime.fromtimestamp(nanoseconds // 10**9).astimezone()
    return timestamp.write(nanoseconds, at.tzinfo) if at.tzinfo else timestamp.write(nanoseconds)


def readable(text: str) -> str:
    """Return a text for JSON: invalid UTF-8 becomes question marks."""
    return text.encode(errors="replace").decode()
