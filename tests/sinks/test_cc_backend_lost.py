"""What cc-backend lost is sent again: beside a stand-in that breaks connections and forgets."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ccpipe.config import Duration
from ccpipe.errors import ConfigError, RejectedError, UnavailableError
from ccpipe.formats.lineprotocol import to_lines
from ccpipe.jobs import Job, JobNode, message
from ccpipe.message import Message, event
from ccpipe.pipeline import Limits, run
from ccpipe.sinks import cc_backend
from ccpipe.sinks.cc_backend import CcBackendSink
from tests.conftest import eventually
from tests.sinks.answers import served
from tests.sinks.conftest import SECOND, Given, KeptLetters, carry
from tests.sinks.stand_in_cc_backend import Key, StandIn, StandInNats

BASE = 1_795_170_000


def job(number: int, cluster: str = "fox") -> Job:
    start = BASE + number
    return Job(
        cluster=cluster, id=number, user="ann", state="completed", nodes=(JobNode("n1"),),
        start=start * SECOND, end=(start + number % 50) * SECOND,
    )  # fmt: skip


def key(number: int) -> Key:
    return "fox", number, BASE + number


def started(*numbers: int) -> list[Message]:
    return [message("start_job", job(number)) for number in numbers]


def stopped(*numbers: int) -> list[Message]:
    return [message("stop_job", job(number)) for number in numbers]


@pytest.fixture
async def backend() -> AsyncIterator[tuple[StandIn, str]]:
    backend = StandIn()
    async with served(backend.answer) as url:
        yield backend, url


def sink_of(backend: tuple[StandIn, str], way: str, state: Path | str = "") -> CcBackendSink:
    there, url = backend
    there.nats_api = way == "nats"
    publish = StandInNats(there) if way == "nats" else None
    return CcBackendSink(url=url, publish=publish, state=str(state))


ways = pytest.mark.parametrize("way", ["rest", "nats"])


@ways
async def test_every_job_starts_once_and_ends_once_while_connections_break(
    backend: tuple[StandIn, str], way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether or not the request took effect before; a stop may follow its start at once."""
    monkeypatch.setattr(cc_backend, "CONFIRM_SECONDS", 0.3)
    there, _ = backend
    sink = sink_of(backend, way)
    there.breaks = 0.05
    batches = []
    for first in range(0, 200, 10):
        numbers = range(first, first + 10)
        batches += [started(*numbers[:5]), stopped(*numbers[:5])]
        batches.append([one for n in numbers[5:] for one in (*started(n), *stopped(n))])
    letters = KeptLetters()
    limits = Limits(lines=10, age=0, backoff=0.05)
    await run(Given(*batches), sink, dead_letter_sink=letters, limits=limits)
    assert letters.letters == []
    assert there.starts == {key(number): 1 for number in range(200)}
    assert there.ends == {key(n): BASE + n + n % 50 for n in range(200)}


@ways
async def test_differences_are_sent_again_at_start(
    backend: tuple[StandIn, str], way: str, tmp_path: Path
) -> None:
    """A job that it lost is started, and one that it shows as running is stopped."""
    there, _ = backend
    sink = sink_of(backend, way, tmp_path / "state")
    assert await carry(Given(started(1, 2, 3, 4), stopped(2, 3)), sink) == []
    del there.jobs[key(1)]
    there.jobs[key(2)] = "running"
    there.jobs["fox", 99, BASE] = "running"  # of another program
    assert await carry(Given(started(5)), sink_of(backend, way, tmp_path / "state")) == []
    assert there.running() == {key(1), key(4), key(5), ("fox", 99, BASE)}
    assert there.jobs[key(2)] == "completed"


@ways
async def test_differences_are_sent_again_after_it_was_down(
    backend: tuple[StandIn, str], way: str
) -> None:
    """Without a state file too, and before the records that were waiting."""
    there, _ = backend
    async with sink_of(backend, way) as sink:
        await sink.write(to_lines(started(1, 2)))
        del there.jobs[key(1)]
        await sink.write(to_lines(started(3)))
        assert key(1) not in there.jobs  # not compared yet
        there.is_down = True
        with pytest.raises(UnavailableError):
            await sink.write(to_lines(stopped(3)))
        there.is_down = False
        await sink.write(to_lines(stopped(3)))
    assert there.running() == {key(1), key(2)}


