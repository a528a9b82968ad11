"""What Sonar's two envelopes of a node share: times, texts, errors and who made them.

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
    """What went wrong in one reading: each text once, and not without end."""

    def __init__(self) -> None:
        """Start without any."""
        self.texts: dict[str, None] = {}
        self._more = 0

    def note(self, error: BaseException | str) -> None:
        """Keep an error for the envelope."""
        text = str(error)[:_MAX_TEXT] or type(error).__name__
        if text not in self.texts and len(self.texts) >= _MAX_ERRORS:
            self._more += 1
        else:
            self.texts[text] = None

    @contextlib.contextmanager
    def noted(self) -> Iterator[None]:
        """Note what goes wrong inside, and go on."""
        try:
            yield
        except (OSError, DataError, MissingExtra) as error:
            self.note(error)

    def reported(self, time: int, cluster: str, node: str) -> tuple[ErrorObject, ...]:
        """Return the errors as a Sonar envelope has them."""
        texts = [*self.texts, *([f"{self._more} more errors"] if self._more else ())]
        return tuple(
            ErrorObject(time=local(time), detail=readable(text), cluster=cluster, node=node)
            for text in texts
        )

    def envelope(self, time: int, cluster: str, node: str) -> Envelope:
        """Return the errors as an envelope without data: it could not be made, or has no place."""
        return Envelope(meta=META, errors=self.reported(time, cluster, node))


def local(nanoseconds: int) -> str:
    """Return a time as the specification has it: this node's time and offset, whole seconds."""
    at = datetime.fromtimestamp(nanoseconds // 10**9).astimezone()
    return timestamp.write(nanoseconds, at.tzinfo) if at.tzinfo else timestamp.write(nanoseconds)


def readable(text: str) -> str:
    """Return a text as JSON can carry it: bytes that are no UTF-8 become question marks."""
    return text.encode(errors="replace").decode()
