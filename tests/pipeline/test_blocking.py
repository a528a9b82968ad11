"""Calls that may block without end."""

import asyncio
import subprocess
import sys

import pytest

from ccpipe.pipeline.blocking import call_blocking


async def test_it_returns_or_raises_as_the_function_does() -> None:
    """The loop goes on meanwhile."""
    assert await call_blocking(lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        await call_blocking(lambda: 1 // 0)


async def test_a_cancelled_call_is_forgotten() -> None:
    """Its result, when it comes at last, harms nobody."""
    task = asyncio.create_task(call_blocking(lambda: sum(range(10**6))))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await call_blocking(lambda: 7) == 7


def test_the_process_does_not_wait_for_it() -> None:
    """A read that never ends does not keep the interpreter."""
    code = """
import asyncio, os
from ccpipe.pipeline.blocking import call_blocking
async def main():
    reading, writing = os.pipe()
    try:
        async with asyncio.timeout(0.1):
            await call_blocking(lambda: os.read(reading, 1))
    except TimeoutError:
        print("timed out")
asyncio.run(main())
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert (done.stdout, done.stderr) == ("timed out\n", "")