@ways
async def test_differences_are_sent_again_at_intervals(
    backend: tuple[StandIn, str], way: str
) -> None:
    """With the next write."""
    there, url = backend
    there.nats_api = way == "nats"
    publish = StandInNats(there) if way == "nats" else None
    async with CcBackendSink(url=url, publish=publish, compare=Duration(0.01)) as sink:
        await sink.write(to_lines(started(1)))
        there.jobs.clear()
        await asyncio.sleep(0.02)
        await sink.write(to_lines([]))
    assert there.running() == {key(1)}


@ways
async def test_running_jobs_of_several_pages_are_not_started_again(
    backend: tuple[StandIn, str], way: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """All pages are read, also where the last one is full."""
    monkeypatch.setattr(cc_backend, "PAGE_JOBS", 5)
    there, _ = backend
    for numbers in (range(10), range(10, 12)):
        assert await carry(Given(started(*numbers)), sink_of(backend, way, tmp_path / "s")) == []
    assert set(there.starts.values()) == {1}


async def test_a_stop_finds_the_start_that_was_lost(backend: tuple[StandIn, str]) -> None:
    """The start is sent again, and then the stop; an unknown job's stop is a dead letter."""
    there, _ = backend
    async with sink_of(backend, "rest") as sink:
        await sink.write(to_lines(started(1)))
        there.jobs.clear()
        await sink.write(to_lines(stopped(1)))
        assert there.jobs == {key(1): "completed"}
        with pytest.raises(RejectedError, match="finding job failed") as caught:
            await sink.write(to_lines([*stopped(1), *stopped(7)]))
        assert caught.value.indices == [1]


async def test_what_its_nats_api_refuses_is_a_dead_letter(
    backend: tuple[StandIn, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says nothing; but it shows others that were published together, or nothing for long."""
    monkeypatch.setattr(cc_backend, "CONFIRM_SECONDS", 0.3)
    monkeypatch.setattr(cc_backend, "MAX_TRIES", 3)
    there, _ = backend
    wrong = message("start_job", job(2, "unknown"))
    batches = [[*started(1), wrong, *started(3)], [wrong], [*stopped(1, 8), *started(4)]]
    letters = await carry(Given(*batches), sink_of(backend, "nats"))
    functions = [one.original.partition(b"function=")[2].partition(b"_")[0] for one in letters]
    assert functions == [b"start", b"start", b"stop"]
    assert there.running() == {key(3), key(4)}


async def test_a_disabled_route_is_a_configuration_error(backend: tuple[StandIn, str]) -> None:
    """As its NATS API disables jobs over REST, retrying is pointless; at start and later."""
    there, _ = backend
    async with sink_of(backend, "rest") as sink:
        there.nats_api = True
        with pytest.raises(ConfigError, match="api-subjects"):
            await sink.write(to_lines(started(1)))
    with pytest.raises(ConfigError, match="api-subjects"):
        await sink.check()


def test_compression_is_a_configuration_error() -> None:
    """cc-backend would refuse every request, and each job would become a dead letter."""
    with pytest.raises(ConfigError, match="gzip"):
        CcBackendSink(gzip=True)


@ways
async def test_the_latest_state_of_each_node_is_posted(
    backend: tuple[StandIn, str], way: str
) -> None:
    """With all its numbers, also where jobs travel over NATS."""
    there, _ = backend

    def states(**nodes: int) -> Message:
        rows = [{"hostname": n, "states": ["mixed"], "cpusAllocated": v} for n, v in nodes.items()]
        payload = json.dumps({"cluster": "fox", "nodes": rows})
        return event("nodestate", "nodestate", payload, time=0, tags={})

    async with sink_of(backend, way) as sink:
        await sink.write(to_lines([states(n1=1, n2=2), *started(1), states(n1=3)]))
    assert {name: node["cpusAllocated"] for name, node in there.nodes.items()} == {"n1": 3, "n2": 2}
    assert there.nodes["n1"]["states"] == ["mixed"]
    await eventually(lambda: there.running() == {key(1)})
