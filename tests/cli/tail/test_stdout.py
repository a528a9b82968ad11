"""Standard output whose reader is slow, stopped or gone."""

import asyncio
import os
import signal
import subprocess

import nats
import pytest

from ccpipe.bus.nats.server import NatsServer
from ccpipe.cli.tail import stdout as module
from ccpipe.cli.tail.stdout import Stdout
from tests.cli.command import ccpipe, command, environment
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


async def test_tail_into_a_stopped_reader_obeys_signals(nats_server: NatsServer) -> None:
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


@pytest.mark.parametrize("descriptor", ["full", "closed"])
def test_tail_says_why_it_cannot_write(nats_server: NatsServer, descriptor: str) -> None:
    """A full disk, or no standard output at all: one line and exit code 74."""
    words = ("--raw", "--count", "1", "--all", "--for", "300s", "--server", nats_server.url)
    redirect = ">/dev/full" if descriptor == "full" else ">&-"
    payload = "m,hostname=n,type=node value=1 1740000000\n"
    sent = ccpipe("send", "-", "--server", nats_server.url, stdin=payload.encode())
    assert sent.code == 0, sent.err
    shell = f'exec "$@" {redirect}'
    done = subprocess.run(
        ["sh", "-c", shell, "sh", *command("tail", *words)],
        stderr=subprocess.PIPE,
        env=environment(),
        timeout=500,
        check=False,
    )
    assert done.returncode == 74, done.stderr
    last = done.stderr.decode().splitlines()[-1]
    assert last.startswith("ccpipe: standard output: ")
    assert b"Traceback" not in done.stderr
