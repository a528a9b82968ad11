"""Reader of the stream that Sonar posts to its Kafka proxy, in bounded memory for any input.

Each message is a control object on its own line, followed by the number of data bytes that it
specifies; newlines are allowed before, between and after messages.

Source: Sonar's ``util/kafka-proxy/kprox.go`` and ``src/datasink/kafka.rs``.
"""

import re
from collections.abc import Callable, Iterator

import msgspec

from ccpipe.errors import DataError

MAX_CONTROL = 64 * 2**10
"""Maximum bytes of a control object."""


class KproxControl(msgspec.Struct, rename="kebab", frozen=True):
    """Header of a message."""

    topic: str
    data_size: int
    key: str = ""
    client: str = ""
    sasl_user: str = ""
    sasl_password: str = ""


class KproxTooLarge(DataError):  # noqa: N818 - a limit
    """A message or its control object exceeds a limit."""


class KproxDecoder:
    """Splits a stream that arrives in blocks into messages."""

    def __init__(self, max_size: int, check: Callable[[KproxControl], None]) -> None:
        """Limit data to `max_size` bytes; `check` is called before they are read and may raise."""
        self.max_size, self.check = max_size, check
        self.messages = 0
        self._rest = bytearray()
        self._control: KproxControl | None = None

    @property
    def buffered(self) -> int:
        """Buffered bytes of an incomplete message."""
        return len(self._rest)

    def feed(self, block: bytes) -> Iterator[bytes]:
        """Yield the data of the messages that a block completes.

        Raises KproxTooLarge if a message is too large, DataError if a control object is invalid.
        """
        self._rest += block
        while True:
            if self._control is None and not self._read_control():
                return
            assert self._control is not None
            size = self._control.data_size
            if len(self._rest) < size:
                return
            data = bytes(self._rest[:size])
            del self._rest[:size]
            self._control = None
            yield data

    def _read_control(self) -> bool:
        blank = _BLANK.match(self._rest)  # lstrip() would copy all that is buffered
        assert blank is not None
        del self._rest[: blank.end()]
        end = self._rest.find(b"\n", 0, MAX_CONTROL)
        if end < 0:
            if len(self._rest) >= MAX_CONTROL:
                raise KproxTooLarge(
                    f"control object {self.messages + 1}: more than {MAX_CONTROL} bytes"
                )
            return False
        line = bytes(self._rest[:end])
        del self._rest[: end + 1]
        self.messages += 1
        try:
            control = _CONTROL.decode(line)
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            raise DataError(f"control object {self.messages}: {error}") from None
        if control.data_size < 0:
            raise DataError(f"control object {self.messages}: data-size {control.data_size}")
        self.check(control)
        if control.data_size > self.max_size:
            raise KproxTooLarge(
                f"message {self.messages}: {control.data_size} bytes, at most {self.max_size}"
            )
        self._control = control
        return True

    def finish(self) -> None:
        """End the stream; raises DataError if it is truncated."""
        if self._control is not None or self._rest.strip(b"\r\n"):
            raise DataError(f"the stream is truncated in message {max(1, self.messages)}")


_BLANK = re.compile(rb"[\r\n]*+")
_CONTROL = msgspec.json.Decoder(KproxControl)
