"""What durability costs: JetStream beside core NATS, 500 lines a message, in one run.

Publishing is one message in a write, as nodes do, or 20 on one subject, as a bridge does; a durable
message waits until the one before it is stored. Prints lines per CPU-second (user and system) of
ccpipe's own process, publishing and bridging, and the ratio of durable to core in each pair of
neighbouring runs: median, lowest and highest::

    python -m benchmarks.bridges.durability
    python -m benchmarks.bridges.durability --messages 400 --rounds 5
"""

import argparse
import asyncio
import functools
import time
from statistics import median

from benchmarks import servers
from benchmarks.bridges.bus import LINES, SUBJECT, publish
from benchmarks.payloads import payload, realistic
from ccpipe.bus.nats.sink import NatsSink
from ccpipe.bus.nats.source import NatsSource
from ccpipe.cli.recipe.pipe import rare_garbage_collection
from ccpipe.config import Bus, Site
from ccpipe.formats.lineprotocol import decode
from ccpipe.pipeline import Limits, Records, Sink, run
from ccpipe.sinks.null import NullSink
from ccpipe.telemetry import Telemetry

WAYS = ("core", "durable")


def site(url: str, *, is_durable: bool) -> Site:
    """Return a site on the broker; where it is durable, sink and source make its stream."""
    return Site(cluster="bench", hostname="n", bus=Bus(servers=[url], jetstream=is_durable))


async def publishing(messages: int, *, is_durable: bool, together: int = 1) -> float:
    """Publish so many messages in a write; return lines per CPU-second."""
    lines = realistic(50_000)
    size = LINES * together - 1
    texts = [payload(lines[n : n + size]) for n in range(0, 50_000 - size, size)]
    with servers.jetstream() as url:
        sink = NatsSink(site=site(url, is_durable=is_durable), telemetry=Telemetry(), lines=LINES)
        async with sink:
            spent = 0.0
            for number in range(messages // together):
                # The same text would be the same message, which a stream stores once.
                body = texts[number % len(texts)] + b"m,cluster=bench value=%d 1740000000" % number
                records = decode(body)
                begin = time.process_time()
                await sink.write(records)
                spent += time.process_time() - begin
            return messages * LINES / spent


class _Until(Sink):
    """Counts records and ends the pipe when all have come."""

    takes = NullSink.takes

    def __init__(self, expected: int, stop: asyncio.Event) -> None:
        self.expected, self.stop = expected, stop
        self.done = 0.0

    async def write(self, records: Records) -> None:
        self.expected -= len(records)
        if self.expected <= 0:
            self.done = time.process_time()
            self.stop.set()


async def bridging(messages: int, *, is_durable: bool) -> float:
    """Run a bridge into nothing while another process publishes; return lines per CPU-second."""
    with servers.jetstream() as url:
        telemetry, stop = Telemetry(), asyncio.Event()
        source = NatsSource(
            site=site(url, is_durable=is_durable),
            telemetry=telemetry,
            subjects=[SUBJECT],
            durable="bench" if is_durable else "",
        )
        sink = _Until(messages * LINES, stop)
        limits = Limits(age=1.0)
        pipe = asyncio.create_task(run(source, sink, limits=limits, telemetry=telemetry, stop=stop))
        while not telemetry.ready:  # it is a plain flag
            if pipe.done():
                await pipe  # to raise what ended it
            await asyncio.sleep(0.01)
        sender = asyncio.create_task(publish(url, messages))
        begin = time.process_time()
        await asyncio.wait_for(pipe, 300)
        await sender
        return messages * LINES / (sink.done - begin)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=4000, help="that a bridge reads")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    parts = (
        ("publishing", publishing, options.messages // 20),
        ("20 a write", functools.partial(publishing, together=20), options.messages // 20),
        ("bridging", bridging, options.messages),
    )
    for name, measure, messages in parts:
        speeds: dict[str, list[float]] = {way: [] for way in WAYS}
        for number in range(options.rounds):
            for way in WAYS if number % 2 else reversed(WAYS):
                with rare_garbage_collection():  # as the commands do
                    speed = asyncio.run(measure(messages, is_durable=way == "durable"))
                speeds[way].append(speed)
        core, durable = (speeds[way] for way in WAYS)
        ratios = [b / a for a, b in zip(core, durable, strict=True)]
        print(
            f"{name:12} core {median(core):>12,.0f}  durable {median(durable):>12,.0f} lines per "
            f"CPU-second  durable/core {median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}"
            f", {options.rounds} rounds)"
        )


if __name__ == "__main__":
    main()
