"""Standard output whose reader is slow, stopped or gone."""

import asyncio
import os
import signal
import subprocess

import nats
import pytest

from ccpipe.bus.nats.server import Server
from ccpipe.cli.tail import stdout as module
from ccpipe.cli.tail.stdout import Stdout
from tests.cli.command import command, environment
from tests.conftest import eventually


async def test_what_is_written_arrives_in_order() -> None:
    """``drain`` returns when the reader has everything."""
    reading, writing = os.pipe()
    output = Stdout(writing)
    for number in range(100):
        output.write(b"%d\n" % number)
    await output.drain(asyncio.Event())
    assert os.read(reading, 10_000) == b"".join(b"%d\n" % number for number in range(100))
    os.close(reading)
    os.close(writing)


async def test_a_stopped_reader_costs_lines_not_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the bound lines are dropped and counted; told to end, nobody waits for it."""
    monkeypatch.setattr(module, "MAX_BYTES", 100_000)
    reading, writing = os.pipe()
    output = Stdout(writing)
    for _ in range(3000):
        output.write(b"x" * 99 + b"\n")
    assert output.dropped > 1000
    stop = asyncio.Event()
    stop.set()
    await asyncio.wait_for(output.drain(stop), 60)
    os.close(reading)  # its thread ends by the error
    with pytest.raises(BrokenPipeError):
        await output.drain(asyncio.Event())
    with pytest.raises(BrokenPipeError):
        output.write(b"more\n")
    os.close(writing)


async def test_tail_into_a_stopped_reader_obeys_signals(nats_server: Server) -> None:
    """The pipe is full and nobody reads: SIGTERM ends it all the same."""
    process = subprocess.Popen(
        command("tail", "--raw", "--server", nats_server.url),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    )
    client = await nats.connect(nats_server.url)
    payload = b"m,cluster=c,hostname=n1,type=node value=1 1740000000\n" * 1000

    def is_full() -> bool:
        assert process.stdout is not None
        reader = process.stdout.fileno()
        import fcntl
        import termios

        held = bytearray(4)
        fcntl.ioctl(reader, termios.FIONREAD, held)
        return int.from_bytes(held, "little") >= 60_000

    for _ in range(3000):
        await client.publish("c.metrics", payload)
        await client.flush()
        if is_full():
            break
        await asyncio.sleep(0.02)
    await eventually(is_full, 60)
    await client.close()
    process.send_signal(signal.SIGTERM)
    assert await asyncio.to_thread(process.wait, 60) == 0
    for stream in (process.stdout, process.stderr):
        assert stream is not None
        stream.close()
