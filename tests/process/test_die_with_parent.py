"""A program that ends when its parent dies, without code between fork and exec."""

import asyncio
import subprocess
import sys

from ccpipe.process import child
from tests.processes import wait_until_ended

STARTS = """
import asyncio, os, sys
from ccpipe.process import child

async def main():
    process = await child.start(["sleep", "600"])
    print(process.pid, flush=True)
    os.kill(os.getpid(), 9)

asyncio.run(main())
"""


def test_it_ends_with_its_parent() -> None:
    for _ in range(3):
        done = subprocess.run(
            [sys.executable, "-c", STARTS], stdout=subprocess.PIPE, check=False, timeout=60
        )
        assert done.returncode == -9
        wait_until_ended(int(done.stdout))


async def test_it_becomes_the_command() -> None:
    """Process id, arguments, environment and exit code are those of the program."""
    process = await child.start(
        ["sh", "-c", 'test "$A $1" = "b c d" && exit 3', "-", "c d"], environment={"A": "b"}
    )
    assert await process.wait() == 3


async def test_a_command_that_is_not_there_is_named() -> None:
    process = await child.start(["/nonexistent/program"], output=asyncio.subprocess.DEVNULL)
    assert await process.wait() == 1
