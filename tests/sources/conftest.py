"""What tests of collectors share: trees of ``/proc`` that move on between two readings."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from ccpipe.formats.lineprotocol import encode
from ccpipe.message import Message, Value
from ccpipe.sources.sampler import Collector

TREES = Path(__file__).parents[1] / "data" / "proc"

Told = dict[tuple[str, str], Value]
"""Values by name and by the id that the tags ``type-id`` or ``stype-id`` give; else ``""``."""


class Root:
    """A root of the file system whose ``/proc`` shows one captured reading, then the next."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __str__(self) -> str:
        return str(self.path)

    def show(self, reading: str) -> None:
        """Let the root be a reading such as ``captured/first``."""
        self.path.unlink(missing_ok=True)
        self.path.symlink_to(TREES / reading)

    def twice(self, collector: Collector, tree: str) -> tuple[Told, Told]:
        """Read a tree's first and second reading, and check every message by the rules."""
        self.show(f"{tree}/first")
        first = told(collector.collect(1_000_000_000))
        self.show(f"{tree}/second")
        return first, told(collector.collect(2_000_000_000))


def told(messages: Iterable[Message]) -> Told:
    """Return what messages say; each of them must be clean, writable and told once."""
    values: Told = {}
    for message in messages:
        checked(message)
        key = message.name, message.tags.get("type-id", message.tags.get("stype-id", ""))
        assert key not in values
        values[key] = message.value
    return values


def checked(message: Message) -> Message:
    """Return a collector's message as the sampler completes it; it must break no rule."""
    tags = {"cluster": "c", "hostname": "h", **message.tags}
    assert set(message.tags) <= {"type", "type-id", "stype", "stype-id"}
    complete = Message(message.name, tags, message.value, message.time)
    assert complete.problems() == []
    assert encode([complete])
    return complete


@pytest.fixture
def root(tmp_path: Path) -> Root:
    """Return a root that shows nothing yet."""
    return Root(tmp_path / "root")


@pytest.fixture
def seconds(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that sets the time between two readings, which trees do not hold."""

    def between(elapsed: float) -> None:
        times = iter((1000.0, 1000.0 + elapsed))
        monkeypatch.setattr("ccpipe.sources.network.monotonic", lambda: next(times))

    return between
