"""Child processes that end with this process, however it ends."""

import asyncio
import contextlib
import signal
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Mapping, Sequence


async def start(
    command: Sequence[str],
    *,
    environment: Mapping[str, str] | None = None,
    output: int | None = None,
) -> Process:
    """Start a program; `output` is where its stdout and stderr go, None for our own.

    It is in a session of its own: Ctrl-C is for us, and we end the children in order.
    """
    return await asyncio.create_subprocess_exec(
        *command,
        env=environment,
        stdin=DEVNULL,
        stdout=output,
        stderr=output,
        start_new_session=True,
        preexec_fn=die_with_parent,
    )


async def end(process: Process | None, seconds: float) -> bool:
    """Ask a child to end and kill it after a timeout; return whether it ended by itself."""
    if process is None or process.returncode is not None:
        return True
    process.terminate()
    try:
        async with asyncio.timeout(seconds):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
        return False
    return True


def die_with_parent() -> None:
    """Have the kernel kill this child when its parent dies (Linux only)."""
    import ctypes

    with contextlib.suppress(OSError, AttributeError):
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGTERM)
