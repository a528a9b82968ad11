"""The floor of the broker: what nats-server spends on messages of its own benchmark's clients."""

import asyncio
import time
from pathlib import Path

from benchmarks.scale.programs import CLUSTER, Program, brokers, running
from benchmarks.scale.results import Run
from ccpipe.bus.nats.connection import Connection
from ccpipe.config import Bus
from ccpipe.telemetry import Telemetry

MESSAGE_BYTES = 9200
"""Size of a message of 100 lines, as ``ccpipe simulate`` publishes it."""


async def measure_floor(run: Run, directory: Path, program: str, count: int) -> None:
    """Store `count` messages in a stream and deliver them, both by `program`, the NATS CLI.

    Its publisher has up to 500 messages in flight, all on one subject and without ids for the
    detection of duplicates; its reader has no filter, and acknowledges each message.
    """
    run.messages, run.lines = count, count * run.metrics
    async with (
        brokers(1, directory) as (servers, urls),
        Connection(Bus(servers=urls), name="benchmark", telemetry=Telemetry()) as bus,
    ):
        await bus.jetstream().add_stream(name=CLUSTER, subjects=[CLUSTER])
        command = [program, "--server", urls[0], "bench", "js"]
        options = ["--stream", CLUSTER, "--msgs", str(count), "--no-progress"]
        publish = [*command, "pub", "async", CLUSTER, "--size", str(MESSAGE_BYTES), *options]
        before, begin = servers[0].cpu(), time.monotonic()
        for name, arguments in (("publish", publish), ("fetch", [*command, "fetch", *options])):
            async with running(name, arguments, directory) as client:
                await _end(client)
        run.seconds = time.monotonic() - begin
        run.cpu = {"broker": servers[0].cpu() - before}
        run.memory = {"broker": servers[0].peak()}


async def _end(client: Program) -> None:
    """Wait until a program has ended; raises SystemExit with its output if it failed."""
    if await asyncio.wait_for(client.process.wait(), 300):
        client.require_running()
