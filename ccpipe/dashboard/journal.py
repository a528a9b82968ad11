"""The latest events and log messages."""

from collections import deque

import msgspec

from ccpipe.message import Kind, Message

MAX_ENTRIES = 1000
MAX_TEXT = 2000
"""Maximum length of a stored text."""
MAX_NAME = 255


class Entry(msgspec.Struct):
    """One event or log message."""

    number: int
    """Counts from 1: a page requests the entries after its last one."""
    time: float
    kind: str
    cluster: str
    hostname: str
    name: str
    """Class of the event or component of the log."""
    label: str
    """Function of the event or level of the log."""
    text: str


class Journal:
    """A bounded list of entries."""

    def __init__(self, maximum: int = MAX_ENTRIES) -> None:
        """Start empty."""
        self.entries: deque[Entry] = deque(maxlen=maximum)
        self.count = 0

    def feed(self, message: Message, now: float) -> None:
        """Store an event or a log message; other kinds are ignored."""
        if message.kind not in (Kind.EVENT, Kind.LOG):
            return
        tags = message.tags
        label = tags.get("function" if message.kind is Kind.EVENT else "loglevel", "")
        self.count += 1
        self.entries.append(
            Entry(
                number=self.count,
                time=now if message.time is None else message.time / 1e9,
                kind=str(message.kind),
                cluster=tags.get("cluster", "")[:MAX_NAME],
                hostname=message.hostname[:MAX_NAME],
                name=message.name[:MAX_NAME],
                label=(label or tags.get("level", ""))[:MAX_NAME],
                text=str(message.value)[:MAX_TEXT],
            )
        )

    def after(self, number: int, maximum: int = MAX_ENTRIES) -> list[Entry]:
        """Return the latest entries whose number is greater, oldest first."""
        fresh = min(self.count - number, maximum, len(self.entries))
        return list(self.entries)[-fresh:] if fresh > 0 else []
