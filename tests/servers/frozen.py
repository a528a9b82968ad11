"""A server that is there and does not answer."""

import contextlib
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

from tests.conftest import eventually


@contextlib.asynccontextmanager
async def frozen(pid: int | None) -> AsyncIterator[None]:
    """Stop a process meanwhile; its threads stop one by one, on a busy machine after the signal."""
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    threads = Path(f"/proc/{pid}/task")
    try:
        await eventually(lambda: all(is_stopped(thread) for thread in threads.iterdir()))
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def is_stopped(thread: Path) -> bool:
    """Return whether the kernel has stopped a thread."""
    return (thread / "stat").read_text().rpartition(")")[2].split()[0] == "T"
