"""Messages of 500 lines through a real nats-server into columns, without a bridge."""

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import nats
from line_protocol_parser import parse_line
from nats.aio.msg import Msg

from benchmarks.bridges import metric_store
from benchmarks.servers import broker
from benchmarks.timing import Result
from ccpipe.formats.lineprotocol import decode

LINES = 500  # in one message
SUBJECT = "bench.metrics"

_PUBLISHER = """
import asyncio, sys
import nats
from benchmarks.payloads import payload, realistic

async def main(url, subject, count):
    lines = realistic(50_000)
    bodies = [payload(lines[n:n + 500]) for n in range(0, len(lines), 500)]
    connection = await nats.connect(url)
    for number in range(count):
        await connection.publish(subject, bodies[number % len(bodies)])
        if number % 50 == 49:
            await connection.flush(60)
    await connection.drain()

asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
"""


async def publish(url: str, count: int) -> None:
    """Send `count` messages from a process of its own."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _PUBLISHER, url, SUBJECT, str(count)
    )
    assert await process.wait() == 0


async def callbacks(url: str, count: int, take: Callable[[bytes], int]) -> float:
    """Receive by nats-py's callback; return lines per CPU-second."""
    lines = messages = 0
    done = asyncio.Event()

    async def receive(message: Msg) -> None:
        nonlocal lines, messages
        lines += take(message.data)
        messages += 1
        if messages == count:
            done.set()

    connection = await nats.connect(url)
    await connection.subscribe(
        SUBJECT, cb=receive, pending_msgs_limit=10**7, pending_bytes_limit=2**31
    )
    await connection.flush()
    sender = asyncio.create_task(publish(url, count))
    begin = time.process_time()
    await asyncio.wait_for(done.wait(), 120)
    spent = time.process_time() - begin
    await sender
    await connection.close()
    assert lines == count * LINES, f"{lines} of {count * LINES} lines arrived"
    return lines / spent


def naive(body: bytes) -> int:
    """Parse line by line and write each again, like a bridge of a few lines."""
    count = 0
    for line in body.decode().splitlines():
        parsed = parse_line(line)
        tags = "".join(f",{key}={value}" for key, value in parsed["tags"].items())
        fields = ",".join(f"{key}={value}" for key, value in parsed["fields"].items())
        count += len(f"{parsed['measurement']}{tags} {fields} {parsed['time']}\n") > 0
    return count


def joined(size: int) -> Callable[[bytes], int]:
    """Return a taker that decodes a mebibyte at a time, as a bridge joins messages."""
    waiting: list[bytes] = []
    messages = 0

    def take(body: bytes) -> int:
        nonlocal messages
        waiting.append(body)
        messages += 1
        if len(waiting) < 2**20 // len(body) and messages < size:
            return 0
        lines = decode(b"".join(waiting))
        waiting.clear()
        return len(lines)

    return take


def ways(store: Path | None, *, quick: bool) -> list[Result]:
    """Measure all ways from the bus into memory, cc-metric-store's where its program is given."""
    results = asyncio.run(end_to_end(quick=quick))
    return [*results, metric_store.into_memory(store, quick=quick)] if store else results


async def end_to_end(*, quick: bool = False) -> list[Result]:
    """Measure all ways from the bus to columns."""
    few, many = (20, 200) if quick else (200, 1500)
    rounds = 1 if quick else 3
    with broker() as url:
        ways: dict[str, Callable[[], Awaitable[float]]] = {
            "naive: nats-py, line_protocol_parser, re-serialised": lambda: callbacks(
                url, few, naive
            ),
            "nats-py callback → ccpipe columns, message by message": lambda: callbacks(
                url, many, lambda body: len(decode(body))
            ),
            "nats-py callback → ccpipe columns, joined to 1 MiB": lambda: callbacks(
                url, many, joined(many)
            ),
        }
        return [Result(name, await best(way, rounds)) for name, way in ways.items()]


async def best(way: Callable[[], Awaitable[float]], rounds: int) -> float:
    """Return the best of some rounds: the machine's other work only makes one slower."""
    return max([await way() for _ in range(rounds)])
