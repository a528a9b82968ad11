"""Cost of durability: JetStream compared with core NATS, 500 lines a message, in one run.

Publishing is one message in a write, as nodes do, or 20 on one subject, as a bridge does; a durable
message has an id and waits until the one before it is stored. For comparison nats-py does the same:
the same messages with the same ids by ``publish``, and read in the same columns, each acknowledged.
Rates are lines per CPU-second (user and system) of the process that publishes or reads; ratios are
durable to core in each pair of neighbouring runs. One-time work, such as creating the stream, does
not count::

    python -m benchmarks.bridges.durability
    python -m benchmarks.bridges.durability --messages 800 --rounds 5
"""

import argparse
import asyncio
import functools
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from statistics import median
from typing import Any

import msgspec
import nats

from benchmarks import servers
from benchmarks.bridges.bus import LINES, SUBJECT, callbacks, publish
from benchmarks.payloads import payload, realistic
from ccpipe.bus.codecs import Packing
from ccpipe.bus.codecs.line import LineCodec
from ccpipe.bus.nats.publisher import MESSAGE_ID, digest
from ccpipe.bus.nats.sink import NatsSink
from ccpipe.bus.nats.source import NatsSource
from ccpipe.bus.subjects import Subjects
from ccpipe.cli.recipe.pipe import rare_garbage_collection
from ccpipe.config import Bus, Site
from ccpipe.formats.lineprotocol import Lines, decode
from ccpipe.pipeline import Limits, Sink, run
from ccpipe.records import Records
from ccpipe.sinks.null import NullSink
from ccpipe.telemetry import Telemetry

WAYS = ("core", "durable")

Write = Callable[[Lines], Awaitable[None]]


class Durability(msgspec.Struct):
    """Lines per CPU-second without a stream and with one, medians of several runs."""

    what: str
    core: float
    durable: float
    ratio: float
    """Durable to core, the median over pairs of neighbouring runs."""
    lowest: float
    highest: float


def site(url: str, *, is_durable: bool) -> Site:
    """Return a site on the broker; where it is durable, sink and source make its stream."""
    return Site(cluster="bench", hostname="n", bus=Bus(servers=[url], jetstream=is_durable))


@asynccontextmanager
async def by_sink(url: str, *, is_durable: bool) -> AsyncIterator[Write]:
    """Publish as ccpipe does."""
    config = site(url, is_durable=is_durable)
    async with NatsSink(site=config, telemetry=Telemetry(), max_lines=LINES) as sink:
        yield sink.write


@asynccontextmanager
async def by_client(url: str, *, is_durable: bool) -> AsyncIterator[Write]:
    """Publish the same messages by nats-py."""
    subjects = Subjects.of(site(url, is_durable=is_durable))
    codec, packing = LineCodec(), Packing(LINES, 2**16, 2**20)
    client = await nats.connect(url)
    jetstream = client.jetstream()

    async def write(records: Lines) -> None:
        for subject, body in codec.encode(records, subjects, packing):
            if is_durable:
                headers = {MESSAGE_ID: digest(subject, body)}
                await jetstream.publish(subject, body, headers=headers)
            else:
                await client.publish(subject, body)
        if not is_durable:
            await client.flush()

    if is_durable:
        await jetstream.add_stream(name="bench", subjects=["bench.>"])
    yield write
    await client.close()


