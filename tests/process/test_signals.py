"""Signals that end a pipe, sent for real: to this process, or to a child."""

import asyncio
import os
import signal
import subprocess
import sys
import time

import pytest

from ccpipe.process.signals import stop_signals

STUBBORN = """
import asyncio
from ccpipe.process import signals

signals.SAME_SECONDS = 60  # however slowly two of them arrive
async def main():
    async with signals.stop_signals() as stop:
        print("ready", flush=True)
        await stop.wait()
        print("stopping", flush=True)
        await asyncio.sleep(30)

asyncio.run(main())
"""  # does not end on SIGTERM


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_signal_sets_event(number: signal.Signals) -> None:
    """The process goes on, so that the pipe can write its remaining records."""
    async with stop_signals() as stop:
        assert not stop.is_set()
        os.kill(os.getpid(), number)
        await asyncio.wait_for(stop.wait(), 60)


async def test_event_is_set_after_given_time() -> None:
    start = time.monotonic()
    async with stop_signals(after=0.2) as stop:
        await asyncio.wait_for(stop.wait(), 60)
    assert time.monotonic() - start >= 0.2


async def test_signal_handlers_are_restored() -> None:
    async with stop_signals(after=0.1) as stop:
        pass
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    await asyncio.sleep(0.2)
    assert not stop.is_set()


FAILING = """
import asyncio
from ccpipe.process.background import background
from ccpipe.process.signals import stop_signals

async def fail():
    raise KeyError("unexpected")

async def main():
    async with stop_signals() as stop:
        background(fail(), "ccpipe-test")
        await stop.wait()
        print("flushed", flush=True)

asyncio.run(main())
"""


def test_process_exits_with_error_if_background_task_fails() -> None:
    """The pipe writes its remaining records, as after a signal."""
    done = subprocess.run(
        [sys.executable, "-c", FAILING], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stdout) == (1, "flushed\n")
    assert "ccpipe-test failed: KeyError: 'unexpected'" in done.stderr


@pytest.mark.parametrize(
    ("first", "second", "ends"),
    [
        (signal.SIGTERM, signal.SIGINT, True),
        (signal.SIGTERM, signal.SIGTERM, False),
        (signal.SIGINT, signal.SIGINT, False),
    ],
)
def test_second_sigint_kills(first: int, second: int, *, ends: bool) -> None:
    """A user can press Ctrl-C twice; a service manager sends SIGKILL itself.

    A signal received twice for one Ctrl-C counts once: the terminal sends it to every process, and
    our parent may forward it as well.
    """
    command = [sys.executable, "-c", STUBBORN]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == "ready\n"
            child.send_signal(first)
            assert child.stdout.readline() == "stopping\n"
            child.send_signal(second)
            if ends:
                assert child.wait(60) != 0
            else:
                with pytest.raises(subprocess.TimeoutExpired):
                    child.wait(0.5)
        finally:
            child.kill()
