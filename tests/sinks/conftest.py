"""Shared by the sinks' tests: records, a source in memory, and full disks."""

import asyncio
import contextlib
import os
import resource
import ssl
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st

from ccpipe.formats.lineprotocol import Lines, to_lines
from ccpipe.message import Message, Uint, Value
from ccpipe.pipeline import Batch, DeadLetter, DeadLetterSink, Limits, Sink, Source, run
from ccpipe.telemetry import Telemetry
from tests.conftest import eventually
from tests.sinks.answers import Answers, served

SECOND = 10**9
NOON = 1740052800 * SECOND
"""2025-02-20T12:00:00Z"""

names = st.text(
    st.characters(exclude_categories=["Cs", "Cc"]) | st.sampled_from(list(",= \\\"'./%_")),
    min_size=1,
    max_size=12,
).filter(lambda text: text[-1] != "\\" and text[0] != "#")
"""Names and tags as line protocol can carry them."""

values: st.SearchStrategy[Value] = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False),
    st.integers(-(2**63), 2**63 - 1),
    st.integers(0, 2**64 - 1).map(Uint),
    st.booleans(),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
)

times = st.integers(-(2**63) + 2, 2**63 - 2)
"""Of 64 bits; the two outermost mean infinity to DuckDB."""


def messages_with(**tags: st.SearchStrategy[str]) -> st.SearchStrategy[Message]:
    others = st.dictionaries(names, names, max_size=2)
    all_tags = st.builds(lambda a, b: a | b, others, st.fixed_dictionaries({}, optional=tags))
    return st.builds(Message, names, all_tags, values, times, st.just("value") | names)


def metric(value: Value, *, time: int = NOON, **tags: str) -> Message:
    return Message(
        "cpu_load", {"cluster": "fox", "hostname": "n1", "type": "node"} | tags, value, time
    )


class Given(Source[Any]):
    """A source in memory; records acknowledgements, and calls `first` when it is read."""

    gives = Lines

    def __init__(
        self, *given: Sequence[Message], first: Callable[[], object] = lambda: None
    ) -> None:
        self.given = [
            to_lines(records) if isinstance(records, list) else records for records in given
        ]
        self.first = first
        self.acknowledged: list[int] = []

    async def batches(self) -> AsyncIterator[Batch[Any]]:
        self.first()
        for number, records in enumerate(self.given):

            async def ack(number: int = number) -> None:
                self.acknowledged.append(number)

            yield Batch(records, ack, "test")

    def stop(self) -> None:
        """Do nothing: the source ends by itself."""


class KeptDeadLetters(DeadLetterSink):
    """Dead letters in memory."""

    def __init__(self) -> None:
        self.letters: list[DeadLetter] = []

    async def write(self, letters: Sequence[DeadLetter]) -> None:
        self.letters += letters


async def carry(
    source: Given, sink: Sink[Any], telemetry: Telemetry | None = None
) -> list[DeadLetter]:
    """Run a pipe to its end; return the dead letters. All batches must be acknowledged."""
    kept, limits = KeptDeadLetters(), Limits(max_wait=0, max_backoff=0.05)
    await run(source, sink, dead_letter_sink=kept, limits=limits, telemetry=telemetry)
    assert source.acknowledged == list(range(len(source.given)))
    return kept.letters


async def carry_again(source: Given, sink: Sink[Any], repair: Callable[[], object]) -> None:
    """Run a pipe whose store fails until `repair`, called after a failed write; nothing is lost."""
    telemetry = Telemetry()

    async def repair_later() -> None:
        await eventually(lambda: telemetry.total(telemetry.retries) > 0)
        await asyncio.to_thread(repair)

    letters, _ = await asyncio.gather(carry(source, sink, telemetry), repair_later())
    assert letters == []


@contextlib.contextmanager
def forbidden(directory: Path) -> Iterator[Path]:
    """Yield a directory in which we may not write, not even when the tests run as root."""
    directory.mkdir(mode=0o500)
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    try:
        yield directory
    finally:
        os.seteuid(user)


@contextlib.contextmanager
def full_disk(size: int) -> Iterator[None]:
    """Let no file grow beyond `size` bytes: the kernel writes up to there, then fails, for real."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@contextlib.asynccontextmanager
async def serving(tls: ssl.SSLContext | None = None) -> AsyncIterator[Answers]:
    answers = Answers()
    async with served(answers.answer, tls) as answers.url:
        yield answers


@pytest.fixture
async def answers() -> AsyncIterator[Answers]:
    async with serving() as answers:
        yield answers


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    names: list[str] = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        names.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    return names