async def publishing(
    messages: int,
    *,
    is_durable: bool,
    together: int = 1,
    by: Callable[..., AbstractAsyncContextManager[Write]] = by_sink,
) -> float:
    """Publish so many messages in a write; return lines per CPU-second."""
    lines = [line.replace("cluster=fritz", "cluster=bench") for line in realistic(50_000)]
    size = LINES * together - 1
    texts = [payload(lines[n : n + size]) for n in range(0, 50_000 - size, size)]
    with servers.jetstream() as url:
        async with by(url, is_durable=is_durable) as write:
            await write(decode(b"m,cluster=bench value=0 1740000000"))
            spent = 0.0
            for number in range(messages // together):
                # The same text would be the same message, which a stream stores once.
                body = texts[number % len(texts)] + b"m,cluster=bench value=%d 1740000001" % number
                records = decode(body)
                begin = time.process_time()
                await write(records)
                spent += time.process_time() - begin
            return messages * LINES / spent


class _Counter(Sink[Any]):
    """Counts records."""

    takes = NullSink.takes

    def __init__(self) -> None:
        self.count = 0
        self.has_more = asyncio.Event()
        self.cpu_seconds = 0.0
        """Of this process, when the last of them arrived."""

    async def write(self, records: Records) -> None:
        self.count += len(records)
        self.cpu_seconds = time.process_time()
        self.has_more.set()

    async def received(self, count: int) -> None:
        """Wait until so many have arrived."""
        while self.count < count:
            self.has_more.clear()
            await asyncio.wait_for(self.has_more.wait(), 300)


async def bridging(messages: int, *, is_durable: bool) -> float:
    """Run a bridge into nothing while another process publishes; return lines per CPU-second."""
    with servers.jetstream() as url:
        telemetry, stop = Telemetry(), asyncio.Event()
        config = site(url, is_durable=is_durable)
        source = NatsSource(
            site=config,
            telemetry=telemetry,
            subjects=[SUBJECT],
            durable="bench" if is_durable else "",
        )
        sink = _Counter()
        limits = Limits(max_wait=1.0)
        pipe = asyncio.create_task(run(source, sink, limits=limits, telemetry=telemetry, stop=stop))
        while not telemetry.ready:  # it is a plain flag
            if pipe.done():
                await pipe  # to raise what ended it
            await asyncio.sleep(0.01)
        async with by_sink(url, is_durable=is_durable) as write:
            await write(decode(b"m,cluster=bench value=0 1740000000"))
        await sink.received(1)  # stream and consumer are there
        begin = time.process_time()
        sender = asyncio.create_task(publish(url, messages))
        await sink.received(1 + messages * LINES)
        spent = sink.cpu_seconds - begin
        await sender
        stop.set()
        await pipe
        return messages * LINES / spent


async def reading(messages: int, *, is_durable: bool) -> float:
    """Read by nats-py while another process publishes; return lines per CPU-second."""
    with servers.jetstream() as url:
        if not is_durable:
            return await callbacks(url, messages, lambda body: len(decode(body)))
        client = await nats.connect(url)
        jetstream = client.jetstream()
        await jetstream.add_stream(name="bench", subjects=["bench.>"])
        subscription = await jetstream.pull_subscribe(SUBJECT, "bench")
        begin = time.process_time()
        sender = asyncio.create_task(publish(url, messages))
        count = 0
        while count < messages * LINES:
            for message in await subscription.fetch(100, timeout=60):
                count += len(decode(message.data))
                await message.ack()
        spent = time.process_time() - begin
        await sender
        await client.close()
        return count / spent


def measure(messages: int, rounds: int) -> list[Durability]:
    """Measure all ways, core and durable in turn; half of the messages are published."""
    few = messages // 2
    plain = functools.partial(publishing, by=by_client)
    parts: tuple[tuple[str, Callable[..., Coroutine[None, None, float]], int], ...] = (
        ("publishing, one a write", publishing, few),
        ("nats-py, the same", plain, few),
        ("publishing, 20 a write", functools.partial(publishing, together=20), few),
        ("nats-py, the same", functools.partial(plain, together=20), few),
        ("bridging", bridging, messages),
        ("nats-py, reading", reading, messages),
    )
    return [_pairs(name, functools.partial(way, count), rounds) for name, way, count in parts]


def _pairs(name: str, work: Callable[..., Coroutine[None, None, float]], rounds: int) -> Durability:
    speeds: dict[str, list[float]] = {way: [] for way in WAYS}
    for number in range(rounds):
        for way in WAYS if number % 2 else reversed(WAYS):
            with rare_garbage_collection():  # as the commands do
                speeds[way].append(asyncio.run(work(is_durable=way == "durable")))
    core, durable = (speeds[way] for way in WAYS)
    ratios = [b / a for a, b in zip(core, durable, strict=True)]
    return Durability(name, median(core), median(durable), median(ratios), min(ratios), max(ratios))


def markdown(found: Sequence[Durability]) -> list[str]:
    """Return the table."""
    return [
        "| what | core, M lines/CPU-s | durable | durable/core | lowest to highest |",
        "|---|---:|---:|---:|---:|",
        *(
            f"| {each.what} | {each.core / 1e6:.2f} | {each.durable / 1e6:.2f} |"
            f" {each.ratio:.2f} | {each.lowest:.2f} to {each.highest:.2f} |"
            for each in found
        ),
    ]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=4000, help="read; half of them published")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    print("\n".join(markdown(measure(options.messages, options.rounds))))


if __name__ == "__main__":
    main()
